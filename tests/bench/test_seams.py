"""Seams between parts: a log longer than its tail, a stream that is none, secrets in a server's own words."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from byte_server import DONE, PLAIN, ByteServer, chunked, data

from battery.bench import gate, memory, sensors
from battery.bench.client import Client
from battery.bench.run import Conductor
from battery.bench.stream import wire
from battery.ledger.arm import Arm
from battery.ledger.plan import Gate, Plan
from battery.ledger.receipt import Gpu, Reading, Receipt
from battery.ledger.store import Campaign

Make = Callable[..., Arm]
WHOLE = b'{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}],"usage":{"completion_tokens":1}}'


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_10_an_answer_in_one_piece_is_no_stream_whatever_its_type_says(
    server: ByteServer, client: Client, end: bytes
) -> None:
    server.script = chunked(WHOLE + end)
    done = client.stream("/x", {}, deadline_s=5)
    assert (done.outcome, done.text, done.trace.events) == ("error", "hello", ())


@pytest.mark.parametrize("behind", [b": bye\n\n", b"data: more\n\n: and more of it\n\n"])
def test_done_in_the_midst_of_a_read_ends_the_wait(
    server: ByteServer, client: Client, behind: bytes
) -> None:
    server.script = [*chunked(PLAIN + behind)[:-1], "hang"]
    start = time.monotonic()
    done = client.stream("/x", {}, deadline_s=60)
    assert done.outcome == "ok" and time.monotonic() - start < 30


def test_a_text_that_says_done_is_text(server: ByteServer, client: Client) -> None:
    said = data({"choices": [{"delta": {"content": "data: [DONE]"}}]})
    server.script = [*chunked(said)[:-1], 1.5, *chunked(PLAIN)[1:]]
    done = client.stream("/x", {}, deadline_s=60)
    assert done.outcome == "ok" and done.text.startswith("data: [DONE]") and DONE


def test_a_server_that_babbles_is_cut_off_and_what_came_is_kept(
    server: ByteServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MOST_BYTES", 100_000)
    babble = data({"choices": [{"delta": {"content": "x" * 1_000}}]})
    server.script = [*chunked(*[babble] * 200)[:-1], "trickle"]
    done = client.stream("/x", {}, deadline_s=60)
    assert done.outcome == "error" and "grew beyond" in (done.reason or "")
    assert len(done.trace.events) == 200


def measured(folder: Path, plan: Plan, arm: Arm) -> list[Receipt]:
    plan = msgspec.structs.replace(plan, ladder=(64,), blocks=1, sentinel=False)
    Conductor(plan, [arm], folder / "c", seed=4821, lock=folder / "lock").run()
    return Campaign(folder / "c").receipts()


def test_an_allocators_words_are_found_before_pages_of_traceback(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    arm = fake_arm("A", "--fault", "oom-at:60", "--fault", "long-traceback:80")
    (receipt,) = measured(tmp_path, small_plan, arm)
    assert receipt.outcome == "oom" and "Insufficient Memory" in (receipt.reason or "")
    assert "Insufficient Memory" not in receipt.evidence["log_tail"]


def test_a_failure_that_is_no_lack_of_memory_bounds_no_peak(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    limits = msgspec.structs.replace(small_plan.limits, memory_limit_gb=4.0)
    plan = msgspec.structs.replace(small_plan, limits=limits)
    (receipt,) = measured(tmp_path, plan, fake_arm("A", "--fault", "http-500"))
    assert receipt.outcome == "error" and (receipt.reason or "").startswith("wake: HTTP 500")
    assert receipt.memory.peak is None and not receipt.memory.lower_bound


def test_a_secret_that_the_server_repeats_is_in_no_field(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    arm = fake_arm(
        "A",
        "--switch",
        "prompt_lookup",
        "--fault",
        "declined:prompt_lookup",
        "--fault",
        "tells-env:ENGINE_API_KEY",
    )
    arm = msgspec.structs.replace(
        arm, env={"ENGINE_API_KEY": "open-sesame-1"}, switches={"prompt_lookup": True}
    )
    (receipt,) = measured(tmp_path, small_plan, arm)
    assert receipt.outcome == "disengaged" and "<redacted>" in (receipt.reason or "")
    for path in (tmp_path / "c").iterdir():
        assert "open-sesame-1" not in path.read_text(), path.name


def test_our_own_processes_are_not_foreign() -> None:
    burn = "import time; e = time.perf_counter() + 3\nwhile time.perf_counter() < e: pass"
    import subprocess

    with (
        subprocess.Popen([sys.executable, "-c", burn]) as helper,
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(4)"]) as server,
        sensors.Sampler() as sampler,
    ):
        with sampler.during(server.pid, (helper.pid,)) as ours:
            time.sleep(1.2)
        with sampler.during(server.pid) as strangers:
            time.sleep(1.2)
        helper.kill()
        server.kill()
    cores = os.cpu_count() or 1

    def our_share(taken: sensors.Sampling) -> float:
        """The most of the processors that was told as used by the server and by us."""
        told = [(r.busy, r.foreign) for r in taken.readings(0)]
        return max((b - f for b, f in told if b is not None and f is not None), default=0.0)

    # the burning helper fills most of a core, and is ours only where somebody said so
    assert our_share(ours) > 0.3 / cores > our_share(strangers)


def test_a_peak_of_nought_is_no_peak() -> None:
    for told in (0, -1, True, None, "7"):
        counter = memory.EngineCounter(lambda: None)
        counter.reset({os.getpid()})
        counter.health = {"memory": {"peak": told}}
        assert counter.read().bytes is None and "memory.peak" in (counter.read().reason or "")


def test_a_gpu_without_a_temperature_is_ungated_by_name() -> None:
    reading = Reading(at_s=0, gpus=(Gpu(index=0),), missing={"gpu": "no sensor"})
    judged = gate.judge(reading, Gate(), {})
    assert judged.ungated["max_temp_c (gpu)"] == "no sensor"
