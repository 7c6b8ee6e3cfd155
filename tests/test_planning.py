"""`battery plan --power` and `battery combine` as a script sees them, on committed campaigns and planted ones."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from battery.bench import sensors
from battery.choices import seconds_of
from battery.ledger.errors import InputError
from battery.ledger.plan import load_plan
from battery.ledger.receipt import Receipt

sys.path.insert(0, str(Path(__file__).parent / "analyse"))
import synthetic

ROOT = Path(__file__).parents[1]
PLAN = """
ladder = [128, 384]
blocks = 8
seeds = 2
[sampler]
max_tokens = 48
min_tokens = 16
"""
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(say: Call) -> Call:
    return say


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Arms A and C as the planted campaigns have them, and a plan of their shape."""
    for folder in ("arms", "plans", "receipts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "plans" / "own.toml").write_text(PLAN)
    for name, switches in (("A", ""), ("C", "[switches]\nfused_qkv = true\n")):
        text = f'backend = "switchboard"\nmodel = "small"\n{switches}'
        (tmp_path / "arms" / f"{name}.toml").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("5400s", 5400), ("5400", 5400), ("1.5h", 5400),
     ("1h 30m", 5400), ("1H", 3600), ("1h1m1s", 3661)],
)  # fmt: skip
def test_a_time_is_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "2x", "30m1h", "-2h", "0m", "2h30", "two hours", "1e3s", "9" * 400 + "h"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--budget"):
        seconds_of(text)


def test_the_reference_campaign_answers(call: Call) -> None:
    words = ("plan", "--power", "--arms", "A,B,C", "--plan", "reference", "--from", "reference-cpu")
    code, said, _ = call(ROOT, *words, "--json", "--margin", "0.2")
    found = json.loads(said)
    assert code == 0 and found["margin"] == 0.2 and found["within"] is None
    endpoints = [one for one in found["endpoints"] if one["primary"]]
    assert [one["candidate"] for one in endpoints] == ["B", "C"]
    assert all(one["sd"] > 0 and one["recommended"] % 6 == 0 for one in endpoints)
    # three arms, twelve blocks: from the first cell to the last it took 25 min
    assert 20 * 60 < found["planned"]["seconds"] < 30 * 60


def test_another_machine_is_a_warning_and_no_error(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "fingerprint", lambda: dict(synthetic.MACHINE))
    code, said, _ = call(
        ROOT, "plan", "--power", "--plan", "gpu", "--from", "h200", "--budget", "1h"
    )
    assert code == 0
    for part in ("spread and time from h200 (named", "another machine (cpu", "C against A",
                 "blocks detect", "launches", "this plan: 6 blocks, about", "in 1 h 00 min:"):  # fmt: skip
        assert part in said, said


def test_the_newest_of_these_arms_on_this_machine_is_taken(
    root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("plan", "--power", "--plan", "own", "--json")
    code, _, err = call(root, *words)
    assert code == 2 and "run a pilot" in err and "battery run --plan quick" in err

    synthetic.build(root, synthetic.World(blocks=1), name="too-short")
    assert call(root, *words)[0] == 2
    other = synthetic.World(env={"C": {"X": "1"}})
    synthetic.build(root, other, name="other-arms")
    found = json.loads(call(root, *words)[1])
    assert found["source"]["campaign"] == "other-arms"
    assert found["source"]["how"] == "the newest of arms with these names"
    assert any("arm C is not the arm of that name" in told for told in found["warnings"])

    synthetic.build(root, name="same-arms")
    monkeypatch.setattr(sensors, "fingerprint", lambda: dict(synthetic.MACHINE))
    found = json.loads(call(root, *words)[1])
    assert found["source"]["campaign"] == "same-arms" and found["warnings"] == []
    assert found["source"]["how"] == "the newest of these arms on this machine"
    # these receipts all tell the same second: there is no launch to time
    assert found["block"]["seconds"] is None and "no launch" in found["block"]["why"]


@pytest.mark.parametrize(
    "words",
    [("--budget", "2h"), ("--json",), ("--margin", "0.03"), ("--from", "x"),
     ("--power", "--margin", "3"), ("--power", "--budget", "soon"), ("--power", "--from", "nowhere")],
)  # fmt: skip
def test_wrong_words_are_refused(root: Path, call: Call, words: tuple[str, ...]) -> None:
    synthetic.build(root)
    code, _, err = call(root, "plan", "--plan", "own", *words)
    assert code == 2 and err.startswith("battery: ")


def test_the_help_has_an_example(root: Path, call: Call) -> None:
    assert "plan --power --arms A,C --plan pr --budget 2h" in " ".join(
        call(root, "plan", "--help")[1].split()
    )


def other_prompts(receipt: Receipt) -> Receipt:
    cell = msgspec.structs.replace(receipt.cell, seed=receipt.cell.seed + 7_000_000)
    return msgspec.structs.replace(receipt, cell=cell)


def test_campaigns_are_combined(root: Path, call: Call) -> None:
    synthetic.build(root, synthetic.World(effect={"C": 1.05}), name="monday")
    again = synthetic.World(effect={"C": 1.05}, random_seed=8, change=other_prompts)
    synthetic.build(root, again, name="tuesday")
    code, said, _ = call(root, "combine", "monday", "tuesday")
    assert code == 0
    for part in ("C against A, 95 % intervals", "monday: ", "(primary): +", "fixed effect", "tau "):
        assert part in said, said
    assert "prompts of" not in said
    lines = [line for line in said.splitlines() if "(primary): +" in line]
    assert len(lines) == 1 and " after " not in lines[0], "one test is not corrected"
    others = [line for line in said.splitlines() if line.startswith("TTFT at ") and ", p " in line]
    assert len(others) == 2 and all("after Holm over 2 contexts, margin" in line for line in others)
    code, said, _ = call(root, "combine", "monday", "tuesday", "--json")
    found: dict[str, Any] = json.loads(said)
    assert code == 0 and [one["campaign"] for one in found["campaigns"]] == ["monday", "tuesday"]
    assert all(one["pooled"]["campaigns"] == 2 for one in found["comparisons"] if one["pooled"])


def test_one_name_on_two_machines_is_told_apart_by_its_folder(root: Path, call: Call) -> None:
    synthetic.build(root / "here", name="pr")
    synthetic.build(root / "there", synthetic.World(change=other_prompts), name="pr")
    code, said, _ = call(root, "combine", "here/receipts/pr", "there/receipts/pr")
    assert code == 0 and "here/receipts/pr: " in said and "there/receipts/pr: " in said


def test_a_copy_is_no_second_campaign(root: Path, call: Call) -> None:
    synthetic.build(root, name="monday")
    synthetic.build(root, name="copied")
    code, _, err = call(root, "combine", "monday", "copied")
    assert code == 2 and "copied is left out: the prompts of monday again" in err


def test_what_cannot_be_combined_is_refused(root: Path, call: Call) -> None:
    synthetic.build(root, name="monday")
    synthetic.build(root, synthetic.World(arms=("A", "B")), name="others")
    for words in (("monday",), ("monday", "monday"), ("monday", "others"), ("monday", "nowhere")):
        code, _, err = call(root, "combine", *words)
        assert code == 2 and err.startswith("battery: "), words
    assert call(root, "combine")[0] == 2


def test_the_expected_time_is_of_this_machine_where_there_is_one(
    root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ran(name: str, minutes: int, arms: tuple[str, ...], day: int) -> None:
        """A campaign of plan `own` that took so long."""
        folder = synthetic.build(root, synthetic.World(arms=arms), name=name)
        header = json.loads((folder / "campaign.json").read_text())
        header |= {"plan": kept, "plan_digest": digest, "created": f"2026-01-{day:02d}T00:00:00Z"}
        (folder / "campaign.json").chmod(0o644)
        (folder / "campaign.json").write_text(json.dumps(header))
        lines = [f'{{"at":"2026-01-01T00:{at:02d}:00Z","event":"{event}"}}'
                 for at, event in ((0, "started"), (minutes, "finished"))]  # fmt: skip
        (folder / "journal.jsonl").write_text("\n".join(lines) + "\n")

    def told() -> str:
        code, said, err = call(root, "plan", "--plan", "own", "--arms", "A,C")
        assert code == 0, err
        return said.partition("expected time: ")[2].partition("\n")[0]

    own = load_plan("own", root / "plans")
    kept, digest = msgspec.to_builtins(own), own.digest
    elsewhere = {**sensors.fingerprint(), "cpu": "another"}
    monkeypatch.setattr(sensors, "fingerprint", lambda: elsewhere)
    ran("two-arms", 15, ("A", "C"), 1)
    there = "as a campaign of this plan took on 2026-01-01T00:00:00Z on another machine"
    assert told() == f"about 20 min, {there}"  # 8 blocks are planned, 6 were kept
    monkeypatch.setattr(sensors, "fingerprint", lambda: dict(synthetic.MACHINE))
    assert told() == "about 20 min, as a campaign of this plan took here on 2026-01-01T00:00:00Z"
    ran("three-arms", 45, ("A", "B", "C"), 2)
    assert told().endswith("took here on 2026-01-01T00:00:00Z"), "of as many arms, though older"
    shutil.rmtree(root / "receipts" / "two-arms")
    assert "of this plan with another number of arms took here on 2026-01-02" in told()


def test_a_margin_is_told_as_it_is(root: Path, call: Call) -> None:
    (root / "plans" / "fine.toml").write_text(f"{PLAN}[margins]\ndecode = 0.025\n")
    code, said, _ = call(root, "plan", "--plan", "fine")
    assert code == 0 and "margin 2.5 %\n" in said
