"""A simulated battery as real receipts with real traces, to be judged by the analysis that judges campaigns.

Every rung of the plan takes two of the world's: one is the decode rate, the other the rate of prefill, which is what
time to first token and prefill rate are computed from. Peak memory is the same for both arms but for 0.1 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from battery.bench import schedule
from battery.ledger import strict
from battery.ledger.arm import Arm
from battery.ledger.cell import Cell
from battery.ledger.plan import Plan, Primary, Sampler
from battery.ledger.receipt import (
    Clearance,
    Cold,
    Engagement,
    Memory,
    PeakSource,
    Reading,
    Receipt,
    Request,
    SwitchSeen,
    Text,
)
from battery.ledger.store import Header
from battery.ledger.trace import Event, Trace
from benchmarks.statistics.simulate import CANDIDATE, CONTROL, REQUEST, Drawn, World, order

LADDER = (1024, 4096, 16384)
TOKENS = 8
"""Of every answer, one per event: a rate is first token to last, and more of them between tell it nothing."""
SEED = 11
WHEN = "2026-01-02T03:04:05Z"
MACHINE = {"cpu": "simulated", "cores_logical": 2, "memory_bytes": 8_000_000_000, "os": "none"}
DECODE, PREFILL, MEMORY = 40.0, 900.0, 3e8
"""Tokens a second, and bytes, before anything varies."""


def header(world: World, coin: int, name: str = "simulated") -> Header:
    """What would have been fixed before the first window of such a battery."""
    ladder = LADDER[: world.rungs // 2]
    plan = Plan(
        name=name, ladder=ladder, blocks=world.blocks, seeds=world.seeds,
        sampler=Sampler(max_tokens=TOKENS, min_tokens=TOKENS), primary=Primary(rung=ladder[-1]),
    )  # fmt: skip
    arms = (
        Arm(name=CONTROL, backend="switchboard", model="small"),
        Arm(name=CANDIDATE, backend="switchboard", model="small", switches={"fused_qkv": True}),
    )
    return Header(
        campaign=name, plan=plan, plan_digest=plan.digest, arms=arms,
        arm_digests={arm.name: arm.digest for arm in arms}, order=order(world, coin),
        coin=f"{arms[coin].name} opens", seed=SEED, created=WHEN, machine=MACHINE,
        battery={"version": "0.1.0", "commit": "0" * 40, "dirty": False}, baseline={},
    )  # fmt: skip


def battery(drawn: Drawn, place: int, rng: np.random.Generator) -> tuple[Header, list[Receipt]]:
    """The battery at `place` among those drawn; `rng` makes what no verdict here rests on."""
    fixed = header(drawn.world, int(drawn.coins[place]))
    made = [
        _receipt(fixed, cell, number, drawn, place, rng)
        for number, cell in enumerate(_cells(fixed), start=1)
    ]
    return fixed, made


def _cells(fixed: Header) -> Iterator[Cell]:
    """Every cell in the order of the run."""
    for row in schedule.windows(fixed.order):
        for window in row:
            yield from schedule.cells(window, fixed.plan, fixed.seed)


def _receipt(
    fixed: Header, cell: Cell, sequence: int, drawn: Drawn, place: int, rng: np.random.Generator
) -> Receipt:
    """One cell's record."""
    at = (place, cell.block - 1, int(cell.arm == CANDIDATE))
    rung = fixed.plan.ladder.index(cell.rung)
    if cell.sentinel:
        decode, prefill = drawn.windows[at] + rng.normal(0, REQUEST, 2)
    else:
        which = cell.seed % 100 - 1
        decode, prefill = (drawn.logs[(*at, row, which)] for row in (2 * rung, 2 * rung + 1))
    arm = next(one for one in fixed.arms if one.name == cell.arm)
    prompt = strict.digest(f"{cell.rung} {cell.seed}")
    own = "" if drawn.world.arms == "exact" else cell.arm
    peak = round(MEMORY * math.exp(rng.normal(0, 0.001)))
    return Receipt(
        campaign=fixed.campaign, sequence=sequence, attempt=1, cell=cell, outcome="ok", arm=arm,
        arm_digest=arm.digest, plan_digest=fixed.plan_digest,
        request=Request(
            body_digest=prompt, prompt_digest=prompt, prompt_tokens=cell.rung, workload="prose",
            sampler={"temperature": 0.7}, honoured="honoured",
        ),
        trace=trace(DECODE * math.exp(decode), cell.rung / (PREFILL * math.exp(prefill)), cell.rung),
        text=Text(digest=strict.digest(f"text {cell.rung} {cell.seed} {own}"), characters=40),
        cold=Cold(value="cold", evidence="0 cached"),
        engagement=Engagement(
            verdict="engaged",
            switches=tuple(
                SwitchSeen(name=name, asked=True, state="engaged", verdict="engaged", before="armed")
                for name in arm.asked
            ),
        ),
        memory=Memory(
            peak=peak, source="VmHWM", sources={"VmHWM": PeakSource(bytes=peak, how="true peak")}
        ),
        gate=Clearance(verdict="open", waited_s=0.0, reading=Reading(at_s=-0.2, busy=0.1)),
        machine=MACHINE, versions={"battery": {"version": "0.1.0"}}, model={"name": "small", "digest": "d" * 64},
        started=WHEN, ended=WHEN,
    )  # fmt: skip


def trace(rate: float, ttft_s: float, prompt: int) -> Trace:
    """An answer of TOKENS tokens at a steady rate."""
    events = tuple(Event(round(1e9 * (ttft_s + n / rate)), 1) for n in range(TOKENS))
    return Trace(
        events=events, end_ns=events[-1].at_ns, prompt_tokens=prompt, completion_tokens=TOKENS,
        cached_tokens=0, count_source="server", finish_reason="length",
    )  # fmt: skip
