"""Tests that are inputs: a result for each is compared with the canonical solution's.

Results are compared as EvalPlus 0.3.1 compares them: equal, or of the same type and length and close (relative 1e-7
and the task's absolute tolerance, 1e-6 where floats are expected and the task names none), or as a task's own oracle
says. Expected results are bytes where they are short and digests where they are long, so that no process ever holds
all of them. Equal bytes are equal values. Where bytes differ the values are compared, for which a long one is computed
again: the canonical solution belongs to the data and may run here.
"""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

from battery.quality.sandbox.inside.foreign import Foreign, Remote, listed
from battery.quality.sandbox.inside.wire import Body, NotPlain, packed, plain

SHORT = 1024
"""Bytes up to which an expected result is kept as it is."""
TOGETHER = 64
"""Calls that are asked for at a time."""
RELATIVE = 1e-7
FLOAT_ATOL = 1e-6

Oracle = Callable[[Sequence[Any], Any, Any, float], bool]
"""Whether a result is right, from the arguments, the result, what is expected and the tolerance."""


def sameness(body: Body) -> bytes:
    """What an expected result is kept as: its bytes, or their digest."""
    if len(body) <= SHORT:
        return b"=" + body
    return b"#" + hashlib.blake2b(body, digest_size=16).digest()


def close(found: Any, wanted: Any, atol: float) -> bool:
    """Whether numbers, or sequences of them, are as near as the tolerances ask; other values must be equal."""
    if isinstance(wanted, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(wanted)
            and all(close(one, two, atol) for one, two in zip(found, wanted, strict=True))
        )
    if not isinstance(wanted, int | float | complex) or not isinstance(
        found, int | float | complex
    ):
        return False
    if found == wanted:
        return True
    try:
        return abs(found - wanted) <= atol + RELATIVE * abs(wanted) < math.inf
    except OverflowError:
        return False


def right(found: Any, wanted: Any, atol: float) -> bool:
    """Whether a result is the expected one, by EvalPlus's rule."""
    if not atol and _floats(wanted):
        atol = FLOAT_ATOL
    own = listed(found) if atol else found  # before it hears what is expected
    if bool(found == wanted):
        return True
    return bool(atol) and type(own) is type(wanted) and close(own, wanted, atol)


def _floats(value: Any) -> bool:
    if isinstance(value, list | tuple) and value:
        return all(isinstance(one, float) for one in value)
    return isinstance(value, float)


def _zero(given: Sequence[Any], found: Any, wanted: Any, atol: float) -> bool:
    """HumanEval/32: any zero of the polynomial will do."""
    return bool(abs(sum(c * math.pow(found, power) for power, c in enumerate(given[0]))) <= atol)


def _surface(given: Sequence[Any], found: Any, wanted: Any, atol: float) -> bool:
    """Mbpp/581: the height may be that of the pyramid as well as of its sides."""
    base, height = given
    slant = math.hypot(base / 2, height)
    return right(found, wanted, atol) or bool(
        abs(found - round(base**2 + 2 * base * slant)) <= atol
    )


def _digits(given: Sequence[Any], found: Any, wanted: Any, atol: float) -> bool:
    """Mbpp/558: digits may be compared place by place as well as by the difference."""
    first, second = (str(number) for number in given)
    width = max(len(first), len(second))
    pairs = zip(first.zfill(width), second.zfill(width), strict=True)
    if right(found, wanted, atol):
        return True
    return bool(found == sum(abs(int(one) - int(two)) for one, two in pairs))


def _as_sets(given: Sequence[Any], found: Any, wanted: Any, atol: float) -> bool:
    """Eight tasks of MBPP+: order and repetition do not count."""
    return set(found) == set(wanted)


def _anything(given: Sequence[Any], found: Any, wanted: Any, atol: float) -> bool:
    """Mbpp/164: whatever is returned."""
    return True


def _something(given: Sequence[Any], found: Any, wanted: Any, atol: float) -> bool:
    """Three tasks of MBPP+ whose results are matches of patterns: whether there is one."""
    there = found if isinstance(found, bool) else found is not None
    return there == (wanted if isinstance(wanted, bool) else wanted is not None)


ORACLES: dict[str, Oracle] = {
    "zero": _zero, "surface": _surface, "digits": _digits, "sets": _as_sets, "anything": _anything,
    "something": _something,
}  # fmt: skip


class Wanted:
    """Expected results, and how one found is held against them."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._expected: list[bytes] = job["expected"]
        self._job = job
        self._oracle = ORACLES.get(job["oracle"] or "")
        self._canonical: Callable[..., Any] | None = None

    def same(self, place: int, body: Body) -> bool:
        """Whether a result's bytes are the expected ones; no task refuses the canonical solution's."""
        kept = self._expected[place]
        return kept[:1] != b"?" and sameness(body) == kept

    def accepts(self, place: int, given: bytes, found: Any) -> bool:
        """Whether a result is right."""
        kept, atol = self._expected[place], self._job["atol"]
        arguments = pickle.loads(given)
        wanted = plain(kept[1:]) if kept[:1] == b"=" else self._computed(arguments)
        if self._oracle:
            return self._oracle(arguments, found, wanted, atol)
        return right(found, wanted, atol)

    def demand(self, place: int, given: bytes, found: Any) -> None:
        """AssertionError where a result is not right."""
        if not self.accepts(place, given, found):
            which = "base" if place < self._job["base"] else "plus"
            raise AssertionError(f"with input {place} ({which})")

    def _computed(self, arguments: Sequence[Any]) -> Any:
        if self._canonical is None:
            space: dict[str, Any] = {"__name__": "canonical"}
            exec(compile(self._job["canonical"], "<canonical>", "exec", dont_inherit=True), space)
            self._canonical = space[self._job["entry"]]
        assert self._canonical is not None
        return self._canonical(*copy.deepcopy(arguments))


def graded(job: dict[str, Any], remote: Remote, verdict: dict[str, Any]) -> None:
    """Base inputs, then plus inputs; AssertionError at the first wrong result. `base`: whether the former passed."""
    wanted, given, base = Wanted(job), job["inputs"], job["base"]
    verdict["base"] = False
    _compared(range(base), given, wanted, remote)
    verdict["base"] = True
    job["tell"]()
    _compared(range(base, len(given)), given, wanted, remote)


def _compared(places: range, given: list[bytes], wanted: Wanted, remote: Remote) -> None:
    for start in range(places.start, places.stop, TOGETHER):
        chunk = given[start : min(start + TOGETHER, places.stop)]
        later: list[tuple[int, bytes, Body]] = []
        for place, (kind, body) in enumerate(remote.calls(chunk), start):
            if kind == b"V" and wanted.same(place, body):
                continue
            try:
                found = plain(body) if kind == b"V" else remote.decoded(kind, body)
            except NotPlain:
                later.append((place, kind, b""))
                continue
            if isinstance(found, Foreign):
                later.append((place, kind, body))
            else:
                wanted.demand(place, given[place], found)
        # the program answers questions about its objects only when the results it owes are in
        for place, kind, body in later:
            found = remote.decoded(kind, body) if body else remote.again(given[place])
            wanted.demand(place, given[place], found)


def recorded(job: dict[str, Any], remote: Remote, verdict: dict[str, Any]) -> None:
    """What the program returns for every input, as `expected` of later jobs, and how long all of them took."""
    began, kept = time.perf_counter(), []
    given = job["inputs"]
    for start in range(0, len(given), TOGETHER):
        for kind, body in remote.calls(given[start : start + TOGETHER]):
            found = body if kind == b"V" else b""
            if not found:
                value = remote.decoded(kind, body)
                # what cannot travel is compared by an oracle that asks only whether there is something
                found = packed(value is not None if isinstance(value, Foreign) else value)
            kept.append(sameness(found).hex())
    verdict |= {"expected": kept, "seconds": time.perf_counter() - began}
