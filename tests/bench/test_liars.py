"""Servers that lie about cache, seed and length: caught, or told as unverified or unknown, never passed as proved."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from test_run import conduct, only

from battery.analyse import findings
from battery.bench.client import Completion
from battery.bench.judge import repeat
from battery.bench.prompts import Messages
from battery.ledger.arm import Arm
from battery.ledger.plan import Plan
from battery.ledger.trace import Event, Trace

Make = Callable[..., Arm]
PREFILL = ("--prefill-us-per-token", "2000")
"""About 200 ms for the probe's prompt: prefill dominates, as on a real server, pauses of a busy machine included."""


def test_a_server_that_caches_and_says_nought_is_not_cold(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    """35: by its own word every prompt is cold; the untimed repeats say otherwise."""
    liar = fake_arm("A", "--fault", "lies-cold", *PREFILL)
    counts, (receipt,) = conduct(tmp_path / "c", only(small_plan), liar)
    assert counts == {"ok": 1} and receipt.cold.value == "unverified"
    assert receipt.trace.cached_tokens == 0
    assert "the server keeps prompts, whatever it says" in (receipt.cold.doubt or "")
    assert "cached 0" in receipt.cold.evidence and receipt.cold.doubt in receipt.cold.evidence
    doubts = [doubt for doubt in findings.analyse(tmp_path / "c").doubts if "cold" in doubt.what]
    assert [(doubt.severity, doubt.evidence) for doubt in doubts] == [("warning", (1,))]
    assert "arm A: cold by its word only in 1 of 1 cells" in doubts[0].what


@pytest.mark.parametrize("options", [PREFILL, ("--fault", "warm-cache", *PREFILL), ()])
def test_an_honest_server_stays_cold(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, options: tuple[str, ...]
) -> None:
    """With a cache or without one: what it says is what it does."""
    counts, (receipt,) = conduct(tmp_path / "c", only(small_plan), fake_arm("A", *options))
    assert counts == {"ok": 1} and (receipt.cold.value, receipt.cold.doubt) == ("cold", None)
    assert (receipt.request.honoured, receipt.request.doubt) == ("honoured", None)


def test_a_seed_that_is_echoed_and_ignored_is_not_honoured(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    arm = fake_arm("A", "--fault", "ignores-seed")
    counts, (receipt,) = conduct(tmp_path / "c", only(small_plan), arm)
    assert counts == {"ok": 1} and receipt.request.honoured == "unknown"
    assert receipt.trace.sampler and receipt.trace.sampler["seed"] == receipt.cell.seed
    assert "the same prompt and seed gave" in (receipt.request.doubt or "")
    doubts = [doubt for doubt in findings.analyse(tmp_path / "c").doubts if "seed" in doubt.what]
    assert [(doubt.severity, doubt.evidence) for doubt in doubts] == [("warning", (1,))]


def test_a_sampler_of_which_nothing_is_said_is_unknown(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    arm = fake_arm("A", "--fault", "sampler-changed", "--fault", "no-timings")
    _, (receipt,) = conduct(tmp_path / "c", only(small_plan), arm)
    assert (receipt.outcome, receipt.request.honoured) == ("ok", "unknown")


def test_a_length_that_is_clamped_behind_an_honest_echo_is_seen(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    """11, 33: the echo says 12, but it stops for length after 7: what came counts."""
    arm = fake_arm("A", "--fault", "clamps-silently:7", "--after", "5")
    counts, (receipt,) = conduct(tmp_path / "c", only(small_plan), arm)
    assert counts == {"error": 1} and receipt.request.honoured == "changed"
    assert "asked 12, but the server stopped for length after 7" in (receipt.reason or "")
    assert receipt.trace.finish_reason == "length" and len(receipt.trace.events) == 7


def test_a_server_that_refuses_every_completion_ends_its_window(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    """16: it lists its model and is healthy; the wake request shows that it answers nothing."""
    counts, receipts = conduct(
        tmp_path / "c", only(small_plan, ladder=(64, 96)), fake_arm("A", "--fault", "http-500")
    )
    assert counts == {"error": 2}
    assert {receipt.reason for receipt in receipts} == {"wake: HTTP 500: the engine has a bad day"}


class Scripted:
    """Answers with times that a rule makes up from what was asked before."""

    def __init__(self, seconds: Callable[[bool, int], float], cached: int | None = 0) -> None:
        self.seconds, self.told, self.asked = seconds, cached, 0
        self.seen: list[Messages] = []

    def __call__(self, messages: Messages) -> Completion:
        known = messages in self.seen
        took = self.seconds(known, self.asked)
        self.asked += 1
        self.seen.append(messages)
        told = self.told if known else 0
        trace = Trace(
            events=(Event(int(took * 1e9), 1),), prompt_tokens=100, completion_tokens=8,
            cached_tokens=told, count_source="server",
        )  # fmt: skip
        return Completion(outcome="ok", reason=None, phase="decode", trace=trace, text="x")


def test_the_rule_by_hand() -> None:
    liar = Scripted(lambda known, _: 0.02 if known else 0.2)
    assert "0.020 s" in (repeat.look(liar, 1, 48, True).cache or "") and liar.asked == 11
    honest = Scripted(lambda known, _: 0.2)
    assert repeat.look(honest, 1, 48, True).cache is None and honest.asked == 2
    told = Scripted(lambda known, _: 0.02 if known else 0.2, cached=99)
    assert repeat.look(told, 1, 48, True).cache is None and told.asked == 2
    silent = Scripted(lambda known, _: 0.02 if known else 0.2, cached=None)
    assert repeat.look(silent, 1, 48, True).cache is None and silent.asked == 2
    slow_start = Scripted(lambda _, asked: 2.0 if asked == 0 else 0.2)
    assert repeat.look(slow_start, 1, 48, True).cache is None and slow_start.asked == 11
    tiny = Scripted(lambda known, _: 0.001 if known else 0.004)
    assert repeat.look(tiny, 1, 48, True).cache is None


def test_a_repeat_out_of_the_cache_proves_nothing_about_the_seed() -> None:
    class Other(Scripted):
        """Writes another text each time."""

        def __call__(self, messages: Messages) -> Completion:
            return msgspec.structs.replace(super().__call__(messages), text=f"text {self.asked}")

    assert "'text 1' and then 'text 2'" in (
        repeat.look(Other(lambda *_: 0.1), 1, 48, True).seed or ""
    )
    assert repeat.look(Other(lambda *_: 0.1), 1, 48, False).seed is None  # greedy: no draw
    assert repeat.look(Other(lambda *_: 0.1, cached=60), 1, 48, True).seed is None


def test_a_server_that_compiles_for_each_new_length_is_not_accused() -> None:
    """New prompts are slow, repeats fast, and so is the third, of the same length: no cache holds that one."""
    compiles = Scripted(lambda _, asked: 0.9 if asked == 0 or asked % 3 == 2 else 0.1)
    assert repeat.look(compiles, 1, 48, True).cache is None and compiles.asked == 11


@pytest.mark.parametrize("spread", [0.1, 0.3, 0.6])
def test_noise_does_not_accuse_and_does_not_hide(spread: float) -> None:
    """2,000 windows: an honest server is never accused; a liar (a tenth of the time) is caught in most."""
    chance = random.Random(4821)

    def noisy(known: bool, share: float) -> float:
        return 0.1 * (share if known else 1.0) * chance.lognormvariate(0, spread)

    accused = sum(
        repeat.look(Scripted(lambda known, _: noisy(known, 1.0)), 1, 48, True).cache is not None
        for _ in range(2000)
    )
    caught = sum(
        repeat.look(Scripted(lambda known, _: noisy(known, 0.1)), 1, 48, True).cache is not None
        for _ in range(200)
    )
    assert accused == 0 and caught > 120
