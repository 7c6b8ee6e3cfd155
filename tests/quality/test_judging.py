"""Programs judged in the sandbox: known verdicts for every kind of test, and values that stay where they are."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from planted import SHORT, TIGHT, adding

from battery.quality import jobs
from battery.quality.sandbox import pool
from battery.quality.sandbox.limits import Limits
from battery.quality.sandbox.pool import GraderError, Job, Outcome, Sandbox
from battery.quality.tasks import Task


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(1) as made:
        yield made


def one(sandbox: Sandbox, job: Job) -> Outcome:
    ((_, found),) = sandbox.run([job])
    return found


def plus(code: str, **changes: object) -> Task:
    told = {
        "suite": "humaneval+", "id": "Try/1", "prompt": "def twice(x):\n    pass\n", "entry_point": "twice",
        "canonical": "    return 2 * x\n", "base_input": ((1,), (2,)), "plus_input": ((0,), (-3,), (2.5,)),
    }  # fmt: skip
    return Task(**{**told, **changes})  # type: ignore[arg-type]


def held(sandbox: Sandbox, task: Task, code: str, limits: Limits = TIGHT) -> Outcome:
    recorded = one(sandbox, jobs.job(task, task.prompt + task.canonical, TIGHT))
    assert recorded.status == "passed" and len(recorded.expected) == 5
    return one(sandbox, jobs.job(task, code, limits, expected=recorded.expected))


@pytest.mark.parametrize(
    ("code", "status", "base"),
    [
        ("def twice(x):\n    return x + x\n", "passed", True),
        ("def twice(x):\n    return float(x + x)\n", "passed", True),
        ("def twice(x):\n    return x + x if x > 0 else 1\n", "failed", True),
        ("def twice(x):\n    return x * x\n", "failed", False),
        ("def twice(x):\n    return int(2 * x)\n", "passed", True),
        ("def twice(x):\n    return 2 * x if x else exit(0)\n", "failed", True),
        ("def twice(x):\n    while x < 0: pass\n    return 2 * x\n", "timeout", True),
        ("def twice(x:\n", "syntax_error", None),
    ],
)
def test_base_and_plus_are_graded_apart(
    sandbox: Sandbox, code: str, status: str, base: bool | None
) -> None:
    found = held(sandbox, plus(code), code, SHORT)
    assert (found.status, found.base) == (status, base)


def test_a_long_result_with_other_bytes_is_compared_by_value(sandbox: Sandbox) -> None:
    task = plus("", canonical="    return [float(x)] * 5000\n")
    right = "def twice(x):\n    return [int(x) if x == int(x) else x] * 5000\n"
    assert held(sandbox, task, right).status == "passed"
    wrong = "def twice(x):\n    return [float(x)] * 4999 + [x + 1]\n"
    assert held(sandbox, task, wrong).status == "failed"


def test_a_program_that_changes_its_arguments_changes_only_its_own(sandbox: Sandbox) -> None:
    task = plus(
        "",
        base_input=(([1],), ([2],)),
        plus_input=(([],), ([0, 0],), ([5],)),
        canonical="    return x + x\n",
    )
    spoils = "def twice(x):\n    found = x + x\n    x.append(9)\n    return found\n"
    assert held(sandbox, task, spoils).status == "passed"


@pytest.mark.parametrize(
    ("code", "test", "status"),
    [
        ("def add(x, y):\n    yield x\n    yield y\n", "assert list(candidate(1, 2)) == [1, 2]", "passed"),
        ("def add(x, y): return lambda z: x + y + z\n", "assert candidate(1, 2)(3) == 6", "passed"),
        ("import re\ndef add(x, y): return re.match(x, y)\n", "assert candidate('a', 'ab')", "passed"),
        ("import re\ndef add(x, y): return re.match(x, y)\n", "assert not candidate('b', 'ab')", "passed"),
        ("import numpy\ndef add(x, y): return numpy.float64(x) + y\n", "assert abs(candidate(1, 2) - 3) < 1e-9",
         "passed"),
        ("import numpy\ndef add(x, y): return numpy.array([x, y])\n", "assert candidate(1, 2) == [1, 2]", "failed"),
        ("async def add(x, y): return x + y\n", "assert candidate(1, 2) == 3", "failed"),
        ("def add(x, y): return {x: [y]}\n", "assert candidate(1, 2) == {1: [2]}", "passed"),
        ("def add(x, y): return object()\n", "assert candidate(1, 2) == 3", "failed"),
        ("def add(x, y): raise ValueError('no')\n",
         "try: candidate(1, 2)\n    except ValueError: return\n    assert False", "passed"),
        ("class Pair(tuple): pass\ndef add(x, y): return Pair((x, y))\n", "assert candidate(1, 2) == (1, 2)", "passed"),
        ("def add(x, y): return x\n", "assert candidate(candidate(1, 2), 3) == 1", "passed"),
        ("class Box:\n    def __init__(self, v): self.v = v\ndef add(x, y=0): return Box(x) if y else x.v\n",
         "assert candidate(candidate(7, 1)) == 7", "passed"),
        ("import nowhere\n", "assert candidate(1, 2) == 3", "import_error"),
        ("def add(x, y):\n    import nowhere\n", "assert candidate(1, 2) == 3", "import_error"),
        ("def plus(x, y): return x + y\n", "assert candidate(1, 2) == 3", "failed"),
        ("def add(x, y): return eval('x +')\n", "assert candidate(1, 2) == 3", "failed"),
    ],
)  # fmt: skip
def test_values_that_do_not_travel_answer_from_where_they_are(
    sandbox: Sandbox, code: str, test: str, status: str
) -> None:
    assert one(sandbox, adding(code, test=f"def check(candidate):\n    {test}\n")).status == status


def test_mbpp_names_may_shadow_built_in_ones(sandbox: Sandbox) -> None:
    task = Task(
        suite="mbpp", id="Mbpp/126", prompt="", entry_point="sum", canonical="", test_imports=("import math",),
        asserts=("assert sum(10, 15) == math.gcd(10, 15) + 1", "assert set([sum(2, 4)]) == {3}"),
    )  # fmt: skip
    code = "def sum(a, b):\n    return 6 if a == 10 else 3\n"
    assert one(sandbox, jobs.job(task, code, TIGHT)).status == "passed"
    assert one(sandbox, jobs.job(task, "def sum(a, b): return 3\n", TIGHT)).status == "failed"


def test_set_up_code_may_use_what_the_answer_defines(sandbox: Sandbox) -> None:
    task = Task(
        suite="mbpp", id="Mbpp/367", prompt="", entry_point="depth", canonical="",
        test_setup_code="root = Node(1)\nroot.left = Node(2)\n", asserts=("assert depth(root) == 2",),
    )  # fmt: skip
    code = """
class Node:
    def __init__(self, data): self.data, self.left = data, None
def depth(node): return 0 if node is None else 1 + depth(node.left)
"""
    assert one(sandbox, jobs.job(task, code, TIGHT)).status == "passed"


@pytest.mark.parametrize(
    ("made", "status"),
    [
        ("[numpy.float64(one) * (1 + 1e-9) for one in x]", "passed"),
        ("tuple(numpy.float64(one) * (1 + 1e-9) for one in x)", "failed"),
        ("[numpy.float64(one) * (1 + 1e-4) for one in x]", "failed"),
        ("numpy.array(x) * (1 + 1e-9)", "failed"),
    ],
)
def test_a_list_of_numpys_numbers_may_be_as_near_as_one_of_floats(
    sandbox: Sandbox, made: str, status: str
) -> None:
    """EvalPlus 0.3.1 asks for the same type of the whole and nearness of its numbers."""
    task = plus(
        "",
        canonical="    return list(x)\n",
        base_input=(([1.5, 2.5],), ([0.1],)),
        plus_input=(([3.7],),) * 3,
    )
    code = f"import numpy\ndef twice(x):\n    return {made}\n"
    assert held(sandbox, task, code).status == status


def test_broken_tests_are_the_graders_fault_and_no_verdict(sandbox: Sandbox) -> None:
    for test in ("import nowhere_at_all", "def check(candidate:", "x = 1"):
        with pytest.raises(GraderError, match="no verdict"):
            one(sandbox, adding("def add(x, y): return x + y\n", test=test))
    with pytest.raises(GraderError, match="cannot be sent"):
        one(
            sandbox,
            adding(
                "def add(x, y): return 1\n", test="def check(candidate): candidate(lambda: 0, 1)\n"
            ),
        )


def test_heavy_jobs_start_first_and_all_come_back(sandbox: Sandbox) -> None:
    weights = [0.1, 3.0, 0.2, 2.0]
    made = [adding("def add(x, y): return x + y\n", name=str(weight)) for weight in weights]
    heavy = [msgspec.structs.replace(job, weight=float(job.id)) for job in made]
    assert [job.id for job, _ in sandbox.run(heavy)] == ["3.0", "2.0", "0.2", "0.1"]


def test_a_timeout_counts_only_if_it_comes_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine was slow, not the program: the first try of every job runs out of time, on every server at once."""
    whole, running, tries, company = pool._Server.judged, set(), [], []

    def judged(server: pool._Server, job: Job) -> Outcome:
        tries.append(job.id)
        running.add((job.id, tries.count(job.id)))
        company.append(len(running))
        found = whole(server, job)
        running.remove((job.id, tries.count(job.id)))
        late = job.id != "quick" and tries.count(job.id) == 1
        return Outcome(status="timeout") if late else found

    monkeypatch.setattr(pool._Server, "judged", judged)
    right, wrong = "def add(x, y): return x + y\n", "def add(x, y): return x\n"
    asked = [
        adding(code, name=name) for name, code in (("quick", right), ("a", right), ("b", wrong))
    ]
    with Sandbox(2) as both:
        found = {job.id: (one.status, one.retried) for job, one in both.run(asked)}
    assert found == {"quick": ("passed", False), "a": ("passed", True), "b": ("failed", True)}
    assert sorted(tries) == ["a", "a", "b", "b", "quick"]
    assert company[-2:] == [1, 1], "each alone"
