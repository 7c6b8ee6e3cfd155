"""The fleet through Ray itself: two nodes on this machine, a worker that is killed, and a cluster of battery's own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from answered import ENDLESS, answer, campaign, mixed, verdicts
from posts import FAULTY, Broken, Hurried, Killed

from battery.ledger import saved
from battery.ledger.answers import Answer, Graded
from battery.ledger.answers import Grader as Told
from battery.ledger.errors import InputError
from battery.quality import reference
from battery.quality.fleet import cluster
from battery.quality.fleet.post import Post
from battery.quality.grade import Grader
from battery.quality.tasks import Loaded

ray = pytest.importorskip(
    "ray", reason="no package ray; make test-fleet has an environment with it"
)
pytestmark = pytest.mark.filterwarnings("default")  # Ray's own warnings are not ours to mend
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two nodes with a core each, on this machine's loopback."""
    told = {**cluster.OURS, "RAY_AUTH_TOKEN": secrets.token_hex(32), "PYTHONPATH": f"{ROOT}:{HERE}"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        importlib.import_module("ray._raylet").Config.initialize("")  # as ray.init reads the key
        made: Any = importlib.import_module("ray.cluster_utils").Cluster()
        try:
            for _ in range(2):
                made.add_node(num_cpus=1, object_store_memory=100 << 20, include_dashboard=False)
            yield made.address
        finally:
            made.shutdown()


def through(
    address: str, loaded: Loaded, answers: list[Answer], post: type[Post] = Post
) -> tuple[list[Graded], Told, list[str]]:
    notes: list[str] = []
    with cluster.opened(address, say=notes.append, post=post) as graders:
        assert graders is not None
        with graders(loaded.tasks) as fleet:
            (rows,) = fleet.each([answers])
            return rows, fleet.told(), notes


def alone(loaded: Loaded, answers: list[Answer]) -> list[tuple[object, ...]]:
    with Grader(loaded.tasks, workers=1) as grader:
        return verdicts(grader.grade(answers))


def test_two_nodes_give_the_rows_of_one_machine(
    address: str, few: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FLOOR_S", 1.0), ("OF_MEDIAN", 1), ("OF_OWN", 1)):
        monkeypatch.setattr(reference, name, value)
    given = mixed(few)
    given.append(answer("HumanEval/0", INTERRUPTS, 3))
    rows, told, _ = through(address, few, given, Hurried)
    assert verdicts(rows) == alone(few, given)
    assert [row.status for row in rows].count("timeout") == 1 and rows[-1].passed
    one, two = told.machines
    assert one.workers == two.workers == 1 and one.programs and two.programs
    assert one.fences == two.fences == told.fences
    text = repr(told)
    assert str(Path.home()) + "/" not in text and os.uname().nodename + "'" not in text
    assert not [node["NodeID"] for node in _nodes(address) if node["NodeID"] in text]


INTERRUPTS = """
import signal
def plus_0(x):
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return x
"""
"""Right only where Ctrl-C is not blocked, as it is in what Ray starts."""


def _nodes(address: str) -> list[dict[str, Any]]:
    with cluster.opened(address):
        return list(importlib.import_module("ray").nodes())


def test_a_node_whose_grader_fails_its_own_test_is_named(address: str, few: Loaded) -> None:
    given = mixed(few, endless=0)
    rows, told, notes = through(address, few, given, Broken)
    assert verdicts(rows) == alone(few, given)
    assert notes[0].startswith(f"{FAULTY} grades nothing: HumanEval/5: its canonical solution")
    assert [one.programs > 0 for one in told.machines] == [True, False]


def test_what_a_killed_worker_was_given_is_graded_by_the_other(address: str, few: Loaded) -> None:
    given = mixed(few, endless=0)
    rows, told, notes = through(address, few, given, Killed)
    assert verdicts(rows) == alone(few, given)
    lost = told.machines[1]
    assert lost.label == FAULTY and lost.programs == 0
    assert (lost.refused or "").startswith("its worker ended")
    assert any("it grades nothing any more" in note for note in notes)


def test_where_no_cluster_answers_the_way_to_one_is_told(few: Loaded) -> None:
    with (
        pytest.raises(InputError, match="no Ray cluster answers there"),
        cluster.opened("127.0.0.1:9"),
    ):
        pass


def command(root: Path, few: Loaded, answers: list[Answer]) -> subprocess.Popen[str]:
    """`battery score camp --fleet local` in a session of its own."""
    campaign(root, few, {"A": answers})
    words = ["score", "camp", "--data", "six.jsonl", "--allow-code-execution", "--fleet", "local"]
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "battery", *words, "--workers", "2"],
        cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BATTERY_LOCK": str(root / "battery.lock")},
    )  # fmt: skip


def left(session: int) -> list[psutil.Process]:
    """Processes of a session, once those that are ending had their time."""
    for _ in range(100):
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        if not found:
            return []
        time.sleep(0.1)
    return found


def heard_on(session: int) -> set[str]:
    """Addresses on which processes of a session listen."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == session:
                ends = process.net_connections("inet")
                found |= {one.laddr.ip for one in ends if one.status == psutil.CONN_LISTEN}
    return found


def folders() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("fleet-*")}


def test_the_verb_scores_a_campaign_and_leaves_nothing_running(few: Loaded, tmp_path: Path) -> None:
    before, given = folders(), mixed(few, endless=0)
    process = command(tmp_path, few, given)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "1 of 1 machines grade, 2 programs at a time" in said
    scores = saved.read_scores(tmp_path / "receipts" / "camp", "A", "humaneval")
    assert scores and verdicts(scores.graded) == alone(few, given)
    assert not left(process.pid) and folders() == before


def test_a_cluster_of_our_own_is_heard_on_the_loopback_alone_and_ends_with_ctrl_c(
    few: Loaded, tmp_path: Path
) -> None:
    given = [
        answer(task.id, ENDLESS.format(name=task.entry_point) + f"# {n}\n", n)
        for task in few.tasks
        for n in range(3)
    ]
    before = folders()
    process = command(tmp_path, few, given)
    assert process.stdout
    for line in process.stdout:
        if "machines grade" in line:
            break
    time.sleep(1)
    heard = heard_on(process.pid)
    assert heard and heard <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in said, said
    assert not left(process.pid) and folders() == before
