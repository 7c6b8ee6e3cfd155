from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from battery.ledger.claims import Bar, Stopping
from battery.ledger.errors import PlanError
from battery.ledger.plan import LATER, Gate, Plan, check, load_plan
from battery.ledger.store import Campaign

GOOD = "ladder = [64, 128]\nblocks = 6\n"


def plan_file(folder: Path, text: str) -> str:
    path = folder / "p.toml"
    path.write_text(text)
    return str(path)


def test_every_packaged_plan_loads_and_quick_can_reach_a_verdict() -> None:
    quick, pr = load_plan("quick"), load_plan("pr")
    assert quick.blocks >= 6 and quick.blocks % 2 == 0
    assert pr.ladder == (1024, 8192, 16384, 32768, 65536, 131072, 261120)


def test_a_plan_of_the_project_hides_the_packaged_one(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text(GOOD)
    assert load_plan("quick", tmp_path).ladder == (64, 128)


def test_the_anchor_is_the_longest_rung_unless_named(tmp_path: Path) -> None:
    assert load_plan(plan_file(tmp_path, GOOD)).anchor == 128
    assert load_plan(plan_file(tmp_path, GOOD + "[primary]\nrung = 64\n")).anchor == 64


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD + "[gate]\nbaseline_s = 601\n", "gate.baseline_s: must be between 0 and 600"),
        (GOOD + "[limits]\nreruns = 10\n", "limits.reruns: must be between 0 and 9"),
        ("ladder = [64]\nblocks = 6\nsede = 3\n", "unknown key 'sede'; did you mean 'seeds'?"),
        (
            GOOD + "[gate]\nmax_bussy = 1\n",
            "unknown key 'gate.max_bussy'; did you mean 'max_busy'?",
        ),
        ("ladder = [128, 64]\nblocks = 6\n", "ladder: must ascend"),
        ("ladder = []\nblocks = 6\n", "ladder: give context lengths"),
        ("ladder = [64]\nblocks = 0\n", "blocks: must be between 1 and 99"),
        (GOOD + "[sampler]\nmin_tokens = 99\n", "sampler.min_tokens"),
        (GOOD + "[margins]\ndecode = -2\n", "margins.decode: must be above 0"),
        (GOOD + "[limits]\nrequest_s = 0\n", "limits.request_s: must be above 0"),
        (GOOD + "[limits]\nmemory_limit_gb = 0\n", "limits.memory_limit_gb: must be above 0"),
        ("seeds = 100\n" + GOOD, "seeds: must be between 1 and 99"),
        (GOOD + "[primary]\nrung = 65\n", "65 is not on the ladder"),
        (GOOD + "[sampler]\ntemperature = -1\n", "sampler.temperature"),
        ('ladder = "64"\nblocks = 6\n', "p.toml: Expected `array`"),
    ],
)
def test_a_wrong_plan_names_file_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(PlanError) as raised:
        load_plan(plan_file(tmp_path, text))
    assert complaint in str(raised.value) and "p.toml" in str(raised.value)


def test_an_unknown_plan_names_the_known(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no plan 'quik'; did you mean 'quick'"):
        load_plan("quik", tmp_path)


def test_margins_fall_back_to_decode(tmp_path: Path) -> None:
    margins = load_plan(
        plan_file(tmp_path, GOOD + "[margins]\ndecode = 0.03\nttft = 0.07\n")
    ).margins
    assert (margins.of("decode"), margins.of("ttft"), margins.of("tpot")) == (0.03, 0.07, 0.03)


def test_the_digest_does_not_tell_20_from_20_point_0_nor_prose(tmp_path: Path) -> None:
    whole = load_plan(plan_file(tmp_path, GOOD + "[gate]\nwait_s = 20\n"))
    same = load_plan(plan_file(tmp_path, 'why = "x"\n' + GOOD + "[gate]\nwait_s = 20.0\n"))
    other = load_plan(plan_file(tmp_path, GOOD + "[gate]\nwait_s = 21\n"))
    made = Plan(name="p", ladder=(64, 128), blocks=6, gate=Gate(wait_s=20))
    assert whole.digest == same.digest == made.digest != other.digest


def test_a_limit_that_is_no_number_is_refused() -> None:
    plan = Plan(ladder=(64,), blocks=2, gate=Gate(max_busy=float("nan")))
    with pytest.raises(PlanError, match=r"gate\.max_busy: must be a number"):
        check(plan, "here")


CLAIMS = {"stopping": Stopping(rule="precision", half_width=0.02), "bars": (Bar(at_least=0.03),)}


def test_keys_that_came_later_leave_the_digests_of_older_plans_as_they_were() -> None:
    header = Campaign(Path(__file__).parents[2] / "receipts" / "reference-cpu").header()
    assert header.plan.digest == header.plan_digest, "measured before any of these keys"
    for table, key in LATER:
        room = getattr(header.plan, table) if table else header.plan
        value = getattr(room, key)
        other = CLAIMS.get(key, (not value) if isinstance(value, bool) else 7)
        changed = msgspec.structs.replace(room, **{key: other})
        if not table:
            assert changed.digest != header.plan_digest
            continue
        assert msgspec.structs.replace(header.plan, **{table: changed}).digest != header.plan_digest


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ('[stopping]\nrule = "looks"\n', "end with the plan's 12 blocks"),
        ('[stopping]\nrule = "looks"\nlooks = [6, 10]\n', "end with the plan's 12 blocks"),
        ('[stopping]\nrule = "looks"\nlooks = [4, 12]\n', "six blocks are the fewest"),
        ('[stopping]\nrule = "precision"\n', "half_width: must be above 0"),
        ("[stopping]\nhalf_width = 0.02\n", 'only with rule = "precision"'),
        ("[stopping]\nlooks = [6, 12]\n", 'only with rule = "looks"'),
        (
            '[stopping]\nrule = "looks"\nlooks = [6, 12]\nlevel = 0.05\n',
            "level: must be above 0 and at most 0.025",
        ),
        ("[[bars]]\n", "give at_least and/or at_most"),
        ("[[bars]]\nat_least = 0.03\nrung = 999\n", "999 is not on the ladder"),
        ("[[bars]]\nat_least = -1.5\n", "shares above"),
        ('[[bars]]\nsuite = "humaneval"\n', "suite and within"),
        ('[[bars]]\nsuite = "humaneval"\nwithin = 5\n', "0.05 is 5 points"),
    ],
)
def test_claims_that_cannot_be(tmp_path: Path, words: str, complaint: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(f"ladder = [128]\nblocks = 12\n{words}")
    with pytest.raises(PlanError, match=complaint):
        load_plan(str(path))


def test_the_level_of_the_tests_follows_the_stopping_rule(tmp_path: Path) -> None:
    assert Stopping().alpha == 0.05
    assert Stopping(rule="looks", looks=(6, 8, 10, 12)).alpha == 0.018
    assert Stopping(rule="looks", looks=(6, 16, 40, 99)).alpha == 0.0125, "looks that lie far apart"
    assert Stopping(rule="looks", looks=(6, 12)).alpha == 0.025
    path = tmp_path / "p.toml"
    path.write_text('ladder = [128]\nblocks = 12\n[stopping]\nrule = "looks"\nlooks = [6, 12]\n')
    plan = load_plan(str(path))
    assert plan.stopping.level == 0.025, "it is in the plan, and so in its digest"
    assert load_plan("quick").stopping.level is None
    assert Stopping(rule="looks", looks=(6, 7, 8, 9, 10)).alpha == pytest.approx(0.01)
    assert Stopping(rule="precision", half_width=0.02).alpha == 0.03
