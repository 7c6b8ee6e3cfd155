"""The real engine with the real model runs out of memory in a cgroup, and the kernel's word is found."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest
from growing import own_group

from battery.bench.backends import load_backend
from battery.bench.launch import Server
from battery.bench.run import Conductor
from battery.ledger.arm import Arm
from battery.ledger.plan import Plan, Sampler
from battery.ledger.store import Campaign

pytestmark = pytest.mark.model
ARM = Arm(name="A", backend="switchboard", model="smollm2-135m")
SPARE = 30_000_000
"""Bytes beyond what loading takes at most: enough for a short prompt, too few for a prefill of thousands of tokens."""


def loading_peak() -> int:
    """The most that loading takes, as a group without a tight limit counts it."""
    server = Server(ARM, load_backend(ARM.backend), None, 300, 10, memory_limit=8_000_000_000)
    with server:
        assert server.limit is not None and server.limit.group is not None
        group = server.limit.group
        file = "memory.peak" if group.version == 2 else "memory.max_usage_in_bytes"
        peak = group.number(file)
    if peak is None:
        pytest.skip(f"{group.label} tells no peak")
    return peak


def test_the_real_engine_is_killed_at_its_limit_and_the_rung_is_oom(
    tmp_path: Path, small_plan: Plan
) -> None:
    own_group().lift()
    most = (loading_peak() + SPARE) / 1e9
    limits = msgspec.structs.replace(
        small_plan.limits, memory_limit_gb=most, launch_s=60, request_s=120, stop_s=10
    )
    plan = msgspec.structs.replace(
        small_plan, ladder=(128, 3072, 4096), blocks=1, sentinel=False, limits=limits,
        sampler=Sampler(max_tokens=8, min_tokens=8),
    )  # fmt: skip
    Conductor(plan, [ARM], tmp_path / "c", None, 4821, lock=tmp_path / "battery.lock").run()
    fits, first, second = Campaign(tmp_path / "c").receipts()
    assert fits.outcome == "ok" and fits.memory.source == "engine"
    assert first.outcome == "oom" and first.evidence["exit_status"] == -signal.SIGKILL
    assert first.evidence["phase"] == "prefill" and first.trace.events == ()
    assert "own cgroup" in first.evidence["oom"]["text"]
    assert first.memory.lower_bound and first.memory.source == "cgroup"
    assert first.memory.peak == pytest.approx(most * 1e9, rel=0.02)
    assert second.outcome == "oom" and second.evidence == {"inherited_from": first.sequence}
    # what the engine counts of itself, and what the kernel counts of it
    told = {name: source.bytes for name, source in fits.memory.sources.items()}
    assert told["engine"] and told["cgroup"] and told["VmHWM"] and told["cgroup"] > told["engine"]
