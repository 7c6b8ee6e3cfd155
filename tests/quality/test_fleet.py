"""A fleet grades as one machine does: how work is cut and dealt, what fails where, and what the receipt says of it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from answered import Here, answer, campaign, mixed, verdicts
from calls import Said
from hypothesis import given
from hypothesis import strategies as st
from posts import FAULTY, Broken, Confused, Dying, Forgetful, Other

from battery.ledger import saved
from battery.quality import reference
from battery.quality.fleet import cluster
from battery.quality.fleet.driver import Fleet
from battery.quality.fleet.post import Post
from battery.quality.fleet.shards import FILL, PARTS, Came, Judged, Shard, cut, spread
from battery.quality.grade import Grader
from battery.quality.sandbox.pool import GraderError, Outcome
from battery.quality.score import score_suite
from battery.quality.sheet import Program
from battery.quality.tasks import Loaded


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless answer takes a second of the processor, however long canonical solutions take today."""
    monkeypatch.setattr(reference, "FLOOR_S", 1.0)
    monkeypatch.setattr(reference, "OF_MEDIAN", 1)
    monkeypatch.setattr(reference, "OF_OWN", 1)


weights = st.lists(st.floats(0, 100), min_size=1, max_size=60)


@given(weights, st.integers(1, 5), st.integers(1, 4))
def test_shards_hold_every_program_once_and_weigh_about_the_same(
    seconds: list[float], machines: int, at_once: int
) -> None:
    programs = [Program(str(number), "") for number in range(len(seconds))]
    by_task = {str(number): weight for number, weight in enumerate(seconds)}
    shards = cut(programs, by_task, machines, at_once)
    assert sorted(p for shard in shards for p in shard.programs) == sorted(programs)
    assert [shard.weight for shard in shards] == sorted((s.weight for s in shards), reverse=True)
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert len(shards) <= max(machines, PARTS * machines)
    for shard in shards:
        own = [by_task[program.task] for program in shard.programs]
        assert own == sorted(own, reverse=True)
    # whoever takes the lightest so far is never more than one program ahead
    assert shards[0].weight - shards[-1].weight <= max(seconds) + 1


def test_shards_are_no_smaller_than_a_machine_can_judge_at_once() -> None:
    programs = [Program(str(number), "") for number in range(100)]
    assert len(cut(programs, {}, 2, 1)) == 2 * PARTS
    for at_once in (4, 8, 16):
        shards = cut(programs, {}, 2, at_once)
        assert min(len(shard.programs) for shard in shards) >= FILL * at_once
    assert len(cut(programs, {}, 2, 64)) == 2
    assert len(cut(programs[:1], {}, 2, 1)) == 1 and cut([], {}, 2, 1) == []


class Scripted:
    """A crew whose machines fail as told: `{machine: [None, "why", "gone: why"]}`, a word for each shard in turn."""

    def __init__(self, script: dict[str, list[str | None]]) -> None:
        self.script, self.sent = script, list[tuple[str, int]]()
        self._flying: list[tuple[str, Shard]] = []

    def send(self, machine: str, shard: Shard) -> None:
        assert machine not in [name for name, _ in self._flying], "one shard at a time"
        self.sent.append((machine, shard.number))
        self._flying.append((machine, shard))

    def wait(self) -> Came:
        machine, shard = self._flying.pop(0)
        why = self.script[machine].pop(0) if self.script[machine] else None
        if why is not None:
            return Came(machine, failed=why, gone=why.startswith("gone"))
        found = [Judged(n, "key", Outcome(status="passed")) for n in range(len(shard.programs))]
        return Came(machine, found)


def dealt(script: dict[str, list[str | None]], shards: int = 4) -> tuple[Scripted, Counter[int]]:
    crew = Scripted(script)
    made = [Shard(number, (Program("t", str(number)),), 1.0) for number in range(shards)]
    return crew, Counter(shard.number for _, shard, _ in spread(crew, list(script), made))


def test_the_heaviest_shards_go_out_first_and_each_is_judged_once() -> None:
    crew, came = dealt({"a": [], "b": []})
    assert came == Counter(range(4))
    assert [number for _, number in crew.sent] == [0, 1, 2, 3]


@pytest.mark.parametrize("why", ["gone: killed", "no verdict"])
def test_a_shard_that_failed_is_judged_by_another_machine(why: str) -> None:
    crew, came = dealt({"a": [why], "b": []})
    assert came == Counter(range(4))
    assert [machine for machine, number in crew.sent if number == 0] == ["a", "b"]
    after = [machine for machine, _ in crew.sent[2:]]
    assert ("a" in after) == (why == "no verdict")


def test_a_machine_that_is_left_alone_tries_its_own_shard_again() -> None:
    crew, came = dealt({"a": ["no verdict"], "b": ["gone"]}, shards=3)
    assert came == Counter(range(3))
    assert crew.sent == [("a", 0), ("b", 1), ("a", 2), ("a", 1), ("a", 0)]
    assert dealt({"a": ["no verdict"]})[1] == Counter(range(4))


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ({"a": ["one"], "b": [None, "two"]}, "1 programs could not be graded, twice: a: one; b: two"),
        ({"a": ["same", "same"]}, "twice: a: same"),
        ({"a": ["gone: lost"]}, "no machine of the fleet is left to grade: a: gone: lost"),
        ({}, "none took part"),
    ],
)  # fmt: skip
def test_what_fails_twice_or_has_no_machine_is_an_error(
    script: dict[str, list[str | None]], told: str
) -> None:
    with pytest.raises(GraderError, match=told):
        dealt(script)


def test_verdicts_that_are_not_the_shards_are_none() -> None:
    class Short(Scripted):
        def wait(self) -> Came:
            return super().wait()._replace(verdicts=())

    with pytest.raises(GraderError, match="0 verdicts came for 1 programs"):
        list(spread(Short({"a": []}), ["a"], [Shard(0, (Program("t", ""),), 1.0)]))


def local(loaded: Loaded, answers: Sequence[object]) -> list[tuple[object, ...]]:
    with Grader(loaded.tasks, workers=1) as grader:
        return verdicts(grader.grade(answers))  # type: ignore[arg-type]


def test_a_fleet_gives_the_rows_of_one_machine(few: Loaded, tmp_path: Path) -> None:
    first, second = mixed(few), [answer(task.id, task.solution) for task in few.tasks]
    notes: list[str] = []
    crew = Here()
    with Fleet(few.tasks, crew, cache=tmp_path, say=notes.append) as fleet:
        rows = list(fleet.each([first, second]))
        told = fleet.told()
    assert verdicts(rows[0]) == local(few, first) and verdicts(rows[1]) == local(few, second)
    assert {row.status for row in rows[0]} == {
        "passed", "failed", "timeout", "cut_off", "syntax_error", "empty",
    }  # fmt: skip
    assert "2 of 2 machines grade" in notes[0]
    ran = sum(len(shard.programs) for _, shard in crew.sent)
    assert len({machine for machine, _ in crew.sent}) == 2
    assert sum(one.programs for one in told.machines) == ran
    assert all(one.fences == told.fences and one.self_test for one in told.machines)
    assert told.self_test["canonical_passed"] == len(few.tasks)
    again = Here()
    with Fleet(few.tasks, again, cache=tmp_path) as fleet:
        kept = list(fleet.each([first, second]))
    assert [verdicts(one) for one in kept] == [verdicts(one) for one in rows]
    assert sum(len(shard.programs) for _, shard in again.sent) == 1, (
        "only a timeout is found out again"
    )


def test_a_verdict_is_not_found_under_other_limits(
    few: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_ = [answer(task.id, task.solution) for task in few.tasks]
    crews = []
    for floor in (1.0, 1.0, 8.0):
        monkeypatch.setattr(reference, "FLOOR_S", floor)
        crews.append(Here(1))
        with Fleet(few.tasks, crews[-1], cache=tmp_path) as fleet:
            assert all(row.passed for rows in fleet.each([given_]) for row in rows)
    assert [bool(crew.sent) for crew in crews] == [True, False, True]


@pytest.mark.parametrize(
    ("post", "why"),
    [(Broken, "its canonical solution does not pass"), (Other, "its grader is")],
    ids=["broken", "other"],
)
def test_a_machine_that_may_not_grade_is_named_and_grades_nothing(
    few: Loaded, post: type[Post], why: str
) -> None:
    given_ = [answer(task.id, task.solution) for task in few.tasks]
    crew, notes = Here(post=post), list[str]()
    with Fleet(few.tasks, crew, say=notes.append) as fleet:
        (rows,) = fleet.each([given_])
        told = fleet.told()
    assert all(row.passed for row in rows)
    assert {machine for machine, _ in crew.sent} == {"machine 1"}
    assert notes[0].startswith(f"{FAULTY} grades nothing") and why in notes[0]
    good, bad = told.machines
    assert good.refused is None and good.programs == len(rows)
    assert bad.label == FAULTY and why in (bad.refused or "") and bad.programs == 0


def test_a_fleet_without_a_machine_that_may_grade_refuses(few: Loaded) -> None:
    class Worse(Broken):
        def __init__(self, brief: object, workers: int, label: str) -> None:
            super().__init__(brief, workers, FAULTY)  # type: ignore[arg-type]

    with pytest.raises(
        GraderError, match="no machine of the fleet may grade: machine 1: HumanEval"
    ):
        Fleet(few.tasks, Here(1, Worse)).__enter__()


@pytest.mark.parametrize("post", [Dying, Forgetful])
def test_a_shard_whose_machine_fails_is_graded_by_the_other(few: Loaded, post: type[Post]) -> None:
    given_ = mixed(few, endless=0)
    crew, notes = Here(post=post), list[str]()
    with Fleet(few.tasks, crew, say=notes.append) as fleet:
        (rows,) = fleet.each([given_])
        told = fleet.told()
    assert verdicts(rows) == local(few, given_)
    lost = told.machines[1]
    if post is Dying:
        assert lost.refused == "its worker ended" and lost.programs == 0
        assert any(note.startswith(f"{FAULTY} failed a shard") for note in notes)
    assert sum(one.programs for one in told.machines) == len(
        {program for _, shard in crew.sent for program in shard.programs}
    )


def test_a_campaign_has_the_scores_that_one_machine_gives_it(few: Loaded, tmp_path: Path) -> None:
    arms = {"A": mixed(few, endless=0), "C": [answer(one.id, one.solution) for one in few.tasks]}
    folder = campaign(tmp_path, few, arms)
    alone = list(score_suite(folder, few, arms, workers=1))
    together = list(score_suite(folder, few, arms, fleet=functools.partial(Fleet, crew=Here())))
    assert [one.arm.name for one in together] == ["A", "C"]
    for one, other in zip(alone, together, strict=True):
        assert verdicts(one.graded) == verdicts(other.graded)
        assert other == saved.read_scores(folder, other.arm.name, "humaneval")
        assert one.grader.version == other.grader.version and one.grader.machines == ()
        assert [m.label for m in other.grader.machines] == ["machine 1", "machine 2"]
    assert [row.status for row in together[1].graded].count("request_error") == 2 * len(few.tasks)


def test_nothing_is_scored_where_a_shard_fails_twice(few: Loaded, tmp_path: Path) -> None:
    folder = campaign(tmp_path, few, {"A": mixed(few, endless=0)})
    with pytest.raises(GraderError, match="twice: machine 1: no verdict: the sandbox is confused"):
        list(
            score_suite(
                folder, few, ["A"], fleet=functools.partial(Fleet, crew=Here(post=Confused))
            )
        )
    assert saved.read_scores(folder, "A", "humaneval") is None


@pytest.mark.parametrize("address", ["camp", "--json", "host", "http://host:1", "host:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(cluster.InputError, match="no address; give local, auto, or HOST:PORT"):
        cluster.possible(address)


def test_without_ray_the_way_to_it_is_told(
    say: Callable[..., Said], tmp_path: Path, few: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    campaign(tmp_path, few, {"A": []})
    said = say(tmp_path, "score", "camp", "--allow-code-execution", "--fleet", "local")
    assert said.returncode == 2 and "pip install 'battery[fleet]'" in said.stderr
