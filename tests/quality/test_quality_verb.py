"""`battery quality` as a script sees it: exit codes, and runs that are stopped from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from calls import Said
from scripts import right, script_of
from stopped import carrying, command, nothing_left, until

from battery.ledger import saved
from battery.ledger.arm import load_arm
from battery.ledger.plan import load_plan
from battery.ledger.store import Campaign, Header
from battery.quality.tasks import Loaded, Task

ENGINE = Path(__file__).parents[1] / "fake_engine.py"
WORDS = (
    "quality",
    "--arms",
    "A",
    "--data",
    "six.jsonl",
    "--cap",
    "64",
    "--ask-only",
    "--campaign",
    "camp",
)
PLAN = "ladder = [64]\nblocks = 6\n[limits]\nlaunch_s = 10\nrequest_s = 20\nstop_s = 3\n"


@pytest.fixture
def root(tmp_path: Path, few: Loaded) -> Path:
    for folder in ("arms", "plans"):
        (tmp_path / folder).mkdir()
    (tmp_path / "plans" / "quick.toml").write_text(PLAN)
    rows = [
        {
            "task_id": task.id, "prompt": task.prompt, "entry_point": task.entry_point,
            "canonical_solution": task.canonical, "test": task.test,
        }
        for task in few.tasks
    ]  # fmt: skip
    (tmp_path / "six.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


@pytest.fixture
def arm(root: Path) -> Callable[..., None]:
    """Write the file of an arm that answers from a script."""

    def write(
        rules: dict[Task, dict[str, Any]], *options: str, model: str = "tiny", name: str = "A"
    ) -> None:
        words = ["{python}", str(ENGINE), "--port", "{port}", "--model", "{model}"]
        words += ["--answers", str(script_of(rules, root)), *options]
        text = f'backend = "command"\nmodel = "{model}"\ncommand = {json.dumps(words)}\n'
        (root / "arms" / f"{name}.toml").write_text(text)

    return write


@pytest.fixture
def call(
    root: Path, say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """The command line in this process, with the machine's lock kept apart."""
    monkeypatch.setenv("BATTERY_LOCK", str(root / "battery.lock"))
    return partial(say, root)


def answered(root: Path) -> list[str]:
    """Tasks in the file of answers, line by line; a line that is not whole yet is left out."""
    path = saved.answers_path(root / "receipts" / "camp", "A", "humaneval")
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line)["task"] for line in lines if line.endswith(b"\n")]


def test_a_run_ends_with_one_line_for_machines(
    call: Callable[..., Said], few: Loaded, arm: Callable[..., None]
) -> None:
    arm({task: right(task) for task in few.tasks})
    done = call(*WORDS, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["campaign"], told["answers"], told["errors"]) == ("camp", 6, 0)
    again = call(*WORDS)
    assert again.returncode == 0 and "6 answers to ask for, 6 are there" in again.stdout
    assert "unknown data, by its digest (six.jsonl, sha256" in again.stdout


def test_progress_tells_the_time_that_is_left(
    call: Callable[..., Said], few: Loaded, arm: Callable[..., None]
) -> None:
    arm({task: right(task) for task in few.tasks}, "--answer-ms", "20")
    lines = call(*WORDS).stdout.splitlines()
    counted = [line for line in lines if line.lstrip().startswith("[")]
    assert len(counted) == 6 and counted[0].startswith("  [1/6] A humaneval HumanEval/0: stop, ")
    assert all(" left" in line for line in counted)


def test_request_errors_are_exit_4_and_stay(
    call: Callable[..., Said], few: Loaded, arm: Callable[..., None]
) -> None:
    rules = {task: right(task) for task in few.tasks}
    arm({**rules, few.tasks[2]: {"before": [400]}})
    done = call(*WORDS, "--json")
    assert done.returncode == 4 and "1 of 6 requests brought no answer" in done.stderr
    assert json.loads(done.stdout)["errors"] == 1


def test_quality_goes_to_the_newest_campaign_of_these_very_arms(
    root: Path, call: Callable[..., Said], few: Loaded, arm: Callable[..., None]
) -> None:
    arm({task: right(task) for task in few.tasks})
    measured = load_arm("A", root / "arms")
    for name, day, digest in (
        ("old", 1, measured.digest),
        ("new", 2, measured.digest),
        ("other", 3, "0" * 64),
    ):
        header = Header(
            campaign=name, plan=load_plan("quick", root / "plans"), plan_digest="p", arms=(measured,),
            arm_digests={"A": digest}, order=(), coin="", seed=1, created=f"2030-01-0{day}", machine={}, battery={},
            baseline={},
        )  # fmt: skip
        Campaign.create(root / "receipts" / name, header)
    words = [word for word in WORDS if word not in ("--campaign", "camp")]
    assert json.loads(call(*words, "--json", "--limit", "1").stdout)["campaign"] == "new"
    refused = call(*words, "--campaign", "other")
    assert refused.returncode == 7 and "its arm A is another one" in refused.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--suites", "humanevall"), "no suite 'humanevall'; did you mean 'humaneval'?"),
        (("--suites", ","), "no suite was named"),
        (("--cap", "0"), "quality.max_tokens: must be at least 1"),
        (("--concurrency", "0"), "quality.concurrency: must be between 1 and 256"),
        (("--campaign", "../x"), "use letters, digits"),
        (("--data", "none.jsonl"), "none.jsonl: no such file"),
        (("--arms", "S"), "synthetic:x has random weights"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_wrong_words_are_exit_2_and_start_nothing(
    words: tuple[str, ...],
    complaint: str,
    root: Path,
    few: Loaded,
    arm: Callable[..., None],
    call: Callable[..., Said],
) -> None:
    arm({})
    arm({}, model="synthetic:x", name="S")
    told = call("quality", "--arms", "A", "--data", "six.jsonl", "--ask-only", *words)
    assert told.returncode == 2 and complaint in told.stderr
    assert not (root / "receipts").exists()


def test_what_was_asked_is_graded_and_can_be_graded_again(
    root: Path, call: Callable[..., Said], few: Loaded, arm: Callable[..., None]
) -> None:
    cut = {"content": "def plus_1(x", "finish": "length"}
    arm(
        {
            **{task: right(task) for task in few.tasks},
            few.tasks[1]: cut,
            few.tasks[2]: {"content": "", "tokens": 0},
        }
    )
    words = [word for word in WORDS if word != "--ask-only"]
    done = call(*words, "--allow-code-execution", "--json")
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["scores"]
    assert (told["arm"], told["suite"], told["passed"], told["truncated"]) == (
        "A",
        "humaneval",
        4,
        1,
    )
    scores = saved.read_scores(root / "receipts" / "camp", "A", "humaneval")
    assert scores is not None and [row.status for row in scores.graded].count("empty") == 1
    again = call("score", "camp", "--data", "six.jsonl", "--allow-code-execution", "--json")
    assert again.returncode == 0 and json.loads(again.stdout) == told
    later = saved.read_scores(root / "receipts" / "camp", "A", "humaneval")
    assert later is not None and later.answers_digest == scores.answers_digest


def test_nothing_is_graded_without_leave(
    arm: Callable[..., None], call: Callable[..., Said]
) -> None:
    arm({})
    told = call("quality", "--arms", "A", "--data", "six.jsonl")
    assert told.returncode == 2 and "--allow-code-execution" in told.stderr


def start(root: Path) -> tuple[subprocess.Popen[str], dict[str, str]]:
    """A run that is under way."""
    line, environment = command(root, *WORDS)
    environment["QUALITY_TEST"] = str(root)
    running = subprocess.Popen(
        line, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert until(lambda: len(answered(root)) >= 2, 30), running.poll()
    return running, environment


def test_ctrl_c_keeps_what_is_in_hand_and_the_same_command_goes_on(
    root: Path, few: Loaded, arm: Callable[..., None], call: Callable[..., Said]
) -> None:
    arm({task: right(task) for task in few.tasks}, "--answer-ms", "300")
    running, _ = start(root)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    assert "stopping after the answers in hand" in out and "Traceback" not in err
    before = answered(root)
    assert 2 <= len(before) < 6
    nothing_left(root, root / "battery.lock")
    assert not carrying(str(root))
    done = call(*WORDS)
    assert done.returncode == 0, done.stderr
    assert answered(root) == [task.id for task in few.tasks]
    sessions = saved.read_asked(root / "receipts" / "camp", "A", "humaneval").sessions
    assert [session.answers for session in sessions] == [len(before), 6 - len(before)]
    assert all(session.ended for session in sessions)


def test_a_second_press_leaves_at_once_and_loses_only_what_was_in_flight(
    root: Path, few: Loaded, arm: Callable[..., None]
) -> None:
    slow = {task: right(task) for task in few.tasks[:2]} | {
        few.tasks[2]: {**right(few.tasks[2]), "together": 2}
    }
    arm(slow)
    running, _ = start(root)
    for _ in range(2):
        running.send_signal(signal.SIGINT)
        until(lambda: running.poll() is not None, 1)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130 and "Traceback" not in err
    assert answered(root) == [task.id for task in few.tasks[:2]]
    nothing_left(root, root / "battery.lock")
    assert not carrying(str(root))


def test_killed_it_goes_on_where_it_stopped(
    root: Path, few: Loaded, arm: Callable[..., None], call: Callable[..., Said]
) -> None:
    arm({task: right(task) for task in few.tasks}, "--answer-ms", "300")
    running, _ = start(root)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=30)
    assert until(lambda: not carrying(str(root))), (
        "the server of a killed battery must end by itself"
    )
    before = answered(root)
    done = call(*WORDS)
    assert done.returncode == 0, done.stderr
    assert answered(root) == [task.id for task in few.tasks] and len(before) < 6
    first, second = saved.read_asked(root / "receipts" / "camp", "A", "humaneval").sessions
    assert first.ended is None and second.answers == 6 - len(before)
