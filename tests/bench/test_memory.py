"""Every source of a peak finds a known amount, forgets an earlier cell, and says why when it has nothing."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from growing import Grower, grower, own_group

from battery.bench import memory
from battery.bench.memory import nvml, proc
from battery.bench.memory.cgroup import CgroupPeak
from battery.bench.memory.darwin import Footprint
from battery.bench.memory.source import Source, Value, risen
from battery.ledger.receipt import Memory

AMOUNT = 300_000_000


@contextlib.contextmanager
def child_of(source: str) -> Iterator[tuple[Source, Grower]]:
    """A child and the source that watches it; skips where this machine lacks what the source needs."""
    if source == "phys_footprint" and sys.platform != "darwin":
        pytest.skip("phys_footprint is macOS's")
    if source in ("VmHWM", "pss", "rss") and sys.platform != "linux":
        pytest.skip(f"{source} is read under /proc")
    limit = own_group() if source == "cgroup" else None
    made: dict[str, Source] = {
        "VmHWM": proc.VmHwm(),
        "pss": proc.Sampled("pss"),
        "rss": proc.Sampled("rss"),
        "cgroup": CgroupPeak(limit.group if limit else None),
        "phys_footprint": Footprint(),
    }
    with grower(limit) as child:
        yield made[source], child


@pytest.mark.parametrize("name", ["VmHWM", "cgroup", "phys_footprint"])
def test_a_true_peak_finds_a_known_amount_that_is_freed_again(name: str) -> None:
    with child_of(name) as (source, child):
        assert source.how == "true peak"
        refusal = source.reset({child.pid})
        if refusal:
            pytest.skip(f"{name}: {refusal}")
        before = source.read().bytes
        child.tell(f"grow {AMOUNT}")
        child.tell("free")
        after = source.read().bytes
        assert before is not None and after is not None
        assert after - before == pytest.approx(AMOUNT, rel=0.03)
        # the next cell is a smaller one: the first one's peak must not stand in it
        source.reset({child.pid})
        child.tell(f"grow {AMOUNT // 3}")
        child.tell("free")
        smaller = source.read().bytes
        assert smaller is not None and smaller - before == pytest.approx(AMOUNT // 3, rel=0.06)


@pytest.mark.parametrize("name", ["pss", "rss"])
def test_a_sampled_size_finds_what_is_there_when_it_looks(name: str) -> None:
    with child_of(name) as (source, child):
        assert source.how == "sampled" and source.reset({child.pid}) is None
        before = source.read().bytes
        child.tell(f"grow {AMOUNT}")
        source.look()
        held = source.read().bytes
        child.tell("free")
        assert before is not None and held is not None
        assert held - before == pytest.approx(AMOUNT, rel=0.03)
        assert source.read().bytes == held


def test_several_processes_are_summed_and_called_an_upper_bound() -> None:
    with child_of("VmHWM") as (source, child):
        worker = child.tell("fork 50000000")
        source.reset({child.pid, worker})
        child.tell("grow 50000000")
        value = source.read()
        assert value.bytes is not None and value.bytes > 100_000_000
        assert "2 processes" in (value.note or "") and "upper bound" in (value.note or "")


def test_a_cgroup_counts_the_whole_tree() -> None:
    with child_of("cgroup") as (source, child):
        if source.reset({child.pid}):
            pytest.skip("its peak cannot be reset")
        before = source.read().bytes
        worker = child.tell("fork 50000000")
        child.tell("grow 50000000")
        after = source.read()
        assert isinstance(source, CgroupPeak) and worker in source._given.pids()  # type: ignore[union-attr]
        assert before is not None and after.bytes is not None
        assert after.bytes - before == pytest.approx(100_000_000, rel=0.03)
        assert "file cache" in (after.note or "")


def test_a_process_that_died_keeps_its_last_mark_as_a_lower_bound() -> None:
    with child_of("VmHWM") as (source, child):
        source.reset({child.pid})
        child.tell(f"grow {AMOUNT}")
        source.look()
        child.process.kill()
        child.end()
        value = source.read()
        assert value.bytes is not None and value.bytes > AMOUNT
        assert "last seen before it died" in (value.note or "")


def test_a_server_in_our_own_group_has_no_cgroup_peak() -> None:
    with grower() as child:
        source = CgroupPeak()
        assert source.reset({child.pid}) is None
        assert source.read().bytes is None and "own cgroup" in (source.read().reason or "")


def test_a_mark_that_cannot_be_reset_counts_only_where_it_rose() -> None:
    assert risen(10, 30, None, "gone") == Value(30)
    assert risen(10, None, None, "gone") == Value(None, "gone")
    rose = risen(10, 30, "read-only", "gone")
    assert rose.bytes == 30 and "it rose" in (rose.note or "")
    stayed = risen(30, 30, "read-only", "gone")
    assert stayed.bytes is None and "at most 30 bytes" in (stayed.reason or "")


def test_a_vmhwm_that_cannot_be_reset_is_not_an_earlier_cells(tmp_path: Path) -> None:
    # a kernel that refuses clear_refs, as in some containers
    here = tmp_path / "7"
    (here / "clear_refs").mkdir(parents=True)
    (here / "status").write_text("Name:\tengine\nVmHWM:\t    9000 kB\nVmRSS:\t    4000 kB\n")
    source = proc.VmHwm(tmp_path)
    assert source.reset({7}) is not None
    assert source.read().bytes is None and "did not rise" in (source.read().reason or "")
    (here / "status").write_text("Name:\tengine\nVmHWM:\t    9500 kB\nVmRSS:\t    4000 kB\n")
    assert source.read().bytes == 9500 * 1024


class Fixed:
    """A source that knows one thing."""

    how = "true peak"
    includes_file_cache = None

    def __init__(self, name: str, value: Value) -> None:
        self.name, self.value = name, value

    def reset(self, pids: Set[int]) -> str | None:
        return None

    def look(self) -> None:
        pass

    def read(self) -> Value:
        return self.value


def peaks_of(engine: str | None, *others: Any) -> Memory:
    counter = memory.EngineCounter(lambda: engine)
    peaks = memory.Peaks(counter, lambda: set(), every=[counter, *others])
    peaks.begin()
    with peaks:
        pass
    return peaks.end({"memory": {"peak": 5, "limit": 77, "source": "mlx"}})


def test_the_best_source_with_a_value_is_used_and_all_are_told() -> None:
    lower, low = Fixed("lower", Value(None, "not here")), Fixed("low", Value(3))
    told = peaks_of(None, lower, low)
    assert (told.peak, told.source, told.cap, told.cap_kind) == (5, "engine", 77, "engine")
    told = peaks_of("no such call", lower, low)
    assert (told.peak, told.source) == (3, "low")
    assert told.sources["engine"].bytes is None and "no such call" in (
        told.sources["engine"].reason or ""
    )
    assert told.sources["lower"].reason == "not here"
    nothing = peaks_of("no such call", lower)
    assert (nothing.peak, nothing.source) == (None, None)


def test_what_has_no_mark_of_its_own_is_looked_at_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = {"nvml": 0, "other": 0}
    seldom, enough = Fixed("other", Value(3)), threading.Event()
    gpu = nvml.PerProcess(Driver([{7: 100}], [0]))

    def look(name: str) -> None:
        looks[name] += 1
        if looks["other"] >= 2:
            enough.set()

    monkeypatch.setattr(seldom, "look", lambda: look("other"))
    monkeypatch.setattr(gpu, "look", lambda: look("nvml"))
    counter = memory.EngineCounter(lambda: None)
    with memory.Peaks(counter, lambda: {7}, every=[counter, gpu, seldom]):
        assert enough.wait(30)
    assert looks["nvml"] >= 4 * looks["other"]


def test_every_source_is_in_the_list_once_and_best_first() -> None:
    names = [source.name for source in memory.sources(memory.EngineCounter(lambda: None))]
    assert names == [
        "engine", "nvml", "nvml-device", "cgroup", "phys_footprint", "VmHWM", "pss", "rss",
    ]  # fmt: skip


class Driver:
    """What nvidia-ml-py tells, as a recorded answer: two devices, processes by id."""

    class NVMLError(Exception):
        pass

    def __init__(self, running: list[dict[int, int | None]], used: list[int]) -> None:
        self.running, self.used = running, used

    def nvmlDeviceGetCount(self) -> int:
        return len(self.used)

    def nvmlDeviceGetHandleByIndex(self, at: int) -> int:
        return at

    def nvmlDeviceGetMemoryInfo(self, at: int) -> SimpleNamespace:
        return SimpleNamespace(used=self.used[at])

    def nvmlDeviceGetComputeRunningProcesses(self, at: int) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.running[at].items()
        ]

    def nvmlDeviceGetGraphicsRunningProcesses(self, at: int) -> list[SimpleNamespace]:
        return self.nvmlDeviceGetComputeRunningProcesses(at)[:1]  # the same process, a second time


def test_nvml_sums_the_trees_processes_over_all_devices_and_keeps_the_largest() -> None:
    driver = Driver([{7: 100, 8: 20, 99: 5000}, {8: 3}], [0, 0])
    source = nvml.PerProcess(driver)
    source.reset({7, 8})
    assert source.read() == Value(123)
    driver.running[0][7] = 500
    source.look()
    driver.running[0][7] = 50
    assert source.read() == Value(523)
    source.reset({7, 8})
    assert source.read() == Value(73)


def test_nvml_as_one_h200_told_it() -> None:
    # recorded: a process that makes a context, allocates 3,000,000,000 bytes, and frees them
    driver = Driver([{}], [644_939_776])
    process, device = nvml.PerProcess(driver), nvml.PerDevice(nvml.used(driver), driver)
    driver.running[0], driver.used[0] = {425: 543_162_368}, 1_197_342_720
    process.reset({425})
    device.reset({425})
    before = process.read().bytes, device.read().bytes
    driver.running[0], driver.used[0] = {425: 3_544_186_880}, 4_198_367_232
    process.look()
    device.look()
    driver.running[0], driver.used[0] = {425: 543_162_368}, 1_197_342_720
    for source, at_first in zip((process, device), before, strict=True):
        peak = source.read().bytes
        assert at_first is not None and peak is not None
        assert peak - at_first == pytest.approx(3_000_000_000, rel=0.03)


def test_a_process_too_large_to_walk_has_no_pss(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("VmRSS:\t 90000000 kB\n")
    (tmp_path / "7" / "smaps_rollup").write_text("Pss:  89000000 kB\n")
    source = proc.Sampled("pss", tmp_path)
    source.reset({7})
    assert source.read().bytes is None and "takes long" in (source.read().reason or "")
    rss = proc.Sampled("rss", tmp_path)
    rss.reset({7})
    assert rss.read().bytes == 90_000_000 * 1024


def test_nvml_says_why_it_has_nothing() -> None:
    unknown = nvml.PerProcess(Driver([{7: None}], [0]))
    unknown.reset({7})
    assert unknown.read() == Value(None, "the driver does not tell memory per process")
    container = nvml.PerProcess(Driver([{4711: 100}], [0]))
    container.reset({7})
    assert "1 processes are, with other ids" in (container.read().reason or "")


def test_the_devices_rise_is_a_labelled_fallback_and_noise_is_none() -> None:
    driver = Driver([{}], [1_000_000_000])
    source = nvml.PerDevice(nvml.used(driver), driver)
    source.reset({7})
    assert source.read().bytes is None and "is not on them" in (source.read().reason or "")
    driver.used[0] = 3_500_000_000
    value = source.read()
    assert value.bytes == 2_500_000_000 and "nobody else" in (value.note or "")
    assert nvml.PerDevice(None, driver).read().bytes is None


def test_a_device_that_is_not_ours_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver([{}, {}], [1_000_000_000, 1_000_000_000])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    source = nvml.PerDevice(nvml.used(driver), driver)
    source.reset({7})
    driver.used = [70_000_000_000, 3_000_000_000]
    assert source.read().bytes == 2_000_000_000


def test_without_nvml_the_reason_is_told() -> None:
    source = nvml.PerProcess()
    source.reset({1})
    value = source.read()
    if nvml.library()[0] is None:
        assert value.bytes is None and value.reason == nvml.library()[1]
