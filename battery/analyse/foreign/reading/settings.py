"""What files say of how they were made, and what is told where they say different things.

Arms are there to differ, but in what was meant: a build, a model or a batch size that differs besides is told. Files of
one arm should not differ at all, for they are taken for its rounds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath

from battery.analyse.foreign.reading.document import Node

_SHOWN = re.compile(r"[ -~]{1,60}")
_MOST = 12
"""Settings that are spelled out."""


def made_with(node: Node, keys: Sequence[str], prefix: str = "") -> dict[str, str]:
    """The single values under some keys of an object, as text; nothing for what is null, or a list or object."""
    found = {}
    for key in keys:
        one = node.get(key)
        if one is not None and not isinstance(one.value, list | dict):
            found[f"{prefix}{key}"] = shown(one.value)
    return found


def shown(value: object) -> str:
    """A value as text of a line; a digest in place of one that is long, or cannot be printed everywhere."""
    text = str(value)
    if _SHOWN.fullmatch(text):
        return text
    return f"sha256 {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def file_name(value: object) -> str:
    """The name of a file without its folders, which are of somebody's machine."""
    return PurePosixPath(PureWindowsPath(str(value)).as_posix()).name


def differences(runs: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Notes on settings that are told by all runs, each with its arm, and are not the same; inside one arm first."""
    keys = [key for key in runs[0][1] if all(key in own for _, own in runs)] if runs else []
    arms = dict.fromkeys(arm for arm, _ in runs)
    values = {
        key: {arm: sorted({own[key] for name, own in runs if name == arm}) for arm in arms}
        for key in keys
    }
    for arm in arms:
        inside = [
            f"{key} {', '.join(values[key][arm])}" for key in keys if len(values[key][arm]) > 1
        ]
        if inside:
            yield (
                f"arm {arm}: its files were not made alike ({_listed(inside)}), and are taken for rounds of one arm; if"
                " they measured different things, name them apart with --arm"
            )
    apart = [
        f"{key}: {', '.join(f'{arm} {one[0]}' for arm, one in values[key].items())}"
        for key in keys
        if all(len(one) == 1 for one in values[key].values())
        and len({one[0] for one in values[key].values()}) > 1
    ]
    if apart:
        yield f"by their own word the files of the arms differ in {_listed(apart)}"


def _listed(found: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return "; ".join(found[:_MOST]) + more
