"""The blocks: every arm reads the block's prompt, then all decode it by turns in slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from battery.bench.schedule import orders
from benchmarks.engine.arms import PLAIN, Arm


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


def at(arms: Sequence[Arm], rungs: Sequence[int], rung: int) -> list[Arm]:
    """The arms that are asked at a rung."""
    middle = rungs[(len(rungs) - 1) // 2]
    return [
        arm
        for arm in arms
        if (arm.upto is None or rung <= arm.upto) and (not arm.middle or rung == middle)
    ]


def measure(
    arms: Sequence[Arm],
    engines: Mapping[str, Asked],
    prompts: Mapping[tuple[int, int], list[int]],
    size: int,
    say: Callable[[str], None],
) -> list[Sample]:
    """All blocks; `size` is the number of tokens of a slice."""
    blocks, rungs = sorted({block for block, _ in prompts}), sorted({rung for _, rung in prompts})
    made: list[Sample] = []
    for block in blocks:
        for place, rung in enumerate(rungs):
            taking = {arm.name: arm for arm in at(arms, rungs, rung)}
            rows = orders(list(taking), len(blocks), place % len(taking))
            order = [taking[name] for name in rows[block - 1]]
            made += _round(order, engines, prompts[block, rung], (block, rung), size)
        say(f"block {block} of {len(blocks)}")
    return made


def _round(
    order: Sequence[Arm],
    engines: Mapping[str, Asked],
    prompt: list[int],
    where: tuple[int, int],
    size: int,
) -> list[Sample]:
    """One prompt through every arm."""
    most = max(arm.slices for arm in order)
    # exactly: switchboard starts nothing after the last token, and would hand it on a step late before more
    count = 1 + most * size
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
        name: [*begun[name]["tokens"], *(token for one in cuts for token in one["tokens"])]
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
