"""What the peers recorded, read back: recorded files of two requests each, beside the server's own log of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks import peers
from benchmarks.peers import (
    NotDriven,
    PeerRequest,
    PeerRun,
    aiperf,
    environment,
    guidellm,
    llama_benchy,
)
from benchmarks.peers import tokenizer as bytes_tokenizer
from benchmarks.peers.clock import STEP_NS, Conversion, Offset, offset

RECORDED = Path(__file__).parent / "peers"
SERVER = json.loads((RECORDED / "server.json").read_text())
LOG: dict[str, dict[str, Any]] = {one["key"]: one for one in SERVER["requests"]}
OFFSET = SERVER["wall_minus_ours_ns"]
LATEST_NS = 20_000_000
"""More than any of the recorded stamps came after the send; a stamp of another event or clock is off by more."""


def steady(moved_ns: int = 0) -> Conversion:
    return Conversion(Offset(0, OFFSET, 30), Offset(20_000_000_000_000, OFFSET + moved_ns, 40))


def running(pid: int) -> bool:
    """A process that was killed may stay in the table until its new parent looks."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def follows(stamps: list[int | None], sent: list[int]) -> None:
    """Every stamp is of its own event: after the server handed it over, and not long after."""
    assert len(stamps) == len(sent)
    for stamp, at in zip(stamps, sent, strict=True):
        assert stamp is not None and 0 < stamp - at < LATEST_NS


def test_guidellm_gives_first_and_last_in_sending_order() -> None:
    found = guidellm.read(json.loads((RECORDED / "guidellm.json").read_text()), steady())
    assert [one.key for one in found] == ["r0", "r1"]
    for one in found:
        sent = LOG[one.key]["sent_ns"]
        assert one.event_ns == []
        follows([one.first_ns, one.last_ns], [sent[0], sent[-1]])
        assert one.send_ns is not None and one.send_ns < LOG[one.key]["arrived_ns"]


@pytest.mark.parametrize(
    ("module", "name", "keys"),
    [(aiperf, "aiperf.jsonl", ["r4", "r5"]), (llama_benchy, "llama-benchy.jsonl", ["r9", "r10"])],
)
def test_every_token_event_has_its_stamp(module: Any, name: str, keys: list[str]) -> None:
    found = module.read((RECORDED / name).read_text().splitlines())
    assert [one.key for one in found] == keys
    for one in found:
        follows(one.event_ns, LOG[one.key]["sent_ns"])
        assert (one.first_ns, one.last_ns) == (one.event_ns[0], one.event_ns[-1])
        assert one.send_ns < LOG[one.key]["arrived_ns"]


def test_values_as_recorded() -> None:
    first = aiperf.read((RECORDED / "aiperf.jsonl").read_text().splitlines())[0]
    raw = json.loads((RECORDED / "aiperf.jsonl").read_text().splitlines()[1])
    assert first.send_ns == raw["start_perf_ns"]
    assert first.event_ns == [one["perf_ns"] for one in raw["responses"][1:5]]  # 0 is the role's
    first = llama_benchy.read((RECORDED / "llama-benchy.jsonl").read_text().splitlines())[0]
    assert first.event_ns == [11570349084492, 11570349891232, 11570350842436, 11570351812088]


def test_a_failed_request_is_not_a_stamp() -> None:
    record = json.loads((RECORDED / "llama-benchy.jsonl").read_text().splitlines()[0])
    assert llama_benchy.read([json.dumps({**record, "error": "HTTP 500"})]) == []
    raw = json.loads((RECORDED / "aiperf.jsonl").read_text().splitlines()[1])
    assert aiperf.read([json.dumps({**raw, "error": {"code": 500}})]) == []


def test_the_wall_clock_is_converted_along_a_line() -> None:
    clock = Conversion(Offset(0, 1000, 5), Offset(1_000_000, 1200, 7))
    assert clock.ours((500_000 + 1100) / 1e9) == pytest.approx(500_000, abs=1)
    assert clock.moved_ns == 200 and clock.error_ns == 7 + 200 + 120
    real_before, before, wall = offset(), time.perf_counter_ns(), time.time()
    after = time.perf_counter_ns()
    real = Conversion(real_before, offset())
    assert before - real.error_ns <= real.ours(wall) <= after + real.error_ns


def test_a_stepped_clock_gives_nothing() -> None:
    steady(STEP_NS).check()
    with pytest.raises(NotDriven, match="wall clock moved"):
        steady(-STEP_NS - 1).check()


def test_each_peer_is_pinned_to_one_version() -> None:
    for peer in peers.PEERS:
        lines = environment.pins(peer).read_text().splitlines()
        assert all("==" in line and "://" not in line for line in lines)
        assert environment.version(peer)[0].isdigit()


def test_a_failed_install_says_so() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no wheel for this machine')"]
    with pytest.raises(NotDriven, match="installing aiperf failed: no wheel for this machine"):
        environment._installed("aiperf", command)


@pytest.fixture
def own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "python_of", lambda peer: Path(sys.executable))


@pytest.mark.usefixtures("own_python")
def test_a_peer_sees_no_key_and_no_network_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "s3cret")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    environment.run("aiperf", ["-c", "import os; print(dict(os.environ))"], tmp_path, 60)
    said = (tmp_path / "output.txt").read_text()
    assert "s3cret" not in said and "HTTP_PROXY" not in said and "'HF_HUB_OFFLINE': '1'" in said


@pytest.mark.usefixtures("own_python")
def test_a_peer_that_fails_or_hangs_is_not_driven_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotDriven, match="exited with 3: sorry"):
        environment.run("aiperf", ["-c", "print('sorry'); raise SystemExit(3)"], tmp_path, 60)
    hang = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    with pytest.raises(NotDriven, match="did not end within 3 s"):
        environment.run("aiperf", ["-c", hang], tmp_path, 3)
    grandchild = int((tmp_path / "output.txt").read_text())
    deadline = time.monotonic() + 30
    while running(grandchild) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(grandchild)


def test_a_run_that_lost_requests_or_events_is_not_driven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded(*events: int) -> PeerRun:
        requests = [PeerRequest(key="r0", event_ns=list(range(count))) for count in events]
        return PeerRun(
            peer="aiperf",
            version="0",
            finest="event",
            requests=requests,
            clock="",
            clock_error_ns=0,
        )

    monkeypatch.setattr(aiperf, "drive", lambda *_: recorded(4, 4))
    assert len(peers.drive("aiperf", "http://h/v1", "m", 2, 1, 4, tmp_path).requests) == 2
    for lost in ((4,), (4, 3)):
        monkeypatch.setattr(aiperf, "drive", lambda *_, lost=lost: recorded(*lost))
        with pytest.raises(NotDriven, match="aiperf recorded"):
            peers.drive("aiperf", "http://h/v1", "m", 2, 1, 4, tmp_path)
    with pytest.raises(ValueError, match="do not fill"):
        peers.drive("aiperf", "http://h/v1", "m", 3, 2, 4, tmp_path)


def test_the_tokenizer_of_bytes_reads_and_writes_any_text(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    place = bytes_tokenizer.write(tmp_path) / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(place))
    text = "Grün 🌲 \n" + bytes_tokenizer.text(20)
    ids = tokenizer.encode(text).ids
    assert len(ids) == len(text.encode()) and tokenizer.decode(ids) == text


def test_trying_the_peers_names_the_unknown_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", "--server", "http://127.0.0.1:1", "wrk"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "known are guidellm, aiperf, llama-benchy" in done.stderr
