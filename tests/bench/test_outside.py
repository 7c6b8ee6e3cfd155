"""A real `python -m battery run` that is stopped from outside at a random moment, and started again until it is done.

47 of the field's public defects: a killed parent leaves its server; 51: results lost by an interruption; 58: a wrapper
that reports success although what it ran crashed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from stopped import carrying, command, complete, nothing_left, parts, until

from battery.ledger.store import Campaign

ENGINE = Path(__file__).parents[1] / "fake_engine.py"
PLAN = """
ladder = [64]
blocks = 5
[sampler]
max_tokens = 12
min_tokens = 12
[gate]
wait_s = 5
max_busy = 1.0
max_pressure = 1.0
max_steal = 1.0
calibration = 5.0
[limits]
launch_s = 10
request_s = 10
stop_s = 3
"""
RUN = ("run", "--arms", "A", "--plan", "tiny", "--json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("arms", "plans"):
        (tmp_path / folder).mkdir()
    words = ["{python}", str(ENGINE), "--port", "{port}", "--model", "{model}"]
    words += ["--fault", "forks-worker", "--fault", "worker-away"]
    arm = f'backend = "command"\nmodel = "tiny"\ncommand = {json.dumps(words)}\n'
    (tmp_path / "arms" / "A.toml").write_text(arm)
    (tmp_path / "plans" / "tiny.toml").write_text(PLAN)
    return tmp_path


def start(root: Path) -> subprocess.Popen[str]:
    """A battery that is past its first instructions: from here on it answers for its exit code."""
    line, environment = command(root, *RUN)
    running = subprocess.Popen(
        line, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    status = Path(f"/proc/{running.pid}/status")
    if status.is_file():
        assert until(lambda: caught(status) >> (signal.SIGTERM - 1) & 1)
    else:
        time.sleep(0.5)
    return running


def caught(status: Path) -> int:
    """The signals that a process has handlers for."""
    return next(
        int(row.split()[1], 16) for row in status.read_text().splitlines() if "SigCgt" in row
    )


def done(running: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what was said on standard error."""
    _, told = running.communicate(timeout=60)
    return running.returncode, told


def left_clean(root: Path) -> None:
    """No process of the battery's is left, and no half file."""
    lock = str(root / "battery.lock")
    assert until(lambda: not carrying(lock)), carrying(lock)
    nothing_left(root, root / "battery.lock")


def test_47_51_stopped_anywhere_it_goes_on_and_is_complete(root: Path) -> None:
    for _ in range(4):
        if stopped_anywhere(root):
            return
        for name in ("receipts", "charts", "reports"):
            shutil.rmtree(root / name, ignore_errors=True)
    raise AssertionError("no signal of four attempts came before the end")


def stopped_anywhere(root: Path) -> bool:
    """One campaign stopped in every way; False where a signal came too late, which is then seen to be so."""
    chance = random.Random(seed := random.SystemRandom().randrange(10_000))
    stops = [[signal.SIGINT], [signal.SIGTERM], [signal.SIGKILL], [signal.SIGINT, signal.SIGINT]]
    chance.shuffle(stops)
    kept: dict[str, bytes] = {}
    killed: set[Path] = set()
    folder = root / "receipts" / "tiny-A"
    for numbers in stops:
        running = start(root)
        # a fast machine must not be done before the last of these
        until(lambda: len(Campaign(folder).paths()) >= 7, chance.random() * 2.5)
        for number in numbers:
            running.send_signal(number)
            time.sleep(chance.random() * 0.05)
        code, told = done(running)
        if code == 0:
            assert complete(folder) == {"ok": 10} and Campaign(folder).sealed(), (seed, told)
            return False
        assert code == (-9 if numbers == [signal.SIGKILL] else 130), (seed, told)
        assert "Traceback" not in told, (seed, told)
        assert until(lambda: not carrying(str(root / "battery.lock"))), seed
        if numbers != [signal.SIGKILL]:
            nothing_left(root, root / "battery.lock", killed)
        else:
            killed = parts(root)  # which a next start takes away, unless it is stopped before
        now = {path.name: path.read_bytes() for path in Campaign(folder).paths()}
        assert kept.items() <= now.items(), seed
        kept = now
        Campaign(folder).receipts()

    running = start(root)  # this one measures the rest, and is stopped while it publishes
    assert until((root / "charts" / "tiny-A").is_dir, 60)
    running.send_signal(chance.choice([signal.SIGINT, signal.SIGTERM]))
    code, told = done(running)
    if code == 0:
        return False
    assert code == 130 and "give the same command again" in told, (seed, told)
    left_clean(root)
    assert complete(folder) == {"ok": 10}, seed
    report, sealed = root / "reports" / "tiny-A.json", Campaign(folder).sealed()
    assert not (root / "reports" / "tiny-A.html").exists(), "it was stopped before it was done"
    if report.exists():
        json.loads(report.read_bytes())

    code, told = done(start(root))
    assert code == 0, (seed, told)
    left_clean(root)
    assert report.is_file() and Campaign(folder).sealed() == sealed
    assert [path.name for path in (root / "receipts").iterdir() if path.is_dir()] == ["tiny-A"]
    return True


def test_nobody_reads_what_it_says(root: Path) -> None:
    line, environment = command(root, *RUN[:-1])
    reading, writing = os.pipe()
    with subprocess.Popen(
        line, cwd=root, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True
    ) as running:
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        assert running.wait(30) == 1
        assert running.stderr is not None and running.stderr.read() == ""
    left_clean(root)


def test_58_a_crash_of_our_own_is_no_success(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "sitecustomize.py").write_text(
        "import battery.bench.measure as measure\n"
        "def fall(*_):\n    raise ZeroDivisionError('planted')\n"
        "measure.Measuring.cell = fall\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]))
    running = start(root)
    code, told = done(running)
    assert code == 1 and "ZeroDivisionError: planted" in told
    left_clean(root)
    events = Campaign(root / "receipts" / "tiny-A").journal()
    assert events[-1]["event"] == "failed" and events[-1]["reason"] == "planted"
