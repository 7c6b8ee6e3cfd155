"""The sampling process: one clock, samples around the cell, and nothing lost with it but its samples."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from machines import plant, write

from battery.bench import sensors
from battery.bench.judge import breach
from battery.ledger.plan import Gate


def test_the_shortest_cell_has_a_sample_before_and_one_behind_on_our_own_clock() -> None:
    with sensors.Sampler() as sampler:
        with sampler.during(os.getpid()) as taken:
            sent = time.perf_counter_ns()
        after = time.perf_counter_ns()
    first, last = taken.readings(sent)
    assert first.at_s <= 0 <= last.at_s <= (after - sent) / 1e9
    assert first.rss_bytes and first.available_bytes and taken.why is None


def test_a_longer_cell_is_sampled_twice_a_second_and_the_next_one_begins_anew(
    tmp_path: Path,
) -> None:
    root = plant("laptop", tmp_path)
    with sensors.Sampler(root, every_s=0.05) as sampler:
        with sampler.during(os.getpid()) as taken:
            time.sleep(1.0)
            write(root, "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "15")
        pid = sampler.pid
        with sampler.during(os.getpid()) as again:
            pass
        assert sampler.pid == pid, "one process for the whole window"
    found = taken.readings(0)
    assert len(found) > 3
    counts = [reading.counters["cpu.core_throttle"] for reading in found]
    assert counts[0] == 30 and counts[-1] == 33
    assert len(again.readings(0)) == 2


def test_it_is_not_in_the_servers_tree_and_ends_with_its_window() -> None:
    with sensors.Sampler() as sampler:
        process = psutil.Process(sampler.pid)
        assert process.ppid() == os.getpid()
    assert not process.is_running()
    assert sampler.pid is None


def test_a_sampler_that_died_costs_its_samples_with_a_reason_and_the_next_cell_has_a_new_one() -> (
    None
):
    with sensors.Sampler() as sampler:
        with sampler.during(os.getpid()) as taken:
            os.kill(sampler.pid or 0, signal.SIGKILL)
        assert taken.readings(0) == () and taken.why
        assert "no samples" in taken.why and "-9" in taken.why
        with sampler.during(os.getpid()) as again:
            pass
        assert len(again.readings(0)) == 2 and again.why is None


def test_a_sampler_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors.sampling, "_END_S", 0.2)
    with sensors.Sampler() as sampler:
        with sampler.during(os.getpid()) as taken:
            os.kill(sampler.pid or 0, signal.SIGSTOP)
        assert taken.why == "no samples: the sampling process did not answer in time"


def test_a_sampler_that_cannot_start_costs_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    sampler = sensors.Sampler()
    with sampler.during(os.getpid()) as taken:
        pass
    assert taken.why and taken.readings(0) == ()


def test_it_dies_with_the_process_that_measures() -> None:
    script = (
        "import os, sys, time\nfrom battery.bench import sensors\n"
        "one = sensors.Sampler(); one.start()\n"
        "print(one.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as ours:
        assert ours.stdout is not None
        sampler = psutil.Process(int(ours.stdout.readline()))
        ours.kill()
    _, alive = psutil.wait_procs([sampler], timeout=10)
    assert not alive


def test_the_process_loads_neither_numpy_nor_msgspec() -> None:
    code = (
        "import sys, battery.bench.sensors.sampler\n"
        "print([m for m in ('numpy', 'msgspec', 'pandas', 'httpcore') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_work_of_the_server_and_of_the_measuring_process_is_not_foreign() -> None:
    busy = "import time\nend = time.monotonic() + 1.2\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", busy]) as server:
        with sensors.Sampler() as sampler, sampler.during(server.pid) as taken:
            time.sleep(1.0)
        with sensors.Sampler() as sampler, sampler.during(os.getpid()) as other:
            pass
    told = [one for one in taken.readings(0) if one.busy and one.foreign is not None]
    assert told and all(one.foreign < one.busy for one in told if one.at_s < 1.0), (  # type: ignore[operator]
        "the server's own loop was counted as a stranger's"
    )
    assert len(other.readings(0)) == 2


def test_a_stranger_that_takes_the_processors_is_a_breach_and_the_servers_own_work_is_none() -> (
    None
):
    spin = "while True: pass"
    gate = Gate(max_busy=0.3, max_steal=None, need_steady=False, need_ac_power=False)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as server:
        strangers = [
            subprocess.Popen([sys.executable, "-c", spin]) for _ in range(psutil.cpu_count() or 1)
        ]
        with sensors.Sampler() as sampler, sampler.during(server.pid) as taken:
            time.sleep(1.6)
        for stranger in strangers:
            stranger.kill()
            stranger.wait()
        server.kill()
    told = breach.judge(taken.readings(0), gate)
    assert len(told) == 1 and told[0].startswith("other processes used"), told
