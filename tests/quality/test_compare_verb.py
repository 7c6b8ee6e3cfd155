"""`--compare-evalplus` as a script sees it: both verdicts told and kept, and what is refused."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calls import Said
from evalplus_python import stand_in
from kept_answers import DATA, keep, tasks_of
from scripts import script_of

from battery.ledger import sanitised, saved, strict

ENGINE = Path(__file__).parents[1] / "fake_engine.py"
RIGHT, WRONG = "def f(x):\n    return x + 1\n", "def f(x):\n    return x\n"
ANSWERS = (
    f"```\n{RIGHT}```",
    f"```\n{WRONG}```\n```\n{RIGHT}```",
    f"```\n{RIGHT}```\n```\n{WRONG}```",
    "No code.",
    f"raise\n```\n{RIGHT}```",
    f"leave\n```\n{WRONG}```",
)
WORDS = ("score", "camp", "--allow-code-execution", "--data", DATA, "--workers", "1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    keep(tmp_path, tasks_of([{}] * len(ANSWERS)), [{"content": told} for told in ANSWERS])
    return tmp_path


def test_both_verdicts_are_told_and_kept(say: Callable[..., Said], root: Path) -> None:
    words = (*WORDS, "--compare-evalplus", "--evalplus-python", str(stand_in(root)))
    said = say(root, *words, "--json")
    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout)
    both = told["evalplus"]
    assert (told["passed"], both["ours"]["count"], both["theirs"]["count"]) == (3, 3, 2)
    assert [(one["task"], one["theirs"], one["sanitised_code"]) for one in both["ours_only"]] == [
        ("HumanEval/1", "failed", "defines the entry point")
    ]
    assert [one["task"] for one in both["theirs_only"]] == ["HumanEval/2"]
    assert [one["task"] for one in both["unjudged"]] == ["HumanEval/4", "HumanEval/5"]
    kept = sanitised.read(sanitised.path_of(root / "receipts" / "camp", "A", "humaneval"))
    scores = saved.read_scores(root / "receipts" / "camp", "A", "humaneval")
    assert scores and kept.answers_digest == scores.answers_digest
    assert [row.passed for row in kept.rows] == [True, False, True, False, None, None]
    assert kept.rows[0].code_digest == strict.digest(RIGHT) and kept.rows[4].status is None


def test_a_reader_is_told_which_answers_differ_and_why(
    say: Callable[..., Said], root: Path
) -> None:
    said = say(root, *WORDS, "--compare-evalplus", "--evalplus-python", str(stand_in(root)))
    assert said.returncode == 0, said.stderr
    assert "at least 0.3333 (2 of 6) as EvalPlus 0.3.1 sanitize does" in said.stdout
    assert (
        "    HumanEval/1: ours passed (last defining fence), theirs failed: the sanitised code defines the entry point"
        in said.stdout.splitlines()
    )
    assert "HumanEval/5: its process ended with exit status 3; ours: failed" in said.stdout


def test_a_quality_run_ends_with_both_verdicts(
    say: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tasks_of([{"prompt": f"def f(x):\n    # task {n}\n"} for n in range(2)])
    (tmp_path / "made").mkdir()
    folder = keep(tmp_path / "made", loaded, [{}, {}])
    (tmp_path / DATA).write_bytes((folder.parents[1] / DATA).read_bytes())
    script = script_of(
        {task: {"content": ANSWERS[place]} for place, task in enumerate(loaded.tasks)}, tmp_path
    )
    command = [
        "{python}",
        str(ENGINE),
        "--port",
        "{port}",
        "--model",
        "{model}",
        "--answers",
        str(script),
    ]
    (tmp_path / "arms").mkdir()
    (tmp_path / "arms" / "A.toml").write_text(
        f'backend = "command"\nmodel = "tiny"\ncommand = {json.dumps(command)}\n'
    )
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "quick.toml").write_text(
        "ladder = [64]\nblocks = 6\n[limits]\nlaunch_s = 10\n"
    )
    monkeypatch.setenv("BATTERY_LOCK", str(tmp_path / "battery.lock"))
    words = (
        "quality",
        "--arms",
        "A",
        "--data",
        DATA,
        "--campaign",
        "camp",
        "--allow-code-execution",
    )
    python = str(stand_in(tmp_path))
    said = say(tmp_path, *words, "--compare-evalplus", "--evalplus-python", python, "--json")
    assert said.returncode == 0, said.stderr
    (told,) = json.loads(said.stdout)["scores"]
    assert (told["passed"], told["evalplus"]["theirs"]["count"]) == (2, 1)
    assert [one["task"] for one in told["evalplus"]["ours_only"]] == ["HumanEval/1"]


def test_it_is_not_made_unless_it_is_asked_for(say: Callable[..., Said], root: Path) -> None:
    said = say(root, *WORDS, "--json")
    assert said.returncode == 0 and "evalplus" not in json.loads(said.stdout)
    assert not sanitised.path_of(root / "receipts" / "camp", "A", "humaneval").exists()


def test_what_cannot_be_compared_is_refused_before_anything_is_graded(
    say: Callable[..., Said], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "evalplus" else there(name)
    )
    said = say(root, *WORDS, "--compare-evalplus")
    assert said.returncode == 2 and "--evalplus-python" in said.stderr
    older = stand_in(root, "hello['version'] = '0.2.1'")
    said = say(root, *WORDS, "--compare-evalplus", "--evalplus-python", str(older))
    assert said.returncode == 2 and "EvalPlus 0.2.1" in said.stderr
    said = say(root, *WORDS, "--evalplus-python", str(older))
    assert said.returncode == 2 and "--compare-evalplus" in said.stderr
    asked = ("quality", "--arms", "A", "--ask-only", "--compare-evalplus")
    said = say(root, *asked)
    assert said.returncode == 2 and "--ask-only" in said.stderr
    cases = ("score", "--cases", "x", "--compare-evalplus", "--allow-code-execution")
    said = say(root, *cases)
    assert said.returncode == 2 and "--cases" in said.stderr
    assert saved.read_scores(root / "receipts" / "camp", "A", "humaneval") is None


def test_a_comparison_is_not_spread_over_a_fleet(say: Callable[..., Said], root: Path) -> None:
    refused = say(root, *WORDS, "--compare-evalplus", "--fleet", "local")
    assert refused.returncode == 2 and "leave out --fleet" in refused.stderr
