"""The grader as an ordinary user: with namespaces, without them but with Landlock, and with neither.

Where there are no namespaces the programs only look whether they could get through (see `probes`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ordinary import asked
from planted import NEVER_PASS, RIGHT, RIGHT_ALL_THE_SAME, SHORT, TOO_MUCH
from probes import PROBES, Ground, ground

from battery.quality.sandbox import landlock
from battery.quality.sandbox.limits import NAMES

if sys.platform != "linux":
    pytest.skip("users, namespaces and Landlock are Linux's here", allow_module_level=True)

BY_NAMESPACES = {"no network", "files read-only", "only interpreter visible", "own process ids"}
LIES = (
    "SystemExit", "changes a class of the judge", "closes everything", "deep result", "exit 0 at import",
    "exit at the end", "looks for the tests in memory", "looks who calls", "own check", "patched comparison",
    "pickle that ends who reads it", "pickle that runs", "printed verdict", "raises what cannot be shown",
    "true to every question", "verdict into every descriptor",
)  # fmt: skip
"""Attacks on the verdict alone: they signal nobody and touch no file."""
BY_LIMITS = (
    "a long file",
    "many descriptors",
    "many processes",
    "much memory",
    "much memory in many processes",
    "much processor time",
    "long sleep",
)
BY_LANDLOCK = ("connects", "could end its parent", "reads the answers' file", "sees the processes of others",
               "writes outside its folder")  # fmt: skip


@pytest.fixture(scope="module")
def place() -> Iterator[Ground]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with ground(Path(folder)) as made:
            yield made


def programs(place: Ground, *names: str) -> dict[str, Any]:
    """Planted programs and probes by name, as `asked` takes them."""
    found: dict[str, Any] = {"right": (RIGHT, None, {})}
    for name in names:
        if name in PROBES:
            probe = PROBES[name].on(place)
            found[name] = (probe.code, None, probe.limits._asdict())
        elif name in TOO_MUCH:
            found[name] = (TOO_MUCH[name][1], None, SHORT._asdict())
        else:
            found[name] = ({**NEVER_PASS, **RIGHT_ALL_THE_SAME}[name], None, {})
    return found


def statuses(told: Any, names: tuple[str, ...]) -> dict[str, str]:
    return {name: told["found"][name][0] for name in names}


def held(names: tuple[str, ...]) -> dict[str, str]:
    return {name: PROBES[name].status for name in names}


def test_an_ordinary_user_has_every_fence_that_namespaces_give(place: Ground) -> None:
    names = (
        *NEVER_PASS,
        *RIGHT_ALL_THE_SAME,
        *TOO_MUCH,
        *BY_LIMITS,
        *BY_LANDLOCK,
        "sends a datagram",
    )
    told = asked(programs(place, *names))
    if not set(told["fences"]) >= BY_NAMESPACES:
        pytest.skip(f"ordinary users get no namespaces here: {told['missing']['no network']}")
    assert told["user"] != 0 and set(NAMES) <= set(told["fences"])
    assert told["missing"] == {}
    assert told["found"]["right"][0] == "passed"
    assert set(statuses(told, tuple(NEVER_PASS)).values()) <= {"failed", "crash", "memory"}
    assert set(statuses(told, tuple(RIGHT_ALL_THE_SAME)).values()) == {"passed"}
    assert statuses(told, tuple(TOO_MUCH)) == {
        name: status for name, (status, _) in TOO_MUCH.items()
    }
    assert statuses(told, (*BY_LIMITS, *BY_LANDLOCK)) == held((*BY_LIMITS, *BY_LANDLOCK))
    assert told["found"]["sends a datagram"][0] == "failed"


@pytest.fixture(scope="module")
def denied(place: Ground) -> Any:
    """What is found where namespaces are denied."""
    return asked(programs(place, *LIES, *BY_LIMITS, *BY_LANDLOCK), deny=True)


def test_where_namespaces_are_denied_the_receipt_names_what_is_missing(denied: Any) -> None:
    assert denied["user"] != 0
    lacking = denied["missing"]
    assert set(lacking) >= BY_NAMESPACES and not BY_NAMESPACES & set(denied["fences"])
    assert all(lacking[name].startswith("no namespaces: ") for name in BY_NAMESPACES)
    assert set(NAMES) <= set(denied["fences"]) and "own verdict process" in denied["fences"]


def test_where_namespaces_are_denied_verdicts_and_limits_hold(denied: Any) -> None:
    assert denied["found"]["right"][0] == "passed"
    assert set(statuses(denied, LIES).values()) <= {"failed", "crash", "memory"}
    assert statuses(denied, BY_LIMITS) == held(BY_LIMITS)
    assert denied["found"]["long sleep"][2], "a timeout counts only after a second try alone"


def test_where_namespaces_are_denied_landlock_holds_what_it_knows(denied: Any) -> None:
    try:
        known = landlock.version()
    except OSError as reason:
        assert denied["missing"]["Landlock"] and "signals" in denied["missing"]
        pytest.skip(f"no Landlock here: {reason}")
    assert set(landlock.standing(known)) <= set(denied["fences"])
    since = {"connects": 4, "could end its parent": 6}
    names = tuple(name for name in BY_LANDLOCK if known >= since.get(name, 1))
    assert statuses(denied, names) == held(names)


def test_with_neither_the_same_probes_get_through_and_the_receipt_says_so(place: Ground) -> None:
    told = asked(programs(place, *LIES, *BY_LANDLOCK), deny=True, without=("landlock",))
    assert {"Landlock", "signals", *BY_NAMESPACES} <= set(told["missing"])
    assert set(statuses(told, BY_LANDLOCK).values()) == {"passed"}
    assert set(statuses(told, LIES).values()) <= {"failed", "crash", "memory"}
