"""The conductor of a quality run on the fake engine: what it keeps, where it goes on, and when it gives up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from scripts import right, script_of
from typing_extensions import override

from battery.bench.measure import WindowFailed
from battery.ledger import saved, strict
from battery.ledger.answers import Answer
from battery.ledger.arm import Arm
from battery.ledger.asked import Quality
from battery.ledger.errors import InputError, LaunchError, ReceiptError
from battery.ledger.plan import Plan
from battery.quality.ask import seed_of
from battery.quality.run import GIVE_UP, Questioner
from battery.quality.tasks import Loaded, Task
from battery.quality.telling import Telling

Make = Callable[..., Arm]
SMALL = Quality(max_tokens=64)


class Listening(Telling):
    """What was told, in words."""

    def __init__(self) -> None:
        self.said: list[str] = []

    @override
    def started(self, done: int, total: int) -> None:
        self.said.append(f"{done}/{total}")

    @override
    def phase(self, arm: str, what: str) -> None:
        self.said.append(f"{arm} {what}")

    @override
    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def ask(tmp_path: Path, small_plan: Plan, few: Loaded) -> Callable[..., Any]:
    """Ask arms the six tasks in a campaign's folder: `ask(arm, asking=…, limit=…)` -> (counts, what was told)."""

    def run(
        *arms: Arm, loaded: Sequence[Loaded] = (few,), asking: Quality = SMALL, **more: Any
    ) -> Any:
        heard = Listening()
        questioner = Questioner(
            small_plan, arms, loaded, tmp_path / "camp", heard, asking=asking, lock=tmp_path / "lock",
            waits_s=(0.0,), **more,
        )  # fmt: skip
        return questioner.run(), heard.said

    return run


@dataclass
class Begun:
    """A campaign that tests go on from: one launch for all of them."""

    folder: Path
    arm: Arm | None = None


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    return Begun(tmp_path_factory.mktemp("begun"))


@pytest.fixture
def started(
    tmp_path: Path, begun: Begun, few: Loaded, fake_arm: Make, ask: Callable[..., Any]
) -> Arm:
    """An arm that answers rightly, and, as a copy, its campaign after the first three of six tasks."""
    if begun.arm is None:
        arm = fake_arm("A", "--answers", str(script_of(rules(few.tasks), begun.folder)))
        ask(arm, limit=3)
        shutil.copytree(tmp_path / "camp", begun.folder / "camp")
        begun.arm = arm
    shutil.copytree(begun.folder / "camp", tmp_path / "camp", dirs_exist_ok=True)
    return begun.arm


def kept(tmp_path: Path, arm: str = "A") -> list[Answer]:
    return saved.read_answers(saved.answers_path(tmp_path / "camp", arm, "humaneval"))


def rules(tasks: Sequence[Task], **changes: Any) -> dict[Task, dict[str, Any]]:
    return {task: {**right(task), **changes} for task in tasks}


def test_every_answer_is_kept_with_what_was_asked(
    tmp_path: Path, few: Loaded, scripted: Make, ask: Callable[..., Any], small_plan: Plan
) -> None:
    arm = scripted("A", rules(few.tasks), switches={"prompt_lookup": True})
    counts, said = ask(arm)
    assert counts == {"answers": 6, "errors": 0} and said[:3] == ["0/6", "A launch", "A humaneval"]
    answers = kept(tmp_path)
    assert [one.task for one in answers] == [task.id for task in few.tasks]
    assert [one.content for one in answers] == [right(task)["content"] for task in few.tasks]
    asked = saved.read_asked(tmp_path / "camp", "A", "humaneval")
    assert (asked.campaign, asked.arm_digest, asked.plan_digest) == (
        "camp",
        arm.digest,
        small_plan.digest,
    )
    assert asked.dataset == few.dataset and asked.tasks == tuple(task.id for task in few.tasks)
    assert (
        asked.sampler == {"temperature": 0.7, "top_p": 0.95, "max_tokens": 64}
        and asked.samples == 1
    )
    assert asked.model["name"] == "tiny" and asked.versions["engine"]["version"] == "0.0-fake"
    (session,) = asked.sessions
    assert (session.answers, session.errors, session.concurrency) == (6, 0, 1) and session.ended
    assert asked.engagement["verdict"] == "engaged"
    assert [one["name"] for one in asked.engagement["after"]["switches"]] == ["prompt_lookup"]


def test_what_is_complete_launches_nothing(
    tmp_path: Path, started: Arm, ask: Callable[..., Any]
) -> None:
    before = saved.answers_path(tmp_path / "camp", "A", "humaneval").read_bytes()
    counts, said = ask(started, limit=3)
    assert counts["answers"] == 3 and said == ["3/3"]
    assert saved.answers_path(tmp_path / "camp", "A", "humaneval").read_bytes() == before


def test_a_limit_is_gone_on_from_and_never_takes_tasks_back(
    tmp_path: Path, few: Loaded, started: Arm, ask: Callable[..., Any]
) -> None:
    assert ask(started)[0]["answers"] == 6
    assert ask(started, limit=1)[0]["answers"] == 6
    assert [one.task for one in kept(tmp_path)] == [task.id for task in few.tasks]
    asked = saved.read_asked(tmp_path / "camp", "A", "humaneval")
    assert [session.answers for session in asked.sessions] == [3, 3]


@pytest.mark.parametrize(
    "torn", [b'{"suite":"humaneval","task":"Hum', b"\x00\x00\x00"], ids=["half", "zeros"]
)
def test_a_torn_last_line_is_cut_off_and_asked_again(
    torn: bytes, tmp_path: Path, few: Loaded, started: Arm, ask: Callable[..., Any]
) -> None:
    path = saved.answers_path(tmp_path / "camp", "A", "humaneval")
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    _, said = ask(started, limit=4)
    assert path.read_bytes().startswith(whole + b'{"suite"') and path.read_bytes().count(b"\n") == 4
    assert [one.task for one in kept(tmp_path)] == [task.id for task in few.tasks[:4]]
    assert any(f"a torn last line of {len(torn)} bytes" in line for line in said)


def test_a_last_line_that_only_lacks_its_end_stands(
    tmp_path: Path, started: Arm, ask: Callable[..., Any]
) -> None:
    path = saved.answers_path(tmp_path / "camp", "A", "humaneval")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert ask(started, limit=3)[1] == ["3/3"] and path.read_bytes() == whole


def test_damage_in_the_middle_is_refused_with_its_place(
    tmp_path: Path, started: Arm, ask: Callable[..., Any]
) -> None:
    path = saved.answers_path(tmp_path / "camp", "A", "humaneval")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1][:40], *lines[2:]]))
    with pytest.raises(ReceiptError, match=r"A\.humaneval\.jsonl:2: no answer"):
        ask(started)


def test_requests_that_failed_are_kept_and_asked_again_last(
    tmp_path: Path, few: Loaded, scripted: Make, ask: Callable[..., Any]
) -> None:
    first, *rest = few.tasks
    broken = scripted("A", {first: {"before": [503] * 9}, **rules(rest)})
    counts, _ = ask(broken, limit=2)
    assert counts == {"answers": 2, "errors": 1}
    assert str(kept(tmp_path)[0].error).startswith("HTTP 503") and kept(tmp_path)[0].attempts == 2
    # the same arm by its digest: only what its script holds has changed
    script = Path(broken.command[broken.command.index("--answers") + 1])
    script.write_bytes(script_of(rules(few.tasks), tmp_path).read_bytes())
    counts, _ = ask(broken)
    assert counts == {"answers": 6, "errors": 0}
    order = [one.task for one in kept(tmp_path)]
    assert order == [task.id for task in (first, *rest, first)], (
        "the failed one is asked behind the others"
    )
    stands = saved.standing(kept(tmp_path))
    assert len(stands) == 6 and all(one.error is None for one in stands.values())


def test_the_first_completion_stands_whatever_came_later() -> None:
    def answer(content: str, error: str | None = None) -> Answer:
        return Answer(
            suite="mbpp", task="Mbpp/2", sample=0, seed=1, request_digest="x", content=content, error=error,
            started="now",
        )  # fmt: skip

    one, two, lost = answer("one"), answer("two"), answer("", "HTTP 500")
    assert saved.standing([lost, one, two, lost]) == {("Mbpp/2", 0): one}
    assert saved.standing([lost, answer("", "later")])["Mbpp/2", 0].error == "later"


def test_a_server_that_dies_ends_the_run_and_the_task_waits_for_the_others(
    tmp_path: Path, few: Loaded, scripted: Make, ask: Callable[..., Any]
) -> None:
    bad = few.tasks[1]
    arm = scripted("A", {**rules(few.tasks), bad: {"before": ["die"]}})
    with pytest.raises(LaunchError, match=r"the server ended with 1, last on HumanEval/1"):
        ask(arm)
    assert [(one.task, one.error is None) for one in kept(tmp_path)] == [
        ("HumanEval/0", True),
        ("HumanEval/1", False),
    ]
    with pytest.raises(LaunchError):
        ask(arm)
    assert [one.task for one in kept(tmp_path)][2:] == [f"HumanEval/{n}" for n in (2, 3, 4, 5, 1)]
    asked = saved.read_asked(tmp_path / "camp", "A", "humaneval")
    assert [(one.answers, one.errors) for one in asked.sessions] == [(1, 1), (4, 1)]
    assert asked.engagement["verdict"] == "unobservable", (
        "a server that is gone cannot say what ran"
    )


def test_an_arm_that_only_fails_is_given_up(
    tmp_path: Path, few: Loaded, scripted: Make, ask: Callable[..., Any]
) -> None:
    arm = scripted("A", rules(few.tasks, before=[400]))
    with pytest.raises(LaunchError, match=f"failed {GIVE_UP} requests in a row"):
        ask(arm)
    assert len(kept(tmp_path)) == GIVE_UP


def test_samples_have_seeds_of_their_own_and_arms_the_same_requests(
    tmp_path: Path, few: Loaded, scripted: Make, ask: Callable[..., Any]
) -> None:
    arms = [
        scripted(name, rules(few.tasks), model=model)
        for name, model in (("A", "tiny"), ("C", "other"))
    ]
    ask(*arms, asking=Quality(max_tokens=64, samples=2, seed=5), limit=3)
    found = {
        name: [(one.task, one.sample, one.seed, one.request_digest) for one in kept(tmp_path, name)]
        for name in "AC"
    }
    assert found["A"] == found["C"] and len(set(found["A"])) == 6
    assert [seed for _, _, seed, _ in found["A"]] == [
        seed_of(5, task, n) for task, n, _, _ in found["A"]
    ]


def test_requests_are_in_flight_together(
    tmp_path: Path, few: Loaded, scripted: Make, ask: Callable[..., Any]
) -> None:
    arm = scripted("A", rules(few.tasks, together=3))
    counts, _ = ask(arm, asking=Quality(max_tokens=64, concurrency=3))
    assert counts == {"answers": 6, "errors": 0}
    assert {one.task for one in kept(tmp_path)} == {task.id for task in few.tasks}
    assert all(one.attempts == 1 for one in kept(tmp_path))
    assert saved.read_asked(tmp_path / "camp", "A", "humaneval").concurrency == 3


def test_random_weights_are_not_asked(few: Loaded, scripted: Make, ask: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="random weights"):
        ask(scripted("A", rules(few.tasks), model="synthetic:tiny"))


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        ("armed-never-runs:prompt_lookup", "prompt_lookup: asked for"),
        ("unasked-runs:quantized_kv", "quantized_kv: not asked for"),
        ("incoherent", "the answer"),
    ],
)
def test_an_arm_that_is_not_what_it_says_is_not_asked(
    fault: str, verdict: str, tmp_path: Path, few: Loaded, scripted: Make, ask: Callable[..., Any]
) -> None:
    arm = scripted("A", rules(few.tasks), "--fault", fault, switches={"prompt_lookup": True})
    with pytest.raises(WindowFailed, match=verdict):
        ask(arm)
    assert kept(tmp_path) == []


def test_what_was_asked_otherwise_is_not_mixed(
    tmp_path: Path, few: Loaded, started: Arm, ask: Callable[..., Any]
) -> None:
    with pytest.raises(ReceiptError, match="another sampler"):
        ask(started, asking=Quality(max_tokens=65))
    with pytest.raises(ReceiptError, match="another seed"):
        ask(started, asking=Quality(max_tokens=64, seed=1))
    with pytest.raises(ReceiptError, match="another arm_digest"):
        ask(msgspec.structs.replace(started, env={"X": "1"}))
    other = msgspec.structs.replace(few.dataset, digest="0" * 64)
    with pytest.raises(ReceiptError, match="another dataset"):
        ask(started, loaded=(Loaded(other, few.tasks),))
    saved.asked_path(tmp_path / "camp", "A", "humaneval").unlink()
    with pytest.raises(ReceiptError, match="no such file, but there are answers"):
        ask(started)


def test_a_model_that_changed_on_disk_is_refused(
    tmp_path: Path, started: Arm, ask: Callable[..., Any]
) -> None:
    path = saved.asked_path(tmp_path / "camp", "A", "humaneval")
    asked = saved.read_asked(tmp_path / "camp", "A", "humaneval")
    path.write_bytes(
        msgspec.json.encode(msgspec.structs.replace(asked, model={"digest": "f" * 64}))
    )
    with pytest.raises(LaunchError, match="its weights changed on disk"):
        ask(started)


def test_an_engine_that_is_another_build_does_not_go_on(
    tmp_path: Path, started: Arm, ask: Callable[..., Any]
) -> None:
    path = saved.asked_path(tmp_path / "camp", "A", "humaneval")
    asked = saved.read_asked(tmp_path / "camp", "A", "humaneval")
    versions = {**asked.versions, "engine": {**asked.versions["engine"], "mlx": "0.1"}}
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(asked, versions=versions)))
    with pytest.raises(LaunchError, match=r"another than when earlier answers came \(mlx\)"):
        ask(started)


def test_another_sampler_ends_the_run_before_anything_is_kept(
    tmp_path: Path, few: Loaded, scripted: Make, ask: Callable[..., Any]
) -> None:
    arm = scripted("A", rules(few.tasks, sampler={"top_p": 0.5}))
    with pytest.raises(LaunchError, match=r"top_p: asked 0\.95, applied 0\.5"):
        ask(arm)
    assert kept(tmp_path) == []


def test_the_digest_of_answers_is_over_the_bytes_of_the_file(tmp_path: Path, started: Arm) -> None:
    path = saved.answers_path(tmp_path / "camp", "A", "humaneval")
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in kept(tmp_path))
    assert strict.digest(path.read_bytes()) == strict.digest(lines)
