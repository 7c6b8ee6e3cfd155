"""What a failed request came to, on real servers: who said it, in which phase, and what stays a loss."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from growing import own_group

from battery.bench.client import Completion
from battery.bench.judge import failure
from battery.bench.memory import cgroup
from battery.bench.run import Conductor
from battery.ledger.arm import Arm
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign
from battery.ledger.trace import Event, Trace

Make = Callable[..., Arm]
ENGINE = Path(__file__).parents[1] / "fake_engine.py"
BODY = {
    "messages": [{"role": "user", "content": "Explain what `CUDA out of memory` means, please."}]
}


def one_cell(folder: Path, plan: Plan, arm: Arm, **limits: object) -> Receipt:
    kept = msgspec.structs.replace(plan.limits, **limits)
    plan = msgspec.structs.replace(plan, ladder=(64,), blocks=1, sentinel=False, limits=kept)
    Conductor(plan, [arm], folder, None, 4821, lock=folder.parent / "battery.lock").run()
    return Campaign(folder).receipts()[0]


def failed(reason: str, text: str = "", body: str | None = None) -> Completion:
    return Completion(
        outcome="error", reason=reason, phase="decode", text=text, evidence={"error_body": body}
    )


@pytest.mark.parametrize(
    ("done", "log", "where"),
    [
        (failed("error inside the stream: CUDA out of memory. Tried"), "", "in the answer"),
        (failed("HTTP 500", body='{"error": "std::bad_alloc"}'), "", "in the error body"),
        (failed("the connection broke"), "MemoryError", "in the server's log"),
        # the request's own words, sent back
        (failed("HTTP 400", body="Explain what `CUDA out of memory` means, please."), "", None),
        # the model's own words, in a log that tells them
        (failed("broke", "Then it says: out of memory, killed."), "wrote: Then it says: out of memory, killed.", None),
        (failed("broke", "Then it says: out of memory, killed."), "", None),
        (failed("broke"), "If you are running out of memory, consider decreasing it", None),
    ],
)  # fmt: skip
def test_only_the_servers_own_words_are_evidence(
    done: Completion, log: str, where: str | None
) -> None:
    found = failure.out_of_memory(done, BODY, log)
    assert (found.where if found else None) == where


def test_phases_name_the_step_behind_the_first_token() -> None:
    def came(events: int) -> Completion:
        trace = Trace(events=tuple(Event(at, 1) for at in range(events)))
        return Completion(outcome="error", reason="", phase="decode", trace=trace)

    assert [failure.phase(came(events)) for events in (1, 2)] == ["first decode", "decode"]
    assert failure.phase(Completion(outcome="error", reason="", phase="prefill")) == "prefill"


def test_an_engine_behind_a_shell_that_the_kernel_kills_is_oom(
    tmp_path: Path, small_plan: Plan
) -> None:
    own_group().lift()
    line = (
        f"{{python}} {ENGINE} --port {{port}} --model {{model}} --touch-kb-per-token 4000; exit $?"
    )
    arm = Arm(name="A", backend="command", model="tiny", command=["sh", "-c", line])
    receipt = one_cell(tmp_path / "c", small_plan, arm, memory_limit_gb=0.15)
    assert receipt.outcome == "oom" and receipt.evidence["exit_status"] == 137
    assert "own cgroup" in receipt.evidence["oom"]["text"]


def test_sigkill_without_any_evidence_is_lost(tmp_path: Path, small_plan: Plan) -> None:
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, sys, threading, time\n"
        f"sys.path.insert(0, {str(ENGINE.parent)!r})\n"
        "import fake_generation, fake_engine\n"
        "def die(*_):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "fake_generation.run_out_of_memory = die\n"
        "sys.exit(fake_engine.main(sys.argv[1:]))\n"
    )
    command = [
        "{python}",
        str(script),
        "--port",
        "{port}",
        "--model",
        "{model}",
        "--fault",
        "oom-at:64",
    ]
    arm = Arm(name="A", backend="command", model="tiny", command=command)
    receipt = one_cell(tmp_path / "c", small_plan, arm)
    assert receipt.outcome == "lost" and receipt.evidence["exit_status"] == -9
    assert not receipt.memory.lower_bound


def test_a_death_without_words_under_an_address_limit_stays_lost_and_says_so(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform != "linux":
        pytest.skip("RLIMIT_AS is not enforced here")
    monkeypatch.setattr(cgroup, "make", lambda _name: (None, "left out by the test"))
    arm = fake_arm("A", "--fault", "die-after:4")
    receipt = one_cell(tmp_path / "c", small_plan, arm, memory_limit_gb=2.0)
    assert receipt.outcome == "lost" and "may have met it" in (receipt.reason or "")
