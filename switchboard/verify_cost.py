"""What passes of several tokens and guesses cost here, beside the plain loop's step: measured on the loaded model.

The loops' own code is timed, over a cache with `rows` tokens in it: plain steps as the plain loop hands them on, the
next one begun ahead; verify passes with everything around them, checkpoint, acceptance law and taking back. Rounds go
through all widths in turn, so that a machine that slows down for a while does so for all of them; the median of each
counts. Of guessing the least counts, as the microseconds of a lookup drown in any delay. The rows are filled in without
reading a prompt of that length: repeated from a short one, which changes no cost. A cache that sums up its tokens in a
state has no rows to fill.

The proposer guesses over a short text of its own, as deep as it goes, which tells how deep that is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard.accept.ruling import Drawn
from switchboard.decode import Chooser, Tally, plain, prefill
from switchboard.depth import Costs
from switchboard.registry import Proposer, Room
from switchboard.speculate import check

TEXT = (5, 11, 3, 250, 7, 42, 9, 8) * 8
"""What the proposer reads: it repeats itself, so that a lookup finds something."""
WIDTHS = (2, 4, 8, 16, 32)
STEPS = 3
"""Plain steps of one round that are timed; the one before them has nothing ahead of it."""
LEAST_ROUNDS = 2


@dataclass(frozen=True)
class Bench:
    """What is measured: the session's model, caches, sampler and proposer, with how much time that may take."""

    model: Any
    make_cache: Callable[[Room], list[Any]]
    sampler: Chooser
    proposer: Proposer
    most: int
    rows: int
    rounds: int
    limit_s: float


@dataclass
class Sheet:
    """Seconds of one round after another."""

    steps: list[float]
    passes: dict[int, list[float]]
    guesses: dict[int, list[float]]


def measure(bench: Bench) -> Costs:
    """The costs; rounds end early when the time is used up, but not before two of them."""
    started = time.perf_counter()
    reading = min(_reading(bench.proposer) for _ in range(LEAST_ROUNDS + 1))
    deepest = len(bench.proposer.propose(bench.most)) or bench.most
    widths = [width for width in WIDTHS if width <= deepest] + [deepest + 1]
    cache = filled(bench)
    sheet = Sheet([], {width: [] for width in widths}, {width - 1: [] for width in widths})
    for done in range(bench.rounds):
        _round(bench, cache, sheet)
        if done + 1 >= LEAST_ROUNDS and time.perf_counter() - started > bench.limit_s:
            break
    replays = any(kv.is_state(entry) for entry in kv.parts(cache))
    bench.proposer.begin([])
    mx.clear_cache()
    return costs(sheet, reading, replays)


def _reading(proposer: Proposer) -> float:
    """Seconds that the proposer takes to read one token of a text."""
    began = time.perf_counter()
    proposer.begin(list(TEXT))
    return (time.perf_counter() - began) / len(TEXT)


def costs(sheet: Sheet, reading: float, replays: bool) -> Costs:
    """Seconds made ratios to one plain step; a pass over one token costs one by definition. `reading`: of a token."""
    step = median(sheet.steps)
    return Costs(
        widths=(1, *sheet.passes),
        ratios=(1.0, *(median(seen) / step for seen in sheet.passes.values())),
        depths=tuple(sheet.guesses),
        guessing=tuple(min(seen) / step for seen in sheet.guesses.values()),
        reading=reading / step,
        replays=replays,
    )


def filled(bench: Bench) -> list[Any]:
    """A cache with `rows` tokens in it."""
    count = len(TEXT) // 4
    room = Room(bench.rows, bench.rounds * (STEPS + 2 + sum(WIDTHS)))
    cache = bench.make_cache(room)
    prefill(bench.model, cache, TEXT[: count + 1], count, Tally(), lambda: None)
    for entry in kv.parts(cache):
        if not kv.is_state(entry):
            lengthen(entry, bench.rows)
    mx.eval(kv.arrays(cache))
    return cache


def lengthen(entry: Any, rows: int) -> None:
    """Write the first rows of an entry again behind themselves, until it has seen so many tokens."""
    held = min(entry.offset, 16)
    keys, values = (_plain(entry, part)[..., :held, :] for part in (entry.keys, entry.values))
    missing = rows - entry.offset
    if missing > 0:
        copies = -(-missing // held)
        entry.update_and_fetch(
            *(mx.tile(part, (1, 1, copies, 1))[..., :missing, :] for part in (keys, values))
        )


def _plain(entry: Any, part: Any) -> mx.array:
    """Rows as numbers, also where they are held packed."""
    if isinstance(part, mx.array):
        return part
    packed, scales, biases = part
    return mx.dequantize(packed, scales, biases, group_size=entry.group_size, bits=entry.bits)


def _round(bench: Bench, cache: list[Any], sheet: Sheet) -> None:
    """A few plain steps, then a pass of every width with its guesses."""
    last = TEXT[-1]
    stream, seen = plain(bench.model, cache, last, bench.sampler, STEPS + 1), list[float]()
    for _ in stream:
        seen.append(time.perf_counter())
    sheet.steps += [after - before for before, after in pairwise(seen)]
    for width in sheet.passes:
        began = time.perf_counter()
        guesses = bench.proposer.propose(width - 1)
        guessed = time.perf_counter()
        whole = _whole(guesses, width - 1)
        begun = time.perf_counter()
        made = check(bench.model, cache, last, whole, bench.sampler, 0, Tally(), bench.proposer)
        ended = time.perf_counter()
        # what a state has to read again is counted by itself
        mx.eval(kv.arrays(cache))
        sheet.guesses[width - 1].append(guessed - began)
        sheet.passes[width].append(ended - begun)
        bench.proposer.extend(made)
        last = made[-1]


def _whole(guesses: list[int], depth: int) -> list[int]:
    """As many guesses as are to be verified, whatever they are; drawn ones stay as they are, with their chances."""
    if isinstance(guesses, Drawn) or len(guesses) == depth:
        return guesses
    return [*guesses, *TEXT[: depth - len(guesses)]]
