"""Campaigns with known truth, written as real receipts through ledger.store."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from battery.ledger import strict
from battery.ledger.arm import Arm
from battery.ledger.cell import Cell, Window
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
from battery.ledger.store import Campaign, Header, Screen
from battery.ledger.trace import Event, Trace

MACHINE = {"cpu": "Example CPU", "cores_logical": 2, "memory_bytes": 8_000_000_000, "os": "Linux"}
TOKENS = 48


def trace(
    rate: float, ttft: float = 0.2, tokens: int = TOKENS, prompt: int = 128, **changes: Any
) -> Trace:
    """A trace of one token per event at a steady `rate` tok/s."""
    gap = 1e9 / rate
    events = tuple(Event(round(ttft * 1e9 + gap * place), 1) for place in range(tokens))
    values: dict[str, Any] = {
        "events": events,
        "end_ns": events[-1].at_ns + 1000 if events else None,
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "cached_tokens": 0,
        "count_source": "server",
        "finish_reason": "length",
    }
    return Trace(**{**values, **changes})


@dataclass
class World:
    """What is true in a synthetic campaign, and how noisy it is."""

    arms: tuple[str, ...] = ("A", "C")
    ladder: tuple[int, ...] = (128, 384)
    blocks: int = 6
    seeds: int = 2
    effect: dict[str, float] = field(default_factory=dict)
    """Decode rate of an arm as a multiple of the control's."""
    ttft_effect: dict[str, float] = field(default_factory=dict)
    memory_effect: dict[str, float] = field(default_factory=dict)
    noise: float = 0.004
    content: float = 0.05
    """Spread between prompts, common to all arms."""
    drift: float = 0.0
    """Log change of the rate per window."""
    speculates: tuple[str, ...] = ()
    env: dict[str, dict[str, str]] = field(default_factory=dict)
    """What the file of an arm sets in the environment."""
    change: Callable[[Receipt], Receipt | None] = lambda receipt: receipt
    """Last word on every receipt; None leaves it out."""
    plan: dict[str, Any] = field(default_factory=dict)
    sampler: Sampler = field(default_factory=lambda: Sampler(max_tokens=TOKENS, min_tokens=16))
    screen: Screen = ""
    seal: bool = True
    random_seed: int = 7


def build(root: Path, world: World | None = None, name: str = "2026-01-02-test") -> Path:
    """The folder of a campaign made in this world, under `root`/receipts."""
    world = world or World()
    dice = random.Random(world.random_seed)
    plan = Plan(
        name="test", ladder=world.ladder, blocks=world.blocks, seeds=world.seeds,
        sampler=world.sampler, primary=Primary(rung=world.ladder[-1]),
        **world.plan,
    )  # fmt: skip
    arms = tuple(
        Arm(
            name=a, backend="switchboard", model="small", switches={"fused_qkv": True} if i else {},
            env=world.env.get(a, {}),
        )
        for i, a in enumerate(world.arms)
    )  # fmt: skip
    n = len(arms)
    order = tuple(
        tuple(world.arms if block % 2 == 0 else reversed(world.arms))
        if n == 2
        else tuple(world.arms[(block + i) % n] for i in range(n))
        for block in range(world.blocks)
    )
    header = Header(
        campaign=name, plan=plan, plan_digest=plan.digest, arms=arms,
        arm_digests={arm.name: arm.digest for arm in arms}, order=order,
        coin=f"{world.arms[0]} opens (flip 0 of {n})", seed=11, created="2026-01-02T03:04:05Z",
        machine=MACHINE, battery={"version": "0.1.0", "commit": "0" * 40, "dirty": False},
        baseline={"calibration_s": 0.01, "temp_c": None}, screen=world.screen,
    )  # fmt: skip
    folder = root / "receipts" / name
    campaign = Campaign.create(folder, header)
    content = {
        (block, rung, place): dice.gauss(0, world.content)
        for block in range(world.blocks + 1)
        for rung in world.ladder
        for place in range(world.seeds + 1)
    }
    left_out = 0
    for receipt in _receipts(world, header, content, dice):
        changed = world.change(receipt)
        if changed is None:
            left_out += 1  # as if it had never been: a number that is missing is a fault of its own
        else:
            campaign.write(msgspec.structs.replace(changed, sequence=changed.sequence - left_out))
    if world.seal:
        campaign.seal()
    return folder


def _receipts(
    world: World, header: Header, content: dict[tuple[int, int, int], float], dice: random.Random
) -> list[Receipt]:
    made: list[Receipt] = []
    number = 0
    by_name = {arm.name: arm for arm in header.arms}
    for block, order in enumerate(header.order, start=1):
        for position, arm in enumerate(order):
            number += 1
            window = Window(block=block, position=position, number=number, arm=arm)
            launch = dice.gauss(0, world.noise)
            cells = [(world.ladder[0], 0, True)] + [
                (rung, place, False) for rung in world.ladder for place in range(1, world.seeds + 1)
            ]
            for place_in_window, (rung, place, sentinel) in enumerate(cells):
                seed = 110_000 + (0 if sentinel else block * 100 + place)
                cell = Cell(window, place_in_window, rung, seed, sentinel)
                luck = content[0, rung, 0] if sentinel else content[block, rung, place]
                log = launch + luck + dice.gauss(0, world.noise) + world.drift * number
                made.append(_receipt(world, header, by_name[arm], cell, len(made) + 1, log, dice))
    return made


def _receipt(
    world: World, header: Header, arm: Arm, cell: Cell, sequence: int, log: float,
    dice: random.Random,
) -> Receipt:  # fmt: skip
    rate = 40.0 * (header.plan.ladder[0] / cell.rung) ** 0.15 * math.exp(log)
    rate *= world.effect.get(arm.name, 1.0)
    ttft = (
        cell.rung
        / 900
        * world.ttft_effect.get(arm.name, 1.0)
        * math.exp(dice.gauss(0, world.noise))
    )
    timings = None
    if arm.name in world.speculates:
        timings = {
            "decode_tokens": TOKENS, "steps": 20, "decode_s": TOKENS / rate, "proposed": 60, "accepted": 28,
        }  # fmt: skip
    peak = round((3e8 + 4e4 * cell.rung) * world.memory_effect.get(arm.name, 1.0))
    body = strict.digest(f"{cell.rung} {cell.seed}")
    seen = tuple(
        SwitchSeen(name=name, asked=True, state="engaged", verdict="engaged", before="armed", exactness="exact",
                   coverage={"layers": 30}, counters={"runs": 5}, kill=f"--no-{name}")
        for name in arm.asked
    )  # fmt: skip
    return Receipt(
        campaign=header.campaign, sequence=sequence, attempt=1, cell=cell, outcome="ok",
        arm=arm, arm_digest=arm.digest, plan_digest=header.plan_digest, command=("server", "--port", "0"),
        request=Request(body_digest=body, prompt_digest=body, prompt_tokens=cell.rung,
                        workload=header.plan.workload_of(cell.seed % 100),
                        sampler={"temperature": 0.7}, honoured="honoured"),
        trace=trace(rate, ttft, prompt=cell.rung, timings=timings),
        text=Text(digest=strict.digest(f"text {cell.rung} {cell.seed}"), characters=200),
        cold=Cold(value="cold", evidence="cached 0"),
        engagement=Engagement(verdict="engaged", switches=seen),
        memory=Memory(peak=peak, source="VmHWM",
                      sources={"VmHWM": PeakSource(bytes=peak, how="true peak")}),
        gate=Clearance(verdict="open", waited_s=0.0,
                       reading=Reading(at_s=-0.2, busy=0.1, calibration_s=0.01, missing={"temp_c": "no sensor"}),
                       ungated={"max_temp_c": "no sensor"}),
        machine=MACHINE, versions={"battery": {"version": "0.1.0"}, "engine": {"mlx": "0.32.4"}},
        model={"name": "small", "digest": "d" * 64},
        started="2026-01-02T03:04:05Z", ended="2026-01-02T03:04:06Z",
    )  # fmt: skip


def fails(
    outcome: str, when: Callable[[Receipt], bool], reason: str = "planted", **evidence: Any
) -> Callable[[Receipt], Receipt]:
    """A change that lets some cells end otherwise, with three tokens come and a lower bound of memory."""

    def change(receipt: Receipt) -> Receipt:
        if not when(receipt):
            return receipt
        memory = msgspec.structs.replace(
            receipt.memory, peak=100_800_000_000, lower_bound=outcome == "oom", cap=107_374_182_400
        )
        return msgspec.structs.replace(
            receipt, outcome=outcome, reason=reason, evidence=evidence, memory=memory,
            trace=trace(40, tokens=3),
        )  # fmt: skip

    return change
