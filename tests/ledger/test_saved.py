"""Files of a quality run: names, healing, and what is told where scores are not of what was asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from battery.ledger import saved, strict
from battery.ledger.answers import Answer, Dataset, Graded, Grader, Scores
from battery.ledger.arm import Arm
from battery.ledger.asked import Asked, Session
from battery.ledger.errors import ReceiptError
from battery.ledger.saved import AnswersFile, unlike_asked
from battery.ledger.store import pretty

ARM = Arm(name="A.x", backend="command", model="tiny")
DATA = Dataset(suite="mbpp+", source="x", digest="d" * 64, tasks=2)
SAMPLER = {"temperature": 0.0, "max_tokens": 8}


def answer(task: str, **changes: Any) -> Answer:
    told: dict[str, Any] = {
        "finish_reason": "stop",
        "completion_tokens": 3,
        "content": task,
    } | changes
    return Answer(
        suite="mbpp+", task=task, sample=0, seed=1, request_digest="r", started="now", **told
    )


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """Two answers, asked and scored."""
    with_file(
        tmp_path, [answer("Mbpp/2"), answer("Mbpp/3", finish_reason="length", completion_tokens=8)]
    )
    asked = Asked(
        campaign=tmp_path.name, arm=ARM, arm_digest=ARM.digest, plan_digest="p", dataset=DATA, samples=1,
        tasks=("Mbpp/2", "Mbpp/3"), sampler=SAMPLER, prompt_style="battery/1",
    )  # fmt: skip
    path = saved.asked_path(tmp_path, "A.x", "mbpp+")
    path.parent.mkdir()
    path.write_bytes(pretty(asked))
    write(tmp_path, scores_of(tmp_path, asked))
    return tmp_path


def with_file(folder: Path, answers: list[Answer]) -> None:
    file = AnswersFile(saved.answers_path(folder, "A.x", "mbpp+"))
    for one in answers:
        file.append(one)
    file.close()


def scores_of(folder: Path, asked: Asked) -> Scores:
    data = saved.answers_path(folder, "A.x", "mbpp+").read_bytes()
    rows = (
        Graded(
            task="Mbpp/2",
            sample=0,
            passed=True,
            status="passed",
            truncated=False,
            completion_tokens=3,
        ),
        Graded(
            task="Mbpp/3",
            sample=0,
            passed=False,
            status="cut_off",
            truncated=True,
            completion_tokens=8,
        ),
    )
    return Scores(
        campaign=asked.campaign, arm=ARM, arm_digest=ARM.digest, dataset=DATA, samples=1, tasks=asked.tasks,
        sampler=SAMPLER, concurrency=1, prompt_style="battery/1", answers_digest=strict.digest(data),
        grader=Grader(name="g", version="1"), graded=rows, ended="now",
    )  # fmt: skip


def write(folder: Path, scores: Scores) -> None:
    saved.scores_path(folder, "A.x", "mbpp+").write_bytes(pretty(scores))


def found(folder: Path) -> list[str]:
    return [what for _, what, _ in unlike_asked(folder, {"A.x": ARM.digest})]


def test_names_tell_arm_and_suite_also_of_an_arm_with_a_dot(campaign: Path) -> None:
    (campaign / "quality" / "notes.jsonl").write_text("")
    assert saved.answered(campaign) == [("A.x", "mbpp+")]
    assert saved.answered(campaign / "nowhere") == []


def test_what_agrees_is_told_nothing_of(campaign: Path) -> None:
    assert found(campaign) == []
    saved.scores_path(campaign, "A.x", "mbpp+").unlink()
    assert found(campaign) == []
    assert found(campaign / "nowhere") == []


Spoil = Callable[[Path], None]


def rescored(**changes: Any) -> Spoil:
    def spoil(folder: Path) -> None:
        scores = saved.read_scores(folder, "A.x", "mbpp+")
        assert scores is not None
        write(folder, msgspec.structs.replace(scores, **changes))

    return spoil


def no_record(folder: Path) -> None:
    saved.asked_path(folder, "A.x", "mbpp+").unlink()


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (no_record, "no such file"),
        (rescored(sampler={**SAMPLER, "temperature": 0.7}), "sampler is not as it was asked"),
        (rescored(tasks=("Mbpp/2",)), "tasks is not as it was asked"),
        (
            rescored(dataset=msgspec.structs.replace(DATA, digest="e" * 64)),
            "dataset is not as it was asked",
        ),
        (rescored(campaign="other"), "campaign is not as it was asked"),
        (rescored(engagement={"verdict": "engaged"}), "engagement is not as it was asked"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_does_not_agree_is_told(spoil: Spoil, what: str, campaign: Path) -> None:
    spoil(campaign)
    assert any(what in told for told in found(campaign)), found(campaign)


def test_another_arm_of_that_name_is_told(campaign: Path) -> None:
    told = list(unlike_asked(campaign, {"A.x": "0" * 64}))
    assert [what for _, what, _ in told] == ["another arm of that name was asked"]


def test_a_line_of_another_battery_is_refused_with_its_number(campaign: Path) -> None:
    path = saved.answers_path(campaign, "A.x", "mbpp+")
    path.write_bytes(path.read_bytes() + b'{"suite": "mbpp+", "task": 1}\n')
    with pytest.raises(ReceiptError, match=r"\.jsonl:3: no answer"):
        saved.read_answers(path)


def test_parts_of_a_killed_battery_go(campaign: Path) -> None:
    for folder in ("quality", "quality/asked"):
        (campaign / folder / ".part-x").write_text("half")
    saved.clean(campaign)
    assert not list(campaign.rglob(".part-*"))


def test_the_worst_session_speaks_for_all() -> None:
    def session(verdict: str | None, concurrency: int) -> Session:
        told = {} if verdict is None else {"verdict": verdict}
        return Session(started="now", concurrency=concurrency, engagement=told)

    def asked(*sessions: Session) -> Asked:
        return Asked(
            campaign="c", arm=ARM, arm_digest="a", plan_digest="p", dataset=DATA, samples=1, tasks=(), sampler={},
            prompt_style="x", sessions=sessions,
        )  # fmt: skip

    one = asked(session("engaged", 1), session("disengaged", 4), session("engaged", 2))
    assert one.engagement == {"verdict": "disengaged"} and one.concurrency == 4
    assert asked(session(None, 1), session("engaged", 1)).engagement == {"verdict": "engaged"}
    assert asked().engagement == {} and asked().concurrency == 1
