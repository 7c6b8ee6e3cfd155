"""Campaigns of any size: whole, sealed, and such that `battery verify` accepts them.

Answers come from the fake engine's own generator (tests/fake_generation.py) in time that is computed instead of waited
for: its schedule says when every token would have come, its totals what the engine would have told. What stands around
an answer in a receipt, the gate's reading and the samples among it, has the fields and the size of real ones: about
7 kB.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from battery.bench import schedule
from battery.ledger import store, strict
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
from battery.ledger.store import Campaign, Header
from battery.ledger.trace import Event, Trace

ENGINE = Path(__file__).parents[1] / "tests"
ARMS: dict[str, tuple[str, ...]] = {
    "A": (), "C": ("fused_qkv", "fused_gate_up"), "D": ("prompt_lookup",), "E": ("fused_qkv", "prompt_lookup"),
}  # fmt: skip
"""Each arm's switches; the first is the control."""
ITL_MS = {"A": 24.0, "C": 22.5, "D": 30.0, "E": 28.0}
PREFILL_US = {"A": 1100.0, "C": 1080.0, "D": 1100.0, "E": 1080.0}
AT_ONCE = {"D": 3, "E": 3}
"""Tokens that a step of a speculating arm gives."""
LADDER = (48, 64, 96, 128, 192, 256, 384, 512)
TOKENS, LEAST = 48, 40
SHORT_EVERY = 97
"""One cell in so many stops by itself before it has the tokens that the plan asks for."""
CONTENT, LAUNCH, REQUEST = 0.02, 0.004, 0.006
"""Spread of log times between prompts (common to the arms), launches and requests."""
WHEN = "2026-01-02T03:04:05Z"
MACHINE = {
    "cpu": "simulated", "cores_logical": 2, "cores_physical": 2, "memory_bytes": 25_276_502_016, "os": "none",
    "machine": "x86_64", "virtualised": True, "temperature_sensor": "none", "gpu": None,
}  # fmt: skip
VERSIONS = {
    "battery": {"version": "0.1.0", "commit": "0" * 40, "dirty": False, "python": "3.11.7"},
    "engine": {"version": "0.0-fake", "device": "fake", "packages": {"numpy": "2.4.6", "msgspec": "0.23.0"}},
}  # fmt: skip
SENSORS = ("coretemp Package", "coretemp Core 0", "coretemp Core 1", "nvme Composite", "acpitz")
MISSING = {"on_ac": "no battery reports here", "gpu": "nvidia-ml-py is not installed (extra: cuda)"}
UNGATED = {"need_ac_power": "no battery reports here"}
APPLIED = (
    "max_temp_c",
    "temp_band_c",
    "max_busy",
    "max_steal",
    "min_free_gb",
    "calibration",
    "max_pressure",
    "need_steady",
)


class Shape(NamedTuple):
    """How many of everything."""

    blocks: int
    seeds: int

    @property
    def receipts(self) -> int:
        """What they come to, the sentinel of every window included."""
        return len(ARMS) * self.blocks * (len(LADDER) * self.seeds + 1)


def shape(receipts: int) -> Shape:
    """The shape that comes nearest to so many receipts: 40 blocks, or eight below 5,000."""
    blocks = 40 if receipts >= 5000 else 8
    seeds = round((receipts / (len(ARMS) * blocks) - 1) / len(LADDER))
    return Shape(blocks, min(max(seeds, 1), 99))


def make(folder: Path, size: Shape, seed: int = 1) -> Campaign:
    """The campaign in `folder`, finished and sealed; its name is the folder's."""
    fixed = header(folder.name, size)
    campaign = Campaign.create(folder, fixed)
    campaign.note("started", arms=list(ARMS))
    for receipt in receipts(fixed, random.Random(seed)):
        # not by Campaign.write: a disk that is waited for 100,000 times would be all that is measured here
        (folder / name_of(receipt)).write_bytes(store.by_field(receipt))
    campaign.note("finished")
    campaign.seal()
    return campaign


def name_of(receipt: Receipt) -> str:
    """The file of a receipt."""
    cell = receipt.cell
    seed = "sentinel" if cell.sentinel else f"s{cell.seed}"
    return f"{receipt.sequence:04d}-b{cell.block}-{cell.arm}-r{cell.rung}-{seed}.json"


def header(name: str, size: Shape) -> Header:
    """What would have been fixed before the first window."""
    plan = Plan(
        name="many", ladder=LADDER, blocks=size.blocks, seeds=size.seeds,
        sampler=Sampler(max_tokens=TOKENS, min_tokens=LEAST), primary=Primary(rung=LADDER[-1]),
    )  # fmt: skip
    arms = tuple(
        Arm(
            name=arm, backend="switchboard", model="fake-tiny", switches=dict.fromkeys(switches, True)
        )
        for arm, switches in ARMS.items()
    )  # fmt: skip
    return Header(
        campaign=name, plan=plan, plan_digest=plan.digest, arms=arms,
        arm_digests={arm.name: arm.digest for arm in arms}, order=schedule.orders(tuple(ARMS), size.blocks, 0),
        coin="A opens (flip 0 of 4)", seed=11, created=WHEN, machine=MACHINE, battery=VERSIONS["battery"],
        baseline={"calibration_s": 0.01},
    )  # fmt: skip


def receipts(fixed: Header, dice: random.Random) -> Iterator[Receipt]:
    """Every receipt in the order of the run, one at a time."""
    by_name, engine, number = {arm.name: arm for arm in fixed.arms}, Engine(), 0
    luck: dict[tuple[int, int], float] = {}
    for row in schedule.windows(fixed.order):
        for window in row:
            launch = dice.gauss(0, LAUNCH)
            engine.start(window.arm)
            for cell in schedule.cells(window, fixed.plan, fixed.seed):
                number += 1
                content = luck.setdefault((cell.rung, cell.seed), dice.gauss(0, CONTENT))
                slow = math.exp(launch + content + dice.gauss(0, REQUEST))
                short = not cell.sentinel and number % SHORT_EVERY == 0
                trace, text = engine.answer(cell, slow, short)
                yield _receipt(fixed, by_name[window.arm], cell, number, trace, text, dice)


class Engine:
    """The fake engine without its sockets and its clock."""

    def __init__(self) -> None:
        if str(ENGINE) not in sys.path:
            sys.path.insert(0, str(ENGINE))
        import fake_engine
        import fake_faults
        import fake_generation
        import fake_model

        self._options_of, self._model_of = fake_engine.options_of, fake_model.Model
        self._generation = fake_generation.Generation
        self._plain, self._short = (
            fake_faults.Faults([]),
            fake_faults.Faults([f"short:{LEAST - 4}"]),
        )

    def start(self, arm: str) -> None:
        """Launch an arm."""
        words = [word for name in ARMS[arm] for word in ("--switch", name)]
        line = [
            "--port", "0", "--itl-ms", str(ITL_MS[arm]), "--prefill-us-per-token", str(PREFILL_US[arm]),
            "--tokens-per-event", str(AT_ONCE.get(arm, 1)), *words,
        ]  # fmt: skip
        self._model = self._model_of(self._options_of(line), self._plain)

    def answer(self, cell: Cell, slow: float, short: bool) -> tuple[Trace, Text]:
        """What a client would have seen of the answer to a cell's prompt, every time multiplied by `slow`."""
        body = {
            "temperature": 0.7, "top_p": 0.95, "seed": cell.seed, "max_tokens": TOKENS, "min_tokens": LEAST,
        }  # fmt: skip
        prompt = list(range(cell.seed, cell.seed + cell.rung))
        faults = self._short if short else self._plain
        told = self._generation(self._model, faults, body, False, prompt, "", 0.0)
        events = []
        for at_s, size in told.schedule():
            told.tokens(size)
            events.append(Event(round(at_s * slow * 1e9), size))
        told.prompt_s = events[0].at_ns / 1e9
        told.decode_s = (events[-1].at_ns - events[0].at_ns) / 1e9
        self._model.ran(len(told.sizes))
        totals = told.totals()
        usage = totals["usage"]
        trace = Trace(
            events=tuple(events), end_ns=events[-1].at_ns + 200_000, prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            cached_tokens=usage["prompt_tokens_details"]["cached_tokens"], count_source="server",
            finish_reason=told.finish, usage=usage, timings=totals["timings"], sampler=totals["sampler"],
        )  # fmt: skip
        text = "".join(token.text for token in told.sent)
        ids = tuple(token.id for token in told.sent)
        kept = Text(
            digest=strict.digest(text), characters=len(text), ids_digest=strict.digest(str(ids)), ids=ids,
            head=text[:200],
        )  # fmt: skip
        return trace, kept


def _receipt(
    fixed: Header, arm: Arm, cell: Cell, number: int, trace: Trace, text: Text, dice: random.Random
) -> Receipt:
    """One cell's record."""
    short = (trace.completion_tokens or 0) < LEAST
    prompt = strict.digest(f"{cell.rung} {cell.seed}")
    timings = trace.timings or {}
    peak = int(timings["peak_bytes"])
    seen = tuple(
        SwitchSeen(
            name=name, asked=True, state="engaged", verdict="engaged", before="engaged", exactness="exact",
            coverage={"fused": 30, "layers": 30}, counters={"runs": int(timings["steps"]) * cell.place + 1},
            kill=f"SWITCHBOARD_{name.upper()}",
        )
        for name in arm.asked
    )  # fmt: skip
    return Receipt(
        campaign=fixed.campaign, sequence=number, attempt=1, cell=cell, outcome="short" if short else "ok",
        reason=f"{trace.completion_tokens} tokens, the plan asks for {LEAST}" if short else None,
        arm=arm, arm_digest=arm.digest, plan_digest=fixed.plan_digest,
        command=("python", "fake_engine.py", "--port", "0", *arm.asked),
        request=Request(
            body_digest=prompt, prompt_digest=prompt, prompt_tokens=cell.rung, workload="prose",
            sampler=dict(trace.sampler or {}), honoured="honoured",
        ),
        trace=trace,
        text=text,
        cold=Cold(value="cold", evidence=f"prompt {cell.rung}, cached 0, as the server told"),
        engagement=Engagement(verdict="engaged", switches=seen),
        memory=Memory(
            peak=peak, source="engine", major_faults=0, swapped_bytes=0,
            sources={
                "engine": PeakSource(bytes=peak, how="true peak"),
                "VmHWM": PeakSource(bytes=peak + dice.randrange(10**7), how="true peak"),
                "rss": PeakSource(bytes=peak, how="sampled"),
            },
        ),
        gate=Clearance(
            verdict="open", waited_s=round(dice.uniform(0.28, 0.3), 3), reading=_reading(-0.2, dice, 0.01),
            ungated=UNGATED, applied=APPLIED,
        ),
        samples=tuple(_reading(0.5 * n, dice) for n in range(2 + int((trace.end_ns or 0) / 5e8))),
        machine=MACHINE, versions=VERSIONS, model={"name": "fake-tiny", "digest": "d" * 64, "context": 131_072},
        started=WHEN, ended=WHEN,
    )  # fmt: skip


def _reading(at_s: float, dice: random.Random, calibration: float | None = None) -> Reading:
    """One look at the machine, as Linux tells it."""
    temps = {name: round(dice.uniform(50, 60), 1) for name in SENSORS}
    return Reading(
        at_s=at_s, temp_c=max(temps.values()), temps=temps, busy=round(dice.uniform(0.48, 0.55), 4),
        foreign=round(dice.uniform(0, 0.02), 4), steal=0.0,
        pressure={"cpu": round(dice.uniform(0, 0.02), 4), "memory": 0.0, "io": 0.0},
        counters={"pswpin": 0, "cpu_wait_us": dice.randrange(10**7)},
        available_bytes=23_957_905_408 + dice.randrange(10**7), freq_mhz=2596.134, rss_bytes=754_376_704,
        calibration_s=calibration and round(calibration * dice.uniform(0.98, 1.02), 6), missing=MISSING,
    )  # fmt: skip


def total_bytes(campaign: Campaign) -> int:
    """Bytes of all receipts."""
    return sum(path.stat().st_size for path in campaign.paths())
