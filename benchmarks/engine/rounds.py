"""The blocks: a new prompt for each rung, read by every arm, then decoded by all by turns in slices."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from battery.bench.prompts import corpus
from battery.bench.schedule import orders
from benchmarks.engine.arms import PLAIN, Arm

LETTERS = 8
"""Characters taken for a token: more than any prose needs on average."""
LEEWAY = 32
"""Tokens beyond those of a turn: its lead, and drafts that bring more than was asked for."""
Prompts = Mapping[tuple[int, int], list[int]]
"""Tokens by block, from 1, and rung."""


class Asked(Protocol):
    """A started engine, near or far."""

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """One question, one answer."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One arm at one rung in one block; times in seconds."""

    arm: str
    rung: int
    block: int
    place: int
    """In the order of reading, from 1."""
    prefill_s: float
    """Until all prompt tokens but the last were in the cache (llama.cpp: all of them)."""
    first_s: float
    """Until the first token was known."""
    tokens: int
    passes: int
    """Forward passes that brought the tokens: fewer than tokens where drafts were accepted."""
    seconds: float
    cpu_s: float
    """Processor time of all threads of the process, over the same slices."""
    slices: list[float]
    """Tokens a second of each slice."""
    same: int | None
    """How many first tokens are those of `plain`, or of the first arm where there is no `plain`."""
    of: int | None


def passages(
    encode: Callable[[str], list[int]], rungs: Sequence[int], blocks: int, seed: int
) -> dict[tuple[int, int], list[int]]:
    """Natural prose of exactly so many tokens for every block and rung; the same seed gives the same prompts."""
    paragraphs = corpus("prose").paragraphs
    made: dict[tuple[int, int], list[int]] = {}
    for block in range(1, blocks + 1):
        for rung in rungs:
            rng = random.Random(f"{seed}/{block}/{rung}")
            text, place = "", rng.randrange(len(paragraphs))
            while len(text) < LETTERS * rung:
                text += paragraphs[place % len(paragraphs)] + "\n\n"
                place += 1
            tokens = encode(text)[:rung]
            if len(tokens) < rung:
                raise ValueError(f"{LETTERS * rung} characters gave {len(tokens)} of {rung} tokens")
            made[block, rung] = tokens
    return made


def at(arms: Sequence[Arm], rungs: Sequence[int], rung: int) -> list[Arm]:
    """The arms that are asked at a rung."""
    return [arm for arm in arms if not arm.lowest or rung == min(rungs)]


def expected(
    arms: Sequence[Arm], engines: Mapping[str, Asked], prompts: Prompts, size: int
) -> float:
    """Seconds that a block will take: every arm reads the lowest rung's first prompt, has one turn, and is scaled.

    That also warms the arms up. A long prompt takes more for each of its tokens, so it is rather too little.
    """
    rungs = sorted({rung for _, rung in prompts})
    whole = 0.0
    for arm in arms:
        begun = engines[arm.name].ask("begin", prompt=prompts[1, rungs[0]], count=1 + size + LEEWAY)
        went = engines[arm.name].ask("go", least=size)
        engines[arm.name].ask("end")
        asked = [rung for rung in rungs if arm in at(arms, rungs, rung)]
        reading = begun["first_s"] * sum(asked) / rungs[0]
        turn = went["seconds"] * (1 + size) / size  # with the lead, which `go` does not count
        whole += reading + len(asked) * arm.slices * turn
    return whole


def measure(
    arms: Sequence[Arm],
    engines: Mapping[str, Asked],
    prompts: Prompts,
    size: int,
    renew: Callable[[], None] | None = None,
) -> Iterator[list[Sample]]:
    """The samples of one block after the other; `size` is the number of tokens of a slice.

    `renew` is called before every block but the first: blocks of one launch share its luck, and are no units.
    """
    blocks, rungs = sorted({block for block, _ in prompts}), sorted({rung for _, rung in prompts})
    for block in blocks:
        if renew is not None and block != blocks[0]:
            renew()
        made: list[Sample] = []
        for place, rung in enumerate(rungs):
            taking = {arm.name: arm for arm in at(arms, rungs, rung)}
            rows = orders(list(taking), len(blocks), place % len(taking))
            order = [taking[name] for name in rows[block - 1]]
            made += _round(order, engines, prompts[block, rung], (block, rung), size)
        yield made


def _round(
    order: Sequence[Arm],
    engines: Mapping[str, Asked],
    prompt: list[int],
    where: tuple[int, int],
    size: int,
) -> list[Sample]:
    """One prompt through every arm."""
    most = max(arm.slices for arm in order)
    # more than is taken: who starts ahead does so in the last turn too
    count = 1 + most * (size + LEEWAY)
    begun = {arm.name: engines[arm.name].ask("begin", prompt=prompt, count=count) for arm in order}
    cut: dict[str, list[dict[str, Any]]] = {arm.name: [] for arm in order}
    for turn in range(most):
        # there and back again: what drifts in between touches the first and the last alike
        for arm in order if turn % 2 == 0 else reversed(order):
            if turn < arm.slices:
                cut[arm.name].append(engines[arm.name].ask("go", least=size))
    for arm in order:
        engines[arm.name].ask("end")
    ids = {
        name: [
            *begun[name]["tokens"],
            *(token for one in cuts for token in one["lead"] + one["tokens"]),
        ]
        for name, cuts in cut.items()
    }
    against = ids.get(PLAIN) or ids[sorted(ids)[0]]
    return [
        _sample(arm.name, place, where, begun[arm.name], cut[arm.name], (ids[arm.name], against))
        for place, arm in enumerate(order, start=1)
    ]


def _sample(
    name: str,
    place: int,
    where: tuple[int, int],
    begun: dict[str, Any],
    cuts: list[dict[str, Any]],
    ids: tuple[list[int], list[int]],
) -> Sample:
    of = min(len(one) for one in ids)
    return Sample(
        arm=name, block=where[0], rung=where[1], place=place, prefill_s=begun["prefill_s"], first_s=begun["first_s"],
        tokens=sum(len(one["tokens"]) for one in cuts), passes=sum(one["passes"] for one in cuts),
        seconds=sum(one["seconds"] for one in cuts), cpu_s=sum(one["cpu_s"] for one in cuts),
        slices=[len(one["tokens"]) / one["seconds"] for one in cuts], same=leading(*ids), of=of,
    )  # fmt: skip


def leading(one: Sequence[int], other: Sequence[int]) -> int:
    """How many first tokens are equal."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
