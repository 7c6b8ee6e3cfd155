"""The kernel's word that it killed for memory: which counts and which lines are evidence, and which are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from growing import recorded

from battery.bench.memory.kills import Kills, machine_kills

ABORTED, KILLED, SHELL_KILLED = -6, -9, 137


def quiet(tmp_path: Path, kills: int, log: str = "") -> tuple[Path, Path]:
    """(kernel log, vmstat) as files."""
    (tmp_path / "vmstat").write_text(f"nr_free_pages 5\noom_kill {kills}\n")
    (tmp_path / "kmsg").write_text(log)
    return tmp_path / "kmsg", tmp_path / "vmstat"


@pytest.mark.parametrize(
    ("status", "before", "after", "yes"),
    [
        (KILLED, 3, 4, True),
        (SHELL_KILLED, 3, 4, True),
        (KILLED, 3, 3, False),
        (-15, 3, 4, False),
        (1, 3, 4, False),
        (124, 3, 4, False),
        (None, 3, 4, False),
    ],
)
def test_the_machines_count_needs_the_signal_too(
    tmp_path: Path, status: int | None, before: int, after: int, yes: bool
) -> None:
    kmsg, vmstat = quiet(tmp_path, before)
    kills = Kills(None, kmsg, vmstat, lambda: "")
    kills.mark({7})
    quiet(tmp_path, after)
    word = kills.word(status)
    assert (word is not None) is yes
    if word is not None:
        assert word.where == "the kernel's /proc/vmstat" and "from 3 to 4" in word.text
    kills.close()


def test_a_count_that_is_not_told_is_no_evidence(tmp_path: Path) -> None:
    kills = Kills(None, tmp_path / "none", tmp_path / "none", lambda: "")
    kills.mark({7})
    assert kills.word(KILLED) is None and machine_kills(tmp_path / "none") is None


def test_the_count_of_the_servers_own_group_comes_first(tmp_path: Path) -> None:
    group = recorded(tmp_path / "g", 1, {"memory.oom_control": "oom_kill 1\n"})
    kmsg, vmstat = quiet(tmp_path, 3)
    kills = Kills(group, kmsg, vmstat, lambda: "")
    kills.mark({7})
    quiet(tmp_path, 4)
    # the machine killed somebody, but nobody of this group
    assert kills.word(KILLED) is None
    recorded(tmp_path / "g", 1, {"memory.oom_control": "oom_kill 2\n"})
    word = kills.word(KILLED)
    assert word is not None and word.where == "the kernel's cgroup v1"
    # a worker of ours was killed, and the server itself lives: the group's own count is enough
    assert kills.word(None) is not None
    kills.close()


def test_a_container_is_asked_before_the_whole_machine(tmp_path: Path) -> None:
    around = recorded(tmp_path / "c", 2, {"memory.events": "oom 0\noom_kill 0\n"})
    kmsg, vmstat = quiet(tmp_path, 3)
    kills = Kills(None, kmsg, vmstat, lambda: "", around)
    kills.mark({7})
    recorded(tmp_path / "c", 2, {"memory.events": "oom 1\noom_kill 1\n"})
    word = kills.word(KILLED)
    assert word is not None and "cgroup around battery went from 0 to 1" in word.text
    assert kills.word(1) is None
    kills.close()


LINE = (
    "3,1207,25813807,-;Memory cgroup out of memory: Killed process {} (python3) total-vm:902056kB, anon-rss:8192kB,"
    " file-rss:7464kB, shmem-rss:388864kB, UID:0 pgtables:848kB oom_score_adj:0\n"
)


@pytest.mark.parametrize(("pid", "yes"), [(7, True), (8, True), (77, False)])
def test_the_kernels_log_counts_where_it_names_a_process_of_ours(
    tmp_path: Path, pid: int, yes: bool
) -> None:
    kmsg, vmstat = quiet(tmp_path, 3, LINE.format(7))  # an old line, from before the mark
    kills = Kills(None, kmsg, vmstat, lambda: "")
    kills.mark({7})
    kills.mark({7, 8})
    assert kills.word(KILLED) is None
    with kmsg.open("a") as log:
        log.write(LINE.format(pid))
    word = kills.word(KILLED)
    assert (word is not None) is yes
    if word is not None:
        assert word.where == "the kernel's log" and f"process {pid}" in word.text
    kills.close()


@pytest.mark.parametrize(
    ("line", "yes"),
    [
        ("kernel: memorystatus: killing_specific_process pid 7 [python3.12] (vm-pageshortage 3) - memorystatus_availab"
         "le_pages: 8123", True),
        ("kernel[0:1cd] [com.apple.xnu:memorystatus] memorystatus: killing_top_process pid 7 [python3.12] jetsam_reason"
         "->osr_code: 2", True),
        ("kernel: memorystatus: killing largest compressed process python3.12 [7] 198602 MB", True),
        ("kernel: memorystatus: killing_idle_process pid 386 [wallpaperexportd] jetsam_reason->osr_code: 9", False),
        ("kernel: memorystatus: killing largest compressed process python3.12 [77] 198602 MB", False),
        ("[anon<python>(501):7] is not RunningBoard jetsam managed.", False),
    ],
)  # fmt: skip
def test_jetsams_lines_count_where_they_name_a_process_of_ours(
    tmp_path: Path, line: str, yes: bool
) -> None:
    kills = Kills(None, tmp_path / "none", tmp_path / "none", lambda: f"Timestamp\n{line}\n")
    kills.mark({7})
    assert (kills.word(KILLED) is not None) is yes
    assert kills.word(ABORTED) is None
