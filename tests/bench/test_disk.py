"""Full and read-only disks, half files of a crash, locks: a clear word, nothing lost, and the same command goes on.

50 and 51 of the field's public defects: one bad cell ends everything; an interrupted run cannot be read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
from stopped import children, command, complete, nothing_left

from battery.bench.lock import MachineLock
from battery.bench.progress import Progress
from battery.bench.run import Conductor
from battery.interruption import Interrupted
from battery.ledger import store
from battery.ledger.arm import Arm
from battery.ledger.disk import PART
from battery.ledger.errors import Busy, DiskError, LaunchError, ReceiptError
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign

Make = Callable[..., Arm]


class Heard(Progress):
    """Keeps notes and announced receipts; calls `then` after one receipt."""

    def __init__(self, after: int = 0, then: Callable[[], None] = lambda: None) -> None:
        self.notes: list[str] = []
        self.announced: list[Receipt] = []
        self.after, self.then = after, then

    def cell(self, receipt: Receipt) -> None:
        self.announced.append(receipt)
        if len(self.announced) == self.after:
            self.then()

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def plan(small_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(import_module("battery.bench.sensors.glance"), "GLANCE_S", 0.02)
    return msgspec.structs.replace(small_plan, sentinel=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.name != "posix" or sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small file system")
    line = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    refused = subprocess.run(line, capture_output=True, text=True).stderr
    if refused:
        pytest.skip(f"no small file system here: {refused.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def conduct(folder: Path, plan: Plan, arm: Arm, progress: Progress | None = None) -> None:
    lock = folder.parent / "battery.lock"
    Conductor(plan, [arm], folder, progress, 4821, lock=lock).run()


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def fill(place: Path) -> None:
    """Leave no room."""
    with contextlib.suppress(OSError), (place / "full").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("receipts", [0, 1, 3])
def test_a_disk_that_fills_up_is_told_and_loses_nothing(
    small_disk: Path, plan: Plan, fake_arm: Make, receipts: int
) -> None:
    folder = small_disk / "c"
    phases: list[str] = []
    heard = Heard(receipts, lambda: fill(small_disk))
    heard.phase = lambda _cell, phase, _detail: phases.append(phase)  # type: ignore[method-assign]
    if not receipts:
        fill(small_disk)
    with pytest.raises(
        DiskError, match=r"cannot be written \(No space left on device\); make room"
    ):
        conduct(folder, plan, fake_arm("A"), heard)
    assert children() == []
    nothing_left(small_disk, small_disk / "battery.lock")
    (small_disk / "full").unlink()
    assert ("launch" in phases) == bool(receipts), "a full disk is found before any arm is tried"
    campaign = Campaign(folder)
    assert (campaign.receipts() if campaign.exists else []) == heard.announced
    assert len(heard.announced) == receipts
    conduct(folder, plan, fake_arm("A"))
    assert complete(folder) == {"ok": 4}
    assert campaign.receipts()[:receipts] == heard.announced


def test_a_full_disk_is_exit_9_in_one_line(small_disk: Path, fake_arm: Make) -> None:
    root = small_disk
    for name in ("arms", "plans"):
        (root / name).mkdir()
    words = msgspec.json.encode(fake_arm("A").command).decode()
    (root / "arms" / "A.toml").write_text(
        f'backend = "command"\nmodel = "tiny"\ncommand = {words}\n'
    )
    (root / "plans" / "t.toml").write_text(
        "ladder = [64]\nblocks = 1\n[sampler]\nmax_tokens = 12\nmin_tokens = 12\n"
        "[gate]\nmax_busy = 1.0\nmax_pressure = 1.0\nmax_steal = 1.0\ncalibration = 9.0\n"
    )
    fill(root)
    line, environment = command(root, "run", "--arms", "A", "--plan", "t", "--json")
    done = subprocess.run(line, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    assert len(done.stderr.splitlines()) == 1 and "No space left on device" in done.stderr
    assert not list(root.rglob(f"{PART}*"))


def test_a_read_only_folder_is_told(small_disk: Path, plan: Plan, fake_arm: Make) -> None:
    (small_disk / "battery.lock").touch()
    campaign, heard = Campaign(small_disk / "c"), Heard(1, press)
    lock = small_disk.parent / "battery.lock"
    with pytest.raises(Interrupted):
        Conductor(plan, [fake_arm("A")], campaign.folder, heard, 4821, lock=lock).run()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(
        DiskError, match=r"campaigns\.jsonl: cannot be written \(Read-only file sys"
    ):
        Conductor(plan, [fake_arm("A")], campaign.folder, None, 4821, lock=lock).run()
    assert campaign.receipts() == heard.announced
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    Conductor(plan, [fake_arm("A")], campaign.folder, None, 4821, lock=lock).run()
    assert complete(campaign.folder) == {"ok": 4}


def test_what_a_killed_battery_left_on_its_way_goes_at_the_next_start(
    tmp_path: Path, plan: Plan, fake_arm: Make
) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / f"{PART}before").write_bytes(b'{"schema": 1,')
    with pytest.raises(Interrupted):
        conduct(folder, plan, fake_arm("A"), Heard(1, press))
    (folder / f"{PART}again").write_bytes(b"")
    conduct(folder, plan, fake_arm("A"))
    nothing_left(tmp_path, tmp_path / "battery.lock")
    assert complete(folder) == {"ok": 4}


@pytest.mark.parametrize("damage", ["nothing", "half", "zeros"])
def test_a_torn_receipt_is_set_aside_and_its_block_is_measured_again(
    tmp_path: Path, plan: Plan, fake_arm: Make, damage: str
) -> None:
    folder = tmp_path / "c"
    with pytest.raises(Interrupted):
        conduct(folder, plan, fake_arm("A"), Heard(3, press))
    campaign = Campaign(folder)
    victim = campaign.paths()[1 if damage == "half" else 2]
    whole = victim.read_bytes()
    torn = {"nothing": b"", "half": whole[: len(whole) // 2], "zeros": bytes(len(whole))}[damage]
    victim.chmod(0o644)
    victim.write_bytes(torn)
    good, complaints = campaign.readable()
    assert len(good) == 2 and victim.name in complaints[0]

    heard = Heard()
    conduct(folder, plan, fake_arm("A"), heard)
    assert complete(folder) == {"ok": 4}
    assert (folder / store.DAMAGED / victim.name).read_bytes() == torn
    assert victim.name in heard.notes[0] and "its block is measured again" in heard.notes[0]
    (event,) = [line for line in campaign.journal() if line["event"] == "damaged"]
    assert event["file"] == victim.name and event["reason"]
    kept = [receipt for receipt in campaign.receipts() if receipt.sequence <= 3]
    assert kept == good, "a number is given once, even if its receipt is lost"
    assert campaign.receipts()[2].sequence == 4


def test_a_receipt_of_another_shape_is_not_torn(tmp_path: Path, plan: Plan, fake_arm: Make) -> None:
    folder = tmp_path / "c"
    with pytest.raises(Interrupted):
        conduct(folder, plan, fake_arm("A"), Heard(1, press))
    (victim,) = Campaign(folder).paths()
    victim.chmod(0o644)
    newer = victim.read_text().replace("{\n", '{\n"from_the_future": 1,\n', 1)
    victim.write_text(newer)
    with pytest.raises(ReceiptError, match=rf"{victim.name}.*of another shape.*from_the_future"):
        conduct(folder, plan, fake_arm("A"))
    assert victim.read_text() == newer


@pytest.mark.parametrize(
    ("name", "lost", "words"),
    [
        (store.HEADER, True, "no such file, but there are receipts; restore it"),
        (store.HEADER, False, "cannot be read .*without it nobody knows what was measured"),
        (store.PROMPTS, True, "no such file; restore it .*or start a new campaign"),
        (store.PROMPTS, False, "cannot be read .*or start a new campaign"),
    ],
)
def test_a_lost_or_torn_file_of_a_campaign_is_named_with_the_remedy(
    tmp_path: Path, plan: Plan, fake_arm: Make, name: str, lost: bool, words: str
) -> None:
    folder = tmp_path / "c"
    with pytest.raises(Interrupted):
        conduct(folder, plan, fake_arm("A"), Heard(1, press))
    victim = folder / name
    whole = victim.read_bytes()
    victim.unlink()
    if not lost:
        victim.write_bytes(whole[:50])
    with pytest.raises(ReceiptError, match=f"{name}: {words}"):
        conduct(folder, plan, fake_arm("A"))
    victim.chmod(0o644) if victim.exists() else None
    victim.write_bytes(whole)
    conduct(folder, plan, fake_arm("A"))
    assert complete(folder) == {"ok": 4}


def test_a_torn_seal_is_named_and_made_again_once_it_is_deleted(
    tmp_path: Path, plan: Plan, fake_arm: Make
) -> None:
    folder = tmp_path / "c"
    conduct(folder, plan, fake_arm("A"))
    seal = folder / store.SEAL
    seal.write_bytes(seal.read_bytes()[:40])
    with pytest.raises(ReceiptError, match=r"seal\.json: cannot be read .*delete it and run"):
        conduct(folder, plan, fake_arm("A"))
    seal.unlink()
    heard = Heard()
    conduct(folder, plan, fake_arm("A"), heard)
    assert heard.announced == [] and complete(folder) == {"ok": 4}


def test_a_lock_of_a_dead_process_holds_nobody_up(tmp_path: Path) -> None:
    lock = tmp_path / "battery.lock"
    code = (
        "import sys, time, pathlib\nfrom battery.bench.lock import MachineLock\n"
        f"with MachineLock('gone', pathlib.Path({str(lock)!r})):\n    print(flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline()
        with pytest.raises(Busy, match=rf'"pid": ?{holder.pid}.*gone'), MachineLock("mine", lock):
            pass
        holder.kill()
        holder.wait()
    assert "gone" in lock.read_text()
    with MachineLock("mine", lock):
        assert "mine" in lock.read_text() and "gone" not in lock.read_text()
    assert lock.read_text() == "" and lock.stat().st_mode & 0o777 == 0o666


def test_a_lock_never_follows_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("do not lose")
    lock = tmp_path / "battery.lock"
    lock.symlink_to(precious)
    with pytest.raises(Busy, match="the machine's lock cannot be opened"), MachineLock("c", lock):
        pass
    assert precious.read_text() == "do not lose"


def test_a_lock_that_may_not_be_opened_is_told(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    lock = tmp_path / "battery.lock"
    lock.touch(0o600)
    code = (
        "import os, pathlib\nfrom battery.bench.lock import MachineLock\nfrom battery.ledger.errors import Busy\n"
        "os.setuid(65534)\n"
        f"try:\n    MachineLock('c', pathlib.Path({lock.name!r})).__enter__()\n"
        "except Busy as told:\n    print(told)\n"
    )
    tmp_path.chmod(0o755)
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert "cannot be opened (Permission denied); have its owner delete it" in done.stdout, done


def test_a_full_disk_under_the_lock_keeps_nobody_out(small_disk: Path) -> None:
    lock = small_disk / "battery.lock"
    lock.touch()
    fill(small_disk)
    with (
        MachineLock("c", lock),
        pytest.raises(Busy, match="it left no word"),
        MachineLock("other", lock),
    ):
        pass


@pytest.mark.parametrize("milliseconds", [5, 40, 90])
def test_50_a_server_that_dies_after_it_said_ready(
    tmp_path: Path, plan: Plan, fake_arm: Make, milliseconds: int
) -> None:
    arm = fake_arm("A", "--fault", f"dies-soon:{milliseconds}")
    folder = tmp_path / "c"
    try:
        conduct(folder, plan, arm)
    except LaunchError as told:  # it died while it was tried: there is nothing to measure
        assert "arm A: the server" in str(told) and "serving tiny at" in str(told)
        assert "exit status 1" in str(told) or "exited with 1" in str(told)
        assert not Campaign(folder).paths()
    else:  # it died while it was measured: that is a result, in every cell that it hit
        assert set(complete(folder)) <= {"ok", "lost"}
    assert children() == []
