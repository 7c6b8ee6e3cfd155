"""A positive control: a real campaign over real HTTP whose candidate is slower by exactly 3 %, and must be found so.

Both arms are the fake engine of the tests; they differ in the time between tokens and in nothing else. The engine
sleeps to absolute times, so that a late token does not delay the next, and the true ratio of the rates is that of the
intervals. A 95 % interval misses the truth once in twenty: a campaign that misses is kept, told of, and repeated once.
Both together miss by chance once in four hundred.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec

from battery.analyse.findings import Findings, analyse
from battery.bench.progress import Progress
from battery.bench.run import Conductor
from battery.ledger.arm import Arm
from battery.ledger.cell import Window
from battery.ledger.plan import Gate, Limits, Plan, Sampler

ENGINE = Path(__file__).parents[2] / "tests" / "fake_engine.py"
RATIO = 0.97
"""Of the candidate's true rate to the control's."""
GAP_MS = 8.0
TOKENS = 256
"""Two seconds of decode: how late the first and the last token are on a busy machine is then little of it."""
BLOCKS, SEEDS = 6, 1
ATTEMPTS = 2


class Told(Progress):
    """Says which window runs."""

    def __init__(self, say: Callable[[str], None], windows: int) -> None:
        self._say, self._windows = say, windows

    def window(self, window: Window, attempt: int) -> None:
        self._say(f"positive control: window {window.number} of {self._windows}")


def plan(blocks: int = BLOCKS) -> Plan:
    """Six blocks of one long request at one rung, and no limit that can be left out: machines may be shared."""
    open_gate: dict[str, Any] = {"wait_s": 5, "baseline_s": 0}
    for one in msgspec.structs.fields(Gate):
        if type(None) in get_args(one.type) or one.type is bool:
            open_gate[one.name] = None if one.type is not bool else False
    return Plan(
        name="positive-control",
        ladder=(64,),
        blocks=blocks,
        seeds=SEEDS,
        sentinel=False,
        sampler=Sampler(max_tokens=TOKENS, min_tokens=TOKENS),
        gate=Gate(**open_gate),
        limits=Limits(launch_s=20, request_s=60, stop_s=5, reruns=0),
    )


def arms(ratio: float = RATIO) -> tuple[Arm, Arm]:
    """The control, and the same engine with `ratio` of its rate."""
    return _arm("A", GAP_MS), _arm("C", GAP_MS / ratio)


def _arm(name: str, gap_ms: float) -> Arm:
    """The fake engine with this time between tokens."""
    line = ["{python}", str(ENGINE), "--port", "{port}", "--model", "{model}", "--itl-ms", repr(gap_ms)]  # fmt: skip
    return Arm(name=name, backend="command", model="fake-tiny", command=line)


def campaign(folder: Path, say: Callable[[str], None], ratio: float = RATIO) -> Findings:
    """The findings of one such campaign, measured now into `folder`."""
    told, wanted = Told(say, 2 * BLOCKS), plan()
    Conductor(wanted, list(arms(ratio)), folder, told, lock=folder.parent / "lock").run()
    return analyse(folder)


def judged(found: Findings) -> dict[str, Any]:
    """The primary endpoint of a campaign beside the truth."""
    (one,) = found.primary
    estimate = one.estimate
    assert estimate is not None and estimate.low is not None and estimate.high is not None
    return {
        "verdict": " ".join(filter(None, (one.verdict.word, one.verdict.qualifier))),
        "truth": RATIO,
        "ratio": estimate.ratio,
        "low": estimate.low,
        "high": estimate.high,
        "blocks": estimate.blocks,
        "by_block": [ratio for _, ratio in one.by_block],
        "self_test_p": found.drift.self_test.p,
        "found": one.verdict.word == "slower" and estimate.low <= RATIO <= estimate.high,
    }


def positive(say: Callable[[str], None]) -> dict[str, Any]:
    """The control's campaigns, the last of which counts: one, or two where the first missed."""
    made: list[dict[str, Any]] = []
    while len(made) < ATTEMPTS and not (made and made[-1]["found"]):
        with tempfile.TemporaryDirectory(prefix="battery-control-") as place:
            made.append(judged(campaign(Path(place) / "positive-control", say)))
    return {"gap_ms": GAP_MS, "tokens": TOKENS, "seeds": SEEDS, "campaigns": made, **made[-1]}


if __name__ == "__main__":
    print(positive(lambda words: print(words, file=sys.stderr)))
