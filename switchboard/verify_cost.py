"""What passes of several tokens and guesses cost here, beside the plain loop's step: measured on the loaded model.

The loops' own code is timed along one text that repeats itself, which the answer is forced to go on with, so that a
lookup finds something: plain steps as the plain loop hands them on, the next one begun ahead; verify passes with
everything around them, checkpoint, acceptance law and taking back; and the proposer's guesses before each. Rounds go
through all widths in turn, so that a machine that slows down for a while does so for all of them. Of each the least
counts, as delays only add; there are more plain steps than passes of any width, so that on a busy machine passes are
rather taken for dearer than they are.

The text has `rows` tokens before that. The cache is filled without reading them: its first rows are written again
behind themselves, which changes no cost. A cache that sums up its tokens in a state has no rows to fill.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard.accept.ruling import Drawn
from switchboard.decode import Chooser, Tally, plain, prefill
from switchboard.depth import Costs
from switchboard.forced import Forced
from switchboard.registry import Proposer, Room, SamplingProposer
from switchboard.speculate import check

PERIOD = (5, 11, 3, 250, 7, 42, 9, 8, 21, 4, 17, 30, 2, 19, 33, 12)
WIDTHS = (2, 4, 8, 16, 32)
STEPS = 2
"""Plain steps of one round that are timed: neither the first, which nothing runs ahead of, nor the last, which does not
run ahead of any."""
LEAST_ROUNDS = 2
READ_AGAIN_S = 0.02
"""A proposer that has read the text in less is asked to twice more."""


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


class Walk:
    """One text as it goes on: its cache holds all of it but the last token, and the proposer has seen all of it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._length = bench.rows + 1
        self.cache = filled(bench)
        if isinstance(bench.proposer, SamplingProposer):
            bench.proposer.sample_with(bench.sampler)
        self.reading = self._begin()

    def _begin(self) -> float:
        """Let the proposer read; seconds a token."""
        took: list[float] = []
        while len(took) < 3 and (not took or took[0] < READ_AGAIN_S):
            began = time.perf_counter()
            self._bench.proposer.begin(periodic(0, self._length))
            took.append(time.perf_counter() - began)
        return min(took) / self._length

    def go(self, count: int) -> list[float]:
        """Moments at which plain tokens came."""
        bench, seen, last = self._bench, list[float](), periodic(self._length - 1, 1)[0]
        coming = periodic(self._length, count)
        for _ in plain(bench.model, self.cache, last, Forced(bench.sampler, coming), count):
            seen.append(time.perf_counter())
        self._go_on(coming)
        return seen

    def steps(self) -> list[float]:
        """Seconds of plain steps."""
        return [after - before for before, after in pairwise(self.go(STEPS + 2)[:-1])]

    def deepest(self) -> int:
        """How many guesses the proposer makes when it may make the most; 0 where it makes none."""
        guesses = self._bench.proposer.propose(self._bench.most)
        if guesses:
            self._passed(guesses)
        return len(guesses)

    def verify(self, depth: int) -> tuple[float, float]:
        """Seconds of making so many guesses, and of a pass over as many, whatever was guessed."""
        began = time.perf_counter()
        guesses = self._bench.proposer.propose(depth)
        guessing = time.perf_counter() - began
        return guessing, self._passed(whole(guesses, periodic(self._length, depth)))

    def _passed(self, draft: list[int]) -> float:
        """Seconds of one verify pass."""
        bench, last = self._bench, periodic(self._length - 1, 1)[0]
        sampler = Forced(bench.sampler, periodic(self._length, len(draft) + 1))
        began = time.perf_counter()
        made = check(bench.model, self.cache, last, draft, sampler, 0, Tally(), bench.proposer)
        took = time.perf_counter() - began
        # what a state has to read again is counted by itself
        mx.eval(kv.arrays(self.cache))
        self._go_on(made)
        return took

    def _go_on(self, tokens: list[int]) -> None:
        self._bench.proposer.extend(tokens)
        self._length += len(tokens)


def measure(bench: Bench) -> Costs:
    """The costs; rounds end early when the time is used up, but not before two of them."""
    started = time.perf_counter()
    walk = Walk(bench)
    walk.go(1)
    guessed = walk.deepest()
    deepest = guessed or bench.most
    widths = [width for width in WIDTHS if width <= deepest] + [deepest + 1]
    sheet = Sheet([], {width: [] for width in widths}, {width - 1: [] for width in widths})
    for done in range(bench.rounds):
        sheet.steps += walk.steps()
        for width in widths:
            guessing, passing = walk.verify(width - 1)
            sheet.guesses[width - 1].append(guessing)
            sheet.passes[width].append(passing)
        if done + 1 >= LEAST_ROUNDS and time.perf_counter() - started > bench.limit_s:
            break
    replays = any(kv.is_state(entry) for entry in kv.parts(walk.cache))
    bench.proposer.begin([])
    del walk.cache
    mx.clear_cache()
    return costs(sheet, walk.reading, replays, silent=guessed == 0)


def costs(sheet: Sheet, reading: float, replays: bool, silent: bool = False) -> Costs:
    """Seconds made ratios to one plain step; a pass over one token costs one by definition. `reading`: of a token."""
    step = min(sheet.steps)
    return Costs(
        widths=(1, *sheet.passes),
        ratios=(1.0, *(min(seen) / step for seen in sheet.passes.values())),
        depths=tuple(sheet.guesses),
        guessing=tuple(min(seen) / step for seen in sheet.guesses.values()),
        reading=reading / step,
        replays=replays,
        silent=silent,
    )


def periodic(start: int, count: int) -> list[int]:
    """The tokens of the text from a place on."""
    return [PERIOD[place % len(PERIOD)] for place in range(start, start + count)]


def whole(guesses: list[int], instead: list[int]) -> list[int]:
    """As many guesses as are to be verified, whatever they are; drawn ones stay as they are, with their chances."""
    return guesses if isinstance(guesses, Drawn) else [*guesses, *instead[len(guesses) :]]


def filled(bench: Bench) -> list[Any]:
    """A cache with `rows` tokens in it."""
    passes = STEPS + 2 + sum(WIDTHS) + bench.most
    cache = bench.make_cache(Room(bench.rows, (bench.rounds + 1) * passes))
    read = periodic(0, len(PERIOD) + 1)
    prefill(bench.model, cache, read, len(PERIOD), Tally(), lambda: None)
    for entry in kv.parts(cache):
        if not kv.is_state(entry):
            lengthen(entry, bench.rows)
    mx.eval(kv.arrays(cache))
    return cache


def lengthen(entry: Any, rows: int) -> None:
    """Write the first rows of an entry again behind themselves, until it has seen so many tokens."""
    held, missing = min(entry.offset, len(PERIOD)), rows - entry.offset
    if missing <= 0:
        return
    copies = -(-missing // held)
    parts = (_plain(entry, part)[..., :held, :] for part in (entry.keys, entry.values))
    entry.update_and_fetch(*(mx.tile(part, (1, 1, copies, 1))[..., :missing, :] for part in parts))


def _plain(entry: Any, part: Any) -> mx.array:
    """Rows as numbers, also where they are held packed."""
    if isinstance(part, mx.array):
        return part
    packed, scales, biases = part
    return mx.dequantize(packed, scales, biases, group_size=entry.group_size, bits=entry.bits)
