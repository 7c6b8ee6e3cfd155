"""Claims made in advance, as a script sees them: a rule that ends a run, bars that fail a check, starts listed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from calls import Said, battery
from test_cli import PLAN, arm_file

from battery.cli.checking import bar_of
from battery.ledger.claims import Bar
from battery.ledger.errors import InputError
from battery.ledger.store import Campaign

REFERENCE = Path(__file__).parents[1] / "receipts" / "reference-cpu"
RULED = (
    PLAN.replace("[64, 96]", "[64]").replace("blocks = 2", "blocks = 8\nsentinel = false")
    + """
[stopping]
rule = "precision"
half_width = 3.0
[[bars]]
candidate = "C"
at_most = -0.2
[[bars]]
candidate = "C"
at_least = 0.1
"""
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("arms", "plans"):
        (tmp_path / folder).mkdir()
    arm_file(tmp_path, "A", "--itl-ms", "1")
    arm_file(tmp_path, "C", "--itl-ms", "12")
    arm_file(tmp_path, "D", "--fault", "die-at-start")
    (tmp_path / "plans" / "ruled.toml").write_text(RULED)
    (tmp_path / "plans" / "tiny.toml").write_text(PLAN)
    return tmp_path


@pytest.fixture
def call(root: Path, say: Callable[..., Said]) -> Callable[..., Said]:
    return partial(say, root)


@pytest.fixture
def committed(root: Path) -> Path:
    shutil.copytree(REFERENCE, root / "receipts" / "reference-cpu")
    return root


def test_a_run_that_its_rule_ends_and_the_check_of_its_bars(root: Path) -> None:
    broken = battery(root, "run", "--arms", "A,D", "--plan", "tiny", "--campaign", "broken")
    assert broken.returncode == 6
    asked = battery(root, "plan", "--arms", "A,C", "--plan", "ruled").stdout
    assert "stopping rule: looks after 6 and 8 blocks; ends at the first" in asked
    assert "no wider than ±300 %; tests at .03" in asked
    done = battery(root, "run", "--arms", "A,C", "--plan", "ruled", "--campaign", "c")
    assert done.returncode == 0, done.stderr
    assert "at most 16 cells" in done.stdout
    assert "ended by the plan's rule after 6 of at most 8 blocks: the look after 6" in done.stdout
    assert "bar met: decode at 64: C over A at most −20 %" in done.stdout
    assert "bar failed: decode at 64: C over A at least +10 %" in done.stdout
    assert len(Campaign(root / "receipts" / "c").paths()) == 12
    status = battery(root, "status").stdout
    assert "6/6" in status and "12/12" in status
    assert "sealed, ended by its rule after 6 of at most 8 blocks" in status
    assert "failed before its first window" in status and "broken" in status
    assert battery(root, "verify", "c").returncode == 0
    again = battery(root, "run", "--arms", "A,C", "--plan", "ruled", "--campaign", "c", "--json")
    assert len(Campaign(root / "receipts" / "c").paths()) == 12
    assert list(json.loads(again.stdout)["bars"].values()) == ["met", "failed"]
    assert "at most " in battery(root, "plan", "--arms", "A,C", "--plan", "ruled").stdout

    check = battery(root, "check", "c")
    assert check.returncode == 10 and "1 of 2 bars are not met (1 failed, 0 und" in check.stderr
    assert [line.rsplit("[", 1)[1] for line in check.stdout.splitlines()] == ["sealed]"] * 2
    header = root / "receipts" / "c" / "campaign.json"
    header.chmod(0o644)
    header.write_text(header.read_text().replace('"at_least": 0.1', '"at_least": -0.99'))
    edited = battery(root, "check", "c")
    assert edited.returncode == 10 and "the files are not those that were sealed" in edited.stdout
    assert "in the plan, not sealed" in edited.stdout and ": met:" not in edited.stdout


def test_status_of_nothing_but_starts_that_failed(root: Path, call: Callable[..., Said]) -> None:
    assert call("status").returncode == 2
    assert battery(root, "run", "--arms", "A,D", "--plan", "tiny").returncode == 6
    told = call("status")
    assert told.returncode == 0 and "tiny-A-D" in told.stdout
    assert "failed before its first window" in told.stdout


def test_a_bar_named_afterwards_is_met_and_called_what_it_is(
    committed: Path, call: Callable[..., Said]
) -> None:
    met = call("check", "reference-cpu", "--bar", "decode@512 C >= +3%")
    assert met.returncode == 0 and "[named afterwards, not sealed]" in met.stdout
    assert "met: decode at 512: C over A at least +3 %" in met.stdout
    told = call("check", "--bar", "decode C >= +3%", "--bar", "decode@512 C <= −3 %", "--json")
    assert told.returncode == 10 and "1 failed, 0 undecided" in told.stderr
    said = json.loads(told.stdout)
    (campaign,) = said["campaigns"]
    assert said["met"] is False and campaign["campaign"] == "reference-cpu"
    assert [(one["outcome"], one["sealed"]) for one in campaign["bars"]] == [
        ("met", False), ("failed", False),
    ]  # fmt: skip
    receipt = Campaign(committed / "receipts" / "reference-cpu").paths()[9]
    receipt.chmod(0o644)
    receipt.write_bytes(receipt.read_bytes().replace(b'"outcome": "ok"', b'"outcome":  "ok"'))
    spoilt = call("check", "reference-cpu", "--bar", "decode@512 C >= +3%")
    assert spoilt.returncode == 10 and "not those that were sealed" in spoilt.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "its plan declares no bars; declare some"),
        (("--bar", "decode@512 X >= 3%"), "X is no candidate; known: B, C"),
        (("--bar", "decode@513 C >= 3%"), "513 is not on the ladder; known: 128, 512"),
        (("--bar", "C is faster"), "such as"),
    ],
)
def test_a_check_of_nothing_is_wrong_input(
    committed: Path, call: Callable[..., Said], words: tuple[str, ...], told: str
) -> None:
    for campaigns in ((), ("reference-cpu",)):
        done = call("check", *campaigns, *words)
        assert done.returncode == 2 and told in done.stderr


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_bar_about_no_candidate_is_refused_before_anything_starts(
    root: Path, call: Callable[..., Said], verb: str
) -> None:
    refused = call(verb, "--arms", "C,A", "--plan", "ruled")
    assert refused.returncode == 2 and "plan ruled: bars[1].candidate: C is no" in refused.stderr
    assert not (root / "receipts").exists()


@pytest.mark.parametrize(
    ("words", "bar"),
    [
        ("decode@16384 C >= +3%", Bar(candidate="C", rung=16384, at_least=0.03)),
        ("decode@16,384 C>=3.5 %", Bar(candidate="C", rung=16384, at_least=0.035)),
        ("ttft <= −10%", Bar(metric="ttft", at_most=-0.1)),
        (
            "peak_memory my-arm_2 <= 0%",
            Bar(metric="peak_memory", candidate="my-arm_2", at_most=0.0),
        ),
        ("humaneval+ C within 5 points", Bar(candidate="C", suite="humaneval+", within=0.05)),
        ("mbpp within 1 point", Bar(suite="mbpp", within=0.01)),
    ],
)
def test_words_of_a_bar(words: str, bar: Bar) -> None:
    assert bar_of(words) == bar


@pytest.mark.parametrize(
    "words",
    ["", "decode", "decode > 3%", "decode >= 3", "decode@ >= 3%", "decode@, >= 3%", "speed >= 3%", "decode >= -100%",
     "humaneval C within 0 points", "humaneval C within 100 points", "hellaswag within 5 points", "decode A C >= 3%"],
)  # fmt: skip
def test_words_of_no_bar(words: str) -> None:
    with pytest.raises(InputError, match=r'such as "decode@16384 C >= \+3%"'):
        bar_of(words)
