"""Ctrl-C and SIGTERM at every stage, once and twice: nothing left behind, nothing lost, and the same command finishes.

51 of the field's public defects: results that are only written at the end; 52: an interruption that hangs.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from stopped import children, complete, nothing_left

from battery.bench import run
from battery.bench.launch import Server
from battery.bench.progress import Progress, Stopper
from battery.bench.run import Conductor
from battery.cli import main
from battery.interruption import Interrupted
from battery.ledger import store
from battery.ledger.arm import Arm
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign

STAGES = (
    "quiet", "first launch", "sizing", "header", "window", "launch", "warm-up", "gate", "request",
    "receipt", "cell", "stopping", "sealing", "unlocking",
)  # fmt: skip
BEFORE_HEADER = ("quiet", "first launch", "sizing")


class Presser(Progress):
    """Presses at one stage: at once, or a moment later from another thread; keeps what was announced."""

    def __init__(self, stage: str, number: signal.Signals, presses: int, delay_ms: int) -> None:
        self.stage, self.number, self.presses, self.delay_ms = stage, number, presses, delay_ms
        self.announced: list[Receipt] = []
        self.notes: list[str] = []
        self.launches = 0
        self.pressed = False
        self.timer: threading.Timer | None = None
        self.mutex, self.over = threading.RLock(), False
        self.leave = run.MachineLock.__exit__

    def at(self, stage: str) -> None:
        """Press if this is the stage."""
        if stage != self.stage or self.pressed:
            return
        self.pressed = True
        if self.delay_ms:
            self.timer = threading.Timer(self.delay_ms / 1e3, self.press)
            self.timer.start()
        else:
            self.press()

    def press(self) -> None:
        with self.mutex:
            for _ in range(0 if self.over else self.presses):
                os.kill(os.getpid(), self.number)
                time.sleep(0.02)  # two at the same moment are one for the kernel

    def unlock(self, *words: Any) -> None:
        """Let go of the lock; a press that comes later would find nobody who listens."""
        self.at("unlocking")
        self.leave(*words)
        with self.mutex:
            self.over = True

    def window(self, *_: object) -> None:
        self.at("window")

    def phase(self, cell: object, phase: str, detail: str) -> None:
        if phase == "launch":
            self.launches += 1
            phase = "launch" if self.launches > 1 else "first launch"
        if phase == "gate" and cell is None:
            phase = "quiet"
        self.at({"sizing prompts": "sizing"}.get(phase, phase))

    def cell(self, receipt: Receipt) -> None:
        self.announced.append(receipt)
        self.at("cell")

    def note(self, text: str) -> None:
        self.notes.append(text)

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which this presses at as it begins."""

        def inner(*words: Any, **options: Any) -> Any:
            self.at(stage)
            return function(*words, **options)

        return inner

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Come to the stages that no progress tells of."""
        patch.setattr(Campaign, "create", self.around("header", Campaign.create))
        patch.setattr(store, "write_once", self.around("receipt", store.write_once))
        patch.setattr(Server, "_end", self.around("stopping", Server._end))
        patch.setattr(Campaign, "seal", self.around("sealing", Campaign.seal))
        patch.setattr(run.MachineLock, "__exit__", lambda *words: self.unlock(*words))
        patch.setattr(import_module("battery.bench.sensors.glance"), "GLANCE_S", 0.02)


def conduct(folder: Path, plan: Plan, arms: Sequence[Arm], progress: Progress) -> None:
    Conductor(plan, arms, folder, progress, 4821, lock=folder.parent / "battery.lock").run()


@pytest.fixture(scope="module")
def engine() -> Arm:
    script = str(Path(__file__).parents[1] / "fake_engine.py")
    words = ["{python}", script, "--port", "{port}", "--model", "{model}", "--itl-ms", "1"]
    return Arm(name="A", backend="command", model="tiny", command=words)


presses = st.tuples(
    st.sampled_from(STAGES),
    st.sampled_from([signal.SIGINT, signal.SIGTERM]),
    st.integers(1, 3),
    st.sampled_from([0, 0, 5, 20, 60]),
)


def every_stage(test: Callable[..., None]) -> Callable[..., None]:
    """Each stage at least once, whatever hypothesis draws."""
    for place, stage in enumerate(STAGES):
        number = (signal.SIGINT, signal.SIGTERM)[place % 2]
        test = example(drawn=(stage, number, 1 + place % 2, 0))(test)
    return example(drawn=("request", signal.SIGINT, 2, 20))(test)


@pytest.fixture
def tiny(small_plan: Plan) -> Plan:
    """Two windows of one cell."""
    return msgspec.structs.replace(small_plan, ladder=(64,), sentinel=False)


@every_stage
@given(drawn=presses)
@settings(
    max_examples=2,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # the plan is frozen
)
def test_51_52_a_press_at_any_stage_loses_nothing_and_leaves_nothing(
    engine: Arm, tiny: Plan, drawn: tuple[str, signal.Signals, int, int]
) -> None:
    stage, number, times, delay_ms = drawn
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        folder = Path(place) / "c"
        presser = Presser(stage, number, times, delay_ms)
        presser.plant(patch)
        handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
        try:
            conduct(folder, tiny, [engine], presser)
        except KeyboardInterrupt as stopped:
            assert isinstance(stopped, Interrupted)
        else:
            assert delay_ms, "it was pressed and went on"
        finally:
            if presser.timer is not None:
                presser.timer.join()
        assert presser.pressed
        assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers
        assert children() == []
        nothing_left(Path(place), Path(place) / "battery.lock")
        campaign = Campaign(folder)
        assert (campaign.receipts() if campaign.exists else []) == presser.announced
        if stage in BEFORE_HEADER and not delay_ms:
            assert not folder.exists()
        again = Progress()
        conduct(folder, tiny, [engine], again)
        assert complete(folder) == {"ok": 2}
        assert campaign.receipts()[: len(presser.announced)] == presser.announced


def test_a_second_press_ends_a_long_answer_at_once(engine: Arm, tiny: Plan) -> None:
    arm = msgspec.structs.replace(
        engine, command=[*engine.command, "--fault", "stall:3", "--after", "5"]
    )
    with tempfile.TemporaryDirectory() as place:
        presser = Presser("request", signal.SIGINT, 2, 100)
        with pytest.raises(Interrupted):
            conduct(Path(place) / "c", tiny, [arm], presser)  # the deadline is ten seconds away
        assert presser.announced == [] and len(presser.notes) == 1
        assert "stopping after the cell in hand" in presser.notes[0]
        nothing_left(Path(place), Path(place) / "battery.lock")


def test_a_cell_in_which_the_battery_was_suspended_is_no_measurement(
    engine: Arm, tiny: Plan, tmp_path: Path
) -> None:
    """Ctrl-Z: the answer piles up in the socket, and its times are those of the reading."""
    slow = msgspec.structs.replace(engine, command=[*engine.command[:-1], "16"])
    suspend = (
        "import os, signal, time\ninput()\nos.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(0.1)\n"
        "os.kill(os.getppid(), signal.SIGCONT)\n"
    )

    class Suspending(Progress):
        def __init__(self, child: subprocess.Popen[bytes]) -> None:
            self.child, self.timer = child, threading.Timer(0.06, self.suspend)

        def phase(self, cell: object, phase: str, detail: str) -> None:
            if phase == "request" and self.timer.ident is None:
                self.timer.start()

        def suspend(self) -> None:
            assert self.child.stdin is not None
            self.child.stdin.write(b"\n")
            self.child.stdin.flush()

    with subprocess.Popen([sys.executable, "-c", suspend], stdin=subprocess.PIPE) as child:
        conduct(tmp_path / "c", tiny, [slow], Suspending(child))
    first, *rest = Campaign(tmp_path / "c").receipts()
    assert first.outcome == "error" and "battery was suspended" in (first.reason or "")
    assert first.breach == (first.reason,) and [one.attempt for one in rest] == [2, 1]
    assert complete(tmp_path / "c") == {"ok": 2}, "its block was measured again"


def test_a_press_in_the_midst_of_a_line_is_told_later() -> None:
    class Interrupting(io.RawIOBase):
        """A terminal at whose write the user presses Ctrl-C."""

        def __init__(self) -> None:
            self.told = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            if not self.told:
                os.kill(os.getpid(), signal.SIGINT)
            self.told += bytes(data)
            return len(data)

    raw = Interrupting()
    out = io.BufferedWriter(raw)

    def say(text: str) -> None:
        out.write(text.encode() + b"\n")
        out.flush()

    with pytest.raises(Interrupted), Stopper(say) as stopper:
        say("a line")
        assert stopper.asked and raw.told == b"a line\n"
    assert raw.told.startswith(b"a line\nstopping after the cell in hand")


def test_58_an_error_is_never_an_exit_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Exception):
        pass

    def fall(*_: object) -> None:
        raise Broken

    monkeypatch.setattr("battery.cli.measuring.chosen_arms", fall)
    with pytest.raises(Broken):  # Python makes 1 of it, with its traceback
        main(["run"])
