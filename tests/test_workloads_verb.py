"""Several workloads from the plan's file to the verified page: the fake engine, which drafts on some texts only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from calls import Said, battery
from test_cli import PLAN, arm_file

from battery.analyse.findings import analyse
from battery.bench import prompts, schedule
from battery.bench.preflight import PromptFile
from battery.bench.run import Conductor
from battery.choices import plan_for
from battery.ledger.arm import load_arm
from battery.ledger.cell import Window
from battery.ledger.errors import PlanError
from battery.ledger.plan import Plan, Workload, load_plan
from battery.ledger.store import Campaign
from battery.ledger.trajectories import recorded
from battery.render.verify import verify

MIX: tuple[Workload, ...] = ("prose", "code", "edit")
MIXED = 'workloads = ["prose", "code", "edit"]\nseeds = 3\n' + PLAN.replace("[64, 96]", "[96]")
EDITS = ("--tokens-per-event", "3", "--speculates-on", "Repeat the Python file")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished campaign over three workloads; C drafts on edits alone."""
    made = tmp_path_factory.mktemp("kinds")
    for folder in ("arms", "plans"):
        (made / folder).mkdir()
    arm_file(made, "A", "--itl-ms", "6")
    arm_file(made, "C", "--itl-ms", "6", *EDITS, switches=["prompt_lookup"])
    (made / "plans" / "mixed.toml").write_text(MIXED)
    done = battery(
        made, "run", "--arms", "A,C", "--plan", "mixed", "--campaign", "mixed", "--seed", "31"
    )
    assert done.returncode == 0, done.stderr
    return made


def test_every_window_has_every_workload_and_its_receipts_say_which(root: Path) -> None:
    campaign = Campaign(root / "receipts" / "mixed")
    plan, receipts = campaign.header().plan, campaign.receipts()
    seen = Counter(
        (r.cell.window.number, r.request.workload) for r in receipts if not r.cell.sentinel
    )
    assert seen == {(window, workload): 1 for window in range(1, 5) for workload in MIX}
    assert {r.outcome for r in receipts} == {"ok"} and len(receipts) == 16
    sized = campaign.prompts(PromptFile)
    assert sized.workload == "prose, code, edit"
    known = {prompt.seed: prompt for prompt in sized.prompts}
    bodies: dict[int, set[str]] = {}
    for r in receipts:
        prompt, workload = known[r.cell.seed], r.request.workload
        assert workload == schedule.workload_of(plan, r.cell.seed)
        told = prompts.compose(workload, prompt.seed, prompt.rung, prompt.words, prompt.letters)
        task = {"prose": "Continue the passage", "code": "Continue the", "edit": "Repeat the"}
        assert f"\n\n{task[workload]}" in told[1]["content"]
        bodies.setdefault(r.cell.seed, set()).add(r.request.body_digest)
    assert all(len(digests) == 1 for digests in bodies.values()), "the same request of every arm"


def test_drafts_that_stand_on_one_kind_of_text_are_found_there_alone(root: Path) -> None:
    found = analyse(root / "receipts" / "mixed")
    assert found.pilot
    for kind in found.by_workload:
        gain = kind.comparison("C", "tokens_per_step", 96)
        assert gain is not None and gain.estimate is not None
        drafts = kind.workload == "edit"
        # eleven tokens after the first event of three: three steps
        assert gain.estimate.ratio == pytest.approx(3.0 if drafts else 1.0, rel=1e-6)
        accepted = kind.level("C", "acceptance", 96)
        assert (accepted is not None and accepted.value == pytest.approx(1.0)) == drafts
        assert kind.comparison("C", "acceptance", 96) is None, "the control proposes nothing"


def test_page_and_chart_hold_and_a_lost_chart_is_missed(root: Path) -> None:
    assert verify(root, "mixed") == []
    page = (root / "reports" / "mixed.md").read_text()
    assert "### 1.6.1 Speculation by workload" in page
    assert "](../charts/mixed/workloads.svg)" in page
    assert "C has no verdict on prose (" in page, "a pilot claims nothing"
    chart = root / "charts" / "mixed" / "workloads.svg"
    kept = chart.read_bytes()
    chart.unlink()
    (missed,) = verify(root, "mixed")
    assert missed.place.endswith("workloads.svg") and missed.what == "the chart is missing"
    chart.write_bytes(kept)


def test_a_replay_follows_every_workload_and_one_of_other_workloads_is_refused(
    root: Path, say: Callable[..., Said]
) -> None:
    prose = MIXED.replace('workloads = ["prose", "code", "edit"]', 'workload = "prose"')
    (root / "plans" / "prose.toml").write_text(prose)
    said = say(root, "run", "--replay", "mixed", "--plan", "prose", "--campaign", "other")
    assert said.returncode == 2
    assert "its workload is prose, that of mixed is prose, code, edit" in said.stderr
    texts = recorded(Campaign(root / "receipts" / "mixed"))
    plan = plan_for(None, texts.header.arms, root, texts)
    arms = [load_arm(name, root / "arms") for name in ("A", "C")]
    lock = root / "battery.lock"
    counts = Conductor(plan, arms, root / "receipts" / "again", lock=lock, recorded=texts).run()
    assert counts == {"ok": 16}
    replayed, free = (Campaign(root / "receipts" / name).receipts() for name in ("again", "mixed"))
    wrote = {r.cell.seed: r.text.ids for r in free if r.text and r.cell.arm == "A"}
    assert all(r.text and r.text.ids == wrote[r.cell.seed] for r in replayed)
    assert {r.request.workload for r in replayed} == set(MIX)


def test_the_plan_says_how_the_workloads_share_the_seeds(
    root: Path, say: Callable[..., Said]
) -> None:
    said = say(root, "plan", "--arms", "A,C", "--plan", "mixed")
    assert "3 seeds a rung (1 each of prose, code, edit)" in said.stdout


def mixed(**changes: object) -> Plan:
    plan = Plan(name="m", ladder=(96,), blocks=6, seeds=6, workloads=MIX)
    return msgspec.structs.replace(plan, **changes)


def test_each_workload_opens_a_window_in_turn_and_all_arms_of_a_block_agree() -> None:
    opened = []
    for block in range(1, 7):
        rows = [
            [
                (cell.seed, schedule.workload_of(mixed(), cell.seed))
                for cell in schedule.cells(Window(block, place, 1, arm), mixed(), 7)
                if not cell.sentinel
            ]
            for place, arm in enumerate("AC")
        ]
        assert rows[0] == rows[1]
        assert Counter(workload for _, workload in rows[0]) == dict.fromkeys(MIX, 2)
        opened.append(rows[0][0][1])
    assert opened == [*MIX, *MIX]


def test_prompts_that_are_sized_are_those_that_are_asked_for() -> None:
    plan = mixed()
    needed = schedule.prompts_needed(plan, 7)
    asked = {
        (cell.rung, cell.seed)
        for block in range(1, 7)
        for cell in schedule.cells(Window(block, 0, 1, "A"), plan, 7)
    }
    assert set(needed) == asked and len(needed) == len(asked) == 37


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('workloads = ["code"]\nseeds = 2', "name at least two"),
        ('workloads = ["code", "code"]\nseeds = 2', "each once"),
        ('workloads = ["code", "edit"]\nseeds = 3', "must be a multiple of the 2 workloads"),
        ('workloads = ["code", "edit"]\nworkload = "edit"\nseeds = 2', "leave it out"),
        ('workloads = ["code", "poems"]\nseeds = 2', "poems"),
    ],
    ids=["one", "twice", "uneven", "both", "unknown"],
)
def test_a_plan_that_cannot_share_is_refused_with_the_reason(
    lines: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "p.toml").write_text(f"{lines}\nladder = [96]\nblocks = 6\n")
    with pytest.raises(PlanError, match=told):
        load_plan("p", tmp_path)


def test_a_plan_of_one_workload_has_the_bytes_and_the_digest_that_it_had() -> None:
    plan = Plan(name="m", ladder=(96,), blocks=6)
    assert b"workloads" not in msgspec.json.encode(plan) and plan.mix == ("prose",)
    assert plan.digest == Plan(name="m", ladder=(96,), blocks=6, workload="prose").digest
    assert (
        len({plan.digest, mixed().digest, mixed(workloads=("code", "prose", "edit")).digest}) == 3
    )
