"""A judge goes from job to job, and what a job could leave in it ends with it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
from planted import RIGHT, SHORT, TEST, TIGHT, adding

from battery.quality.sandbox import kernel, pool
from battery.quality.sandbox.limits import MIB, Limits
from battery.quality.sandbox.pool import GraderError, Job, Outcome, Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(1) as made:
        if "limits of others" in made.missing:
            pytest.skip("where programs can name their judge, each has another")
        yield made


def outcome(
    sandbox: Sandbox, code: str = RIGHT, limits: Limits = TIGHT, test: str = TEST
) -> Outcome:
    ((_, found),) = sandbox.run([adding(code, limits, test)])
    return found


def checking(*lines: str) -> str:
    return "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)


def test_one_judge_serves_programs_that_pass_fail_and_end_themselves(sandbox: Sandbox) -> None:
    outcome(sandbox)
    (judge,) = sandbox.judges
    said = [
        outcome(sandbox, code).status
        for code in (
            RIGHT,
            "def add(x, y): return 0\n",
            "import os\nos._exit(3)\n",
            "def add(:\n",
            RIGHT,
        )
    ]
    assert said == ["passed", "failed", "failed", "syntax_error", "passed"]
    assert sandbox.judges == [judge]


LEAVING = {
    "tests that import": (RIGHT, TIGHT, checking("import math", "assert candidate(2, 3) == 5")),
    "tests that go deeper than names": (RIGHT, TIGHT, checking("().__class__", "assert candidate(2, 3) == 5")),
    "a program that is too slow": ("def add(x, y):\n    while True: pass\n", SHORT, TEST),
    "a result that is large": (
        f"def add(x, y): return x + y if x < 20 else b'x' * {200 * MIB}\n",
        TIGHT._replace(memory=600 * MIB), TEST,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LEAVING))
def test_what_may_leave_something_ends_with_its_judge(sandbox: Sandbox, name: str) -> None:
    outcome(sandbox)
    (before,) = sandbox.judges
    outcome(sandbox, *LEAVING[name])
    assert sandbox.judges == [] and not psutil.pid_exists(before)
    assert outcome(sandbox).status == "passed" and sandbox.judges != [before]


def test_names_of_tests_end_with_them(sandbox: Sandbox) -> None:
    sets = f"LEFT = 1\n{checking('global LATER', 'LATER = 2', 'assert candidate(2, 3) == 5')}"
    looks = checking("assert not {'LEFT', 'LATER'} & set(globals())", "assert candidate(2, 3) == 5")
    assert outcome(sandbox, test=sets).status == "passed"
    (judge,) = sandbox.judges
    assert outcome(sandbox, test=looks).status == "passed" and sandbox.judges == [judge]
    both = f"LEFT = 1\n{looks}"
    assert outcome(sandbox, test=both).status == "failed", "the look finds what is there"


def test_a_judge_that_is_gone_when_a_job_comes_is_no_answers_fault(sandbox: Sandbox) -> None:
    """Whether the server sees it before it hands the job over, at that, or as it waits for the verdict."""
    for _ in range(20):
        outcome(sandbox)
        (judge,) = sandbox.judges
        os.kill(judge, signal.SIGKILL)
        assert outcome(sandbox).status == "passed" and sandbox.judges not in ([], [judge])


def test_a_judge_that_ends_with_its_job_unread_is_replaced(sandbox: Sandbox) -> None:
    (server,) = sandbox.servers
    outcome(sandbox)
    (judge,) = sandbox.judges
    os.kill(judge, signal.SIGSTOP)
    try:
        killer = threading.Timer(0.3, os.kill, (judge, signal.SIGKILL))
        killer.start()
        assert outcome(sandbox).status == "passed", "it was killed while it held the job unread"
    finally:
        killer.join()
    assert sandbox.servers == [server] and sandbox.judges != [judge]


def test_a_judge_ends_with_its_server() -> None:
    with Sandbox(1) as made:
        outcome(made)
        (judge,), (server,) = made.judges, made.servers
        os.kill(server, signal.SIGKILL)
        until = time.monotonic() + 10
        while psutil.pid_exists(judge) and time.monotonic() < until:
            time.sleep(0.01)
        assert not psutil.pid_exists(judge)
        assert outcome(made).status == "passed", "the pool has started another"


def test_a_program_that_had_all_its_processor_time_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that waited is: others may have held it up."""
    whole, tries = pool._Server.judged, []

    def judged(server: pool._Server, job: Job) -> Outcome:
        tries.append(job.id)
        return whole(server, job)

    monkeypatch.setattr(pool._Server, "judged", judged)
    waits = "import time\ndef add(x, y):\n    time.sleep(9)\n"
    works = "def add(x, y):\n    while True: pass\n"
    asked = [adding(waits, SHORT, name="waits"), adding(works, SHORT, name="works")]
    with Sandbox(1) as one:
        found = {job.id: outcome for job, outcome in one.run(asked)}
    assert {job: (one.status, one.spent, one.retried) for job, one in found.items()} == {
        "waits": ("timeout", False, True), "works": ("timeout", True, False),
    }  # fmt: skip
    assert sorted(tries) == ["waits", "waits", "works"]


def test_a_judge_that_says_nothing_is_the_graders_fault(sandbox: Sandbox) -> None:
    with pytest.raises(GraderError, match="no verdict"):
        outcome(sandbox, test="check = None = 1")
    assert outcome(sandbox).status == "passed"


@pytest.mark.skipif(sys.platform != "linux", reason="clone3 is Linux's")
def test_a_fork_is_a_fork_and_the_kernels_refusal_an_error() -> None:
    heard, told = os.pipe()
    if (child := kernel.fork(0)) == 0:
        os.write(told, str(os.getppid()).encode())
        os._exit(7)
    assert os.read(heard, 99) == str(os.getpid()).encode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    os.close(heard)
    os.close(told)
    with pytest.raises(OSError, match="clone3: Invalid argument"):
        kernel.fork(1 << 63)
