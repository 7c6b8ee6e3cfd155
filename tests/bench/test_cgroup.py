"""Control groups: found, made, limited, counted, removed; real ones where this machine lets us, else recorded ones."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from growing import grower, own_group, recorded

from battery.bench import leash
from battery.bench.memory import cgroup, limit
from battery.bench.memory.cgroup import Cgroup, CgroupPeak
from battery.bench.memory.kills import Kills
from battery.ledger.errors import PlanError

V1_MOUNTS = (
    "25 1 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "31 1 0:27 / {place} rw,relatime - cgroup cgroup rw,memory\n"
)
V2_MOUNTS = "29 23 0:26 {root} {place} rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def proc_of(folder: Path, text: str) -> Path:
    (folder / "proc" / "7").mkdir(parents=True)
    (folder / "proc" / "7" / "cgroup").write_text(text)
    return folder / "proc"


def mounts_of(folder: Path, text: str) -> Path:
    (folder / "mountinfo").write_text(text)
    return folder / "mountinfo"


def test_version_1_is_found_by_its_memory_controller(tmp_path: Path) -> None:
    place = tmp_path / "memory"
    recorded(place / "user" / "7", 1, {"memory.stat": "cache 0\n"})
    proc = proc_of(tmp_path, "9:name=systemd:/\n4:memory:/user/7\n0::/else\n")
    found = cgroup.of(7, proc, mounts_of(tmp_path, V1_MOUNTS.format(place=place)))
    assert found is not None and (found.version, found.path) == (1, place / "user" / "7")


@pytest.mark.parametrize(
    ("root", "told", "inside"),
    [
        ("/", "/user.slice/engine.scope", "user.slice/engine.scope"),
        (
            "/docker/ab",
            "/docker/ab/engine",
            "engine",
        ),  # a container that shares the host's namespace
        ("/", "/", ""),
    ],
)
def test_version_2_is_found_beneath_its_mount(
    tmp_path: Path, root: str, told: str, inside: str
) -> None:
    place = tmp_path / "unified"
    recorded(place / inside, 2, {"memory.current": "4096\n"})
    proc = proc_of(tmp_path, f"0::{told}\n")
    mounts = mounts_of(tmp_path, V2_MOUNTS.format(root=root, place=place))
    found = cgroup.of(7, proc, mounts)
    assert found is not None and (found.version, found.path) == (2, place / inside)


def test_without_a_memory_controller_there_is_none(tmp_path: Path) -> None:
    proc = proc_of(tmp_path, "0::/somewhere\n")
    mounts = mounts_of(tmp_path, V2_MOUNTS.format(root="/", place=tmp_path / "unified"))
    assert cgroup.of(7, proc, mounts) is None
    assert cgroup.of(8, proc, mounts) is None


# as Linux 6.18 wrote it after it had killed one process at memory.max
EVENTS = "low 0\nhigh 0\nmax 56\noom 1\noom_kill 1\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"


def test_what_the_files_of_both_versions_say(tmp_path: Path) -> None:
    two = recorded(
        tmp_path / "2", 2, {"memory.events": EVENTS, "memory.stat": "anon 7\nfile 500\n"}
    )
    one = recorded(
        tmp_path / "1", 1, {"memory.oom_control": CONTROL, "memory.stat": "total_cache 500\n"}
    )
    for group in (one, two):
        assert group.kills() == 1 and group.file_cache() == 500
    for group in (one, two):
        group.limit(1_000_000)
        assert group.limited_to() == 1_000_000
    assert (two.path / "memory.max").read_text() == "1000000"
    assert (two.path / "memory.swap.max").read_text() == "0"
    assert (one.path / "memory.memsw.limit_in_bytes").read_text() == "1000000"
    old = recorded(tmp_path / "old", 1, {"memory.oom_control": "oom_kill_disable 0\n"})
    assert old.kills() is None


def test_a_group_of_version_2_is_made_where_children_have_memory(tmp_path: Path) -> None:
    # the common case: battery's own group holds processes and gives its children nothing; its parent does
    parent = recorded(
        tmp_path / "slice",
        2,
        {"cgroup.subtree_control": "cpu memory pids\n", "memory.current": "1\n"},
    )
    own = recorded(
        parent.path / "scope", 2, {"cgroup.subtree_control": "", "memory.current": "1\n"}
    )
    made, why = cgroup.make("8080", own)
    assert why is None and made is not None
    assert made.path == parent.path / f"battery-{os.getpid()}-8080"
    (parent.path / "cgroup.subtree_control").write_text("cpu\n")
    made, why = cgroup.make("8081", own)
    assert made is None and "no memory controller" in (why or "")


def test_a_peak_of_version_2_is_read_through_the_file_that_was_reset(tmp_path: Path) -> None:
    group = recorded(tmp_path / "g", 2, {"memory.peak": "9000000000\n", "memory.stat": "file 3\n"})
    source = CgroupPeak(group)
    assert source.reset({7}) is None
    (group.path / "memory.peak").write_text(
        "4000000000\n"
    )  # what the kernel answers behind a reset
    value = source.read()
    assert value.bytes == 4_000_000_000 and "cgroup v2" in (value.note or "")
    source.close()


def test_a_peak_of_version_2_before_linux_6_12_is_the_cells_only_if_it_rose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = recorded(tmp_path / "g", 2, {"memory.peak": "9000000000\n"})
    original = Path.open

    def read_only(self: Path, mode: str = "r", **rest: object) -> object:
        if "+" in mode:
            raise PermissionError(13, "Permission denied")
        return original(self, mode, **rest)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", read_only)
    source = CgroupPeak(group)
    assert "from Linux 6.12" in (source.reset({7}) or "")
    assert source.read().bytes is None and "at most 9000000000" in (source.read().reason or "")
    with original(group.path / "memory.peak", "w") as file:
        file.write("9500000000\n")
    assert source.read().bytes == 9_500_000_000


def test_a_real_group_kills_at_its_limit_and_its_own_count_is_the_evidence() -> None:
    own = own_group(120_000_000)
    assert own.group is not None
    kills = Kills(own.group)
    with grower(own) as child:
        own.confirm(child.pid)
        kills.mark({child.pid})
        assert child.tell("grow 40000000") == child.pid
        assert kills.word(None) is None
        assert child.tell("grow 200000000") == 0
        status = child.end()
        assert status == -signal.SIGKILL
        word = kills.word(status)
        assert word is not None and "went from 0 to 1" in word.text
        assert word.where == f"the kernel's {own.kind}"
        peak = own.group.number(
            "memory.max_usage_in_bytes" if own.group.version == 1 else "memory.peak"
        )
        assert peak is not None and 100_000_000 < peak <= 120_000_000
    kills.close()
    assert not own.group.path.exists()


def test_a_worker_that_the_kernel_kills_is_evidence_though_the_server_lives() -> None:
    own = own_group(120_000_000)
    with grower(own) as child:
        kills = Kills(own.group)
        kills.mark({child.pid})
        child.tell("fork 20000000")
        assert child.process.stdin is not None
        child.process.stdin.write("fork 300000000\n")
        child.process.stdin.flush()
        deadline = time.monotonic() + 20
        while (word := kills.word(None)) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert word is not None and "own cgroup" in word.text
        kills.close()


def test_groups_that_a_dead_battery_left_are_swept_and_others_left_alone() -> None:
    own = own_group()
    assert own.group is not None
    parent = own.group.path.parent
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    stale = parent / f"battery-{int(gone.stdout)}-1"
    foreign = parent / "battery-mine-1"
    stale.mkdir()
    foreign.mkdir()
    try:
        second = own_group()
        assert second.lift() is None
        assert not stale.exists() and own.group.path.exists() and foreign.exists()
    finally:
        foreign.rmdir()
        assert own.lift() is None


def test_the_leash_empties_and_removes_a_group() -> None:
    own = own_group()
    assert own.group is not None
    with grower(own) as child:
        worker = child.tell("fork 1000000")
        leash.clear(own.group.path)
        assert not own.group.path.exists()
        assert child.end() == -signal.SIGKILL
        with contextlib.suppress(psutil.NoSuchProcess):
            assert psutil.Process(worker).status() == psutil.STATUS_ZOMBIE


def test_where_no_group_can_be_made_the_address_space_is_limited_and_the_reason_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cgroup, "make", lambda _name: (None, "read-only file system"))
    if sys.platform != "linux":
        with pytest.raises(PlanError, match="no limit can be put on a server"):
            limit.impose(500_000_000, "x")
        return
    put = limit.impose(500_000_000, "x")
    assert put.told == "RLIMIT_AS (no cgroup: read-only file system)"
    with grower(put) as child:
        put.confirm(child.pid)
        assert child.tell("grow 600000000") == 0
        assert child.process.stderr is not None
        assert "Cannot allocate memory" in child.process.stderr.read()


def test_a_limit_that_cannot_be_set_stops_the_server_and_says_so(tmp_path: Path) -> None:
    gone = limit.Limit("cgroup v1", 1, Cgroup(tmp_path / "gone", 1))
    done = subprocess.run(gone.wrap(["true"]), capture_output=True, text=True)
    assert done.returncode == 120 and "cannot be limited" in done.stderr
    plain = limit.Limit("RLIMIT_AS", 1_000_000_000)
    missing = subprocess.run(plain.wrap(["no-such-engine"]), capture_output=True, text=True)
    assert missing.returncode == 127 and "cannot start no-such-engine" in missing.stderr
