"""When a program's time is up: clocks that are set by hand, so that nothing here takes time."""

from __future__ import annotations

import os

import pytest

from battery.quality.sandbox.limits import Limits, kernel_seconds
from battery.quality.sandbox.times import LOOK_S, PATIENCE, SOON_S, Allowance, used

PROGRAM, JUDGE = 7, 8


class Machine:
    """A clock, and what each process has used, both moved by hand."""

    def __init__(self, cpu_s: float = 3.0, wall_s: float = 10.0) -> None:
        self.now, self.work = 100.0, {PROGRAM: 0.0, JUDGE: 0.0}
        self.allowance = Allowance(
            Limits(cpu_s=cpu_s, wall_s=wall_s), JUDGE, clock=lambda: self.now, count=self.work.get
        )
        self.allowance.program = PROGRAM

    def passes(self, seconds: float, share: float = 0.0, who: int = PROGRAM) -> str:
        """Look as often as one would while `who` gets this share of a core; what is said at the end."""
        said, until = "", self.now + seconds
        while not said and self.now < until:
            pause = self.allowance.pause()
            assert SOON_S <= pause <= LOOK_S
            self.now += pause
            self.work[who] += share * pause
            said = self.allowance.over()
        return said


def test_processor_time_is_counted_exactly() -> None:
    machine = Machine()
    assert machine.passes(2.4, share=1.0) == ""
    assert machine.passes(1.0, share=1.0) == "it used 3.0 s of processor time"
    assert machine.now - 100 == pytest.approx(3.0, abs=2 * SOON_S)


def test_who_sleeps_is_late_by_the_clock() -> None:
    machine = Machine()
    assert "clock" in machine.passes(60) and machine.now - 100 == pytest.approx(10, abs=LOOK_S)


@pytest.mark.parametrize("who", [PROGRAM, JUDGE], ids=["program", "judge"])
def test_who_works_on_a_full_machine_is_not_late(who: int) -> None:
    machine = Machine()
    assert machine.passes(25, share=0.09, who=who) == ""
    assert "clock" in machine.passes(60), "it stopped working"


def test_who_works_all_too_slowly_is_late_in_the_end() -> None:
    machine = Machine()
    assert "clock" in machine.passes(600, share=0.02)
    assert machine.now - 100 == pytest.approx(PATIENCE * 10, abs=2 * LOOK_S)


def test_time_in_which_nobody_looked_is_not_counted() -> None:
    machine = Machine()
    assert machine.passes(9.5, share=0.1) == ""
    machine.now += 3600
    assert machine.allowance.over() == "" and machine.passes(3, share=0.1) == ""
    assert "clock" in machine.passes(60)


def test_a_system_that_does_not_count_still_has_the_clock() -> None:
    blind = Machine()
    blind.allowance.program = None
    assert "clock" in blind.passes(60)


def test_what_a_process_used_is_told_from_outside() -> None:
    if used(os.getpid()) is None:
        assert kernel_seconds(3.0) > 3  # the kernel's own limit is what is left
        pytest.skip("this system does not tell what another process has used")
    before = used(os.getpid())
    while (now := used(os.getpid())) is not None and before is not None and now < before + 0.01:
        sum(range(1000))
    assert now is not None
    with_end = os.fork()
    if with_end == 0:
        os._exit(0)
    os.waitpid(with_end, 0)
    assert used(with_end) is None


def test_the_kernels_limit_leaves_room_for_its_way_of_counting() -> None:
    assert [kernel_seconds(cpu) for cpu in (0.3, 1, 3, 6, 96)] == [1, 2, 5, 8, 121]
