"""`run --replay` from free campaign to verified page, and `beside`: the command line on the fake engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from calls import Said, battery
from test_cli import PLAN, arm_file

from battery.choices import plan_for
from battery.ledger.claims import Stopping
from battery.ledger.store import Campaign
from battery.ledger.trajectories import recorded

FREE = ("run", "--arms", "A,C", "--plan", "tiny", "--campaign", "free", "--seed", "31")
APART = ("--itl-ms", "4")
"""So far apart that a busy machine does not read two tokens at once."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished free campaign."""
    made = tmp_path_factory.mktemp("replays")
    for folder in ("arms", "plans"):
        (made / folder).mkdir()
    arm_file(made, "A", *APART)
    arm_file(made, "C", *APART, switches=["prompt_lookup"])
    arm_file(made, "L", *APART, "--fault", "ignores-forced")
    (made / "plans" / "tiny.toml").write_text(PLAN)
    done = battery(made, *FREE)
    assert done.returncode == 0, done.stderr
    return made


def test_a_replay_from_the_command_line_to_its_verified_page(root: Path) -> None:
    replayed = battery(root, "run", "--replay", "free")
    assert replayed.returncode == 0, replayed.stderr
    folder = root / "receipts" / "tiny-A-C-replay"
    source, kept = Campaign(root / "receipts" / "free"), Campaign(folder)
    seal, told = source.sealed(), kept.header().plan.replayed
    assert seal and told and told.seal == seal.seal and told.campaign == "free"
    assert kept.header().arms == source.header().arms
    page = (root / "reports" / "tiny-A-C-replay.md").read_text()
    who = f"token by token, what arm A wrote in the campaign `free` (seal `{told.seal[:16]}`)"
    assert who in page
    assert "battery run --arms A,C --replay free\n" in page
    assert "battery beside tiny-A-C-replay\n" in page
    assert "| forced_tokens: what arm A wrote in free" in page
    assert "Replayed" not in (root / "reports" / "free.md").read_text()
    held = battery(root, "verify", "tiny-A-C-replay")
    assert held.returncode == 0, held.stderr
    beside = battery(root, "beside", "tiny-A-C-replay", "--json")
    assert beside.returncode == 0, beside.stderr
    found = json.loads(beside.stdout)
    assert found["same_seal"] and found["source"]["campaign"] == "free"
    (primary,) = [one for one in found["sides"] if one["primary"]]
    assert primary["metric"] == "decode" and primary["blocks"] == 2
    for side in ("free", "replayed"):
        assert primary[side]["low"] < primary[side]["ratio"] < primary[side]["high"]


def test_only_a_plan_that_is_not_the_sources_own_is_kept_with_the_replay(root: Path) -> None:
    texts = recorded(Campaign(root / "receipts" / "free"))
    arms = texts.header.arms
    own = plan_for(None, arms, root, texts)
    assert own.replayed == texts.replay and own.replayed.plan is msgspec.UNSET
    assert plan_for("tiny", arms, root, texts).digest == own.digest
    # its rule ended the source after 2 of 8 blocks: the file of its name asks for more than there are texts
    longer = msgspec.structs.replace(
        texts.header.plan, blocks=8, stopping=Stopping(rule="looks", looks=(6, 8))
    )
    early = msgspec.structs.replace(
        texts, header=msgspec.structs.replace(texts.header, plan=longer)
    )
    short = plan_for(None, arms, root, early)
    assert short.replayed == texts.replay and (short.blocks, short.stopping.rule) == (2, "fixed")
    (root / "plans" / "less.toml").write_text(PLAN.replace("[64, 96]", "[64]"))
    less = plan_for("less", arms, root, texts)
    assert less.replayed is not None and less.replayed.plan == "less"
    assert less.replayed.texts == texts.replay


def test_another_plan_than_the_sources_is_named_on_the_replays_page(root: Path) -> None:
    (root / "plans" / "one.toml").write_text(PLAN.replace("blocks = 2", "blocks = 1"))
    line = ("run", "--arms", "A,C", "--plan", "one", "--replay", "free", "--campaign", "part")
    for _ in range(2):  # measured, then found finished
        done = battery(root, *line)
        assert done.returncode == 0, done.stderr
    page = (root / "reports" / "part.md").read_text()
    assert "battery run --plan one --arms A,C --replay free\n" in page


def test_an_engine_without_the_field_fails_the_campaign_loudly(root: Path) -> None:
    replayed = battery(root, "run", "--replay", "free", "--arms", "A,L", "--campaign", "again")
    assert replayed.returncode == 4
    assert "the switch was silently off" in replayed.stderr


def test_what_cannot_be_replayed_is_refused_with_the_reason(
    root: Path, say: Callable[..., Said]
) -> None:
    plan = (root / "plans" / "tiny.toml").read_text()
    table = '[replay]\ncampaign = "free"\nseal = "x"\narm = "A"\ndigest = "y"\n'
    (root / "plans" / "own.toml").write_text(plan + table)
    for words, told in (
        (("run", "--replay", "fre"), "did you mean 'free'"),
        (("run", "--replay", "free", "--seed", "5"), "whose seed is 31"),
        (("run", "--replay", "free:9"), "no complete block 9"),
        (("run", "--replay", "free", "--arms", "B"), "B"),
        (("beside", "free"), "free is no replay; make one with: battery run --replay free"),
        (("run", "--arms", "A,C", "--plan", "own"), "replay: cannot stand in a file"),
    ):
        said = say(root, *words)
        assert said.returncode == 2 and told in said.stderr, said.stderr
