"""The table touches as many entries in a long text as in a short one; the kept figures follow from one another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import lookup_cost
from switchboard.registry import Counter
from switchboard.switches.prompt_lookup import Options, PromptLookup

KEPT = Path(__file__).parents[2] / "reports" / "lookup-cost.json"


class Touched(dict[Any, int]):
    """A table that counts how often it is asked or written."""

    count = 0

    def __setitem__(self, key: Any, value: int) -> None:
        type(self).count += 1
        super().__setitem__(key, value)

    def get(self, key: Any, default: Any = None) -> Any:
        type(self).count += 1
        return super().get(key, default)


def touches(context: int) -> int:
    """Of 64 tokens behind so long a text, none of which continues anything."""
    lookup = PromptLookup(Options(), Counter())
    lookup.begin(lookup_cost.text(context, 1))
    lookup._follows = Touched(lookup._follows)
    Touched.count = 0
    for token in range(10**6, 10**6 + 64):
        lookup.extend([token])
        assert lookup.propose(5) == []
    return Touched.count


def test_a_token_touches_the_table_as_often_in_a_long_text() -> None:
    # two sizes of n-grams: entered, and looked up
    assert touches(100) == touches(20_000) == 64 * 4


def test_figures_are_the_least_of_the_rounds_in_microseconds() -> None:
    found = [([2e-6, 9e-6], [5e-6, 1e-6], 1), ([3e-6, 2e-6], [1e-6, 8e-6], 1)]
    row = lookup_cost.row(1024, found)
    assert row == {"context": 1024, "enter_us": 2.0, "ask_us": 1.0, "token_us": 3.0, "drafts": 0.5}
    longer = {**row, "context": 2048, "token_us": 4.5}
    assert lookup_cost.summary([row, longer]) == {
        "token_us": {"1024": 3.0, "2048": 4.5},
        "ratio": 1.5,
    }


def test_the_text_repeats_itself_and_is_the_same_for_a_seed() -> None:
    made = lookup_cost.text(5000, 3)
    assert made == lookup_cost.text(5000, 3) != lookup_cost.text(5000, 4)
    assert len(made) == 5000 and min(made) >= 0 and max(made) < lookup_cost.VOCABULARY
    *_, drafts = lookup_cost.seconds(4000, made)
    assert 200 < drafts < 1000


def test_the_kept_figures_follow_from_their_rows() -> None:
    kept = json.loads(KEPT.read_text())
    assert [row["context"] for row in kept["rows"]] == [1024, 131072]
    for row in kept["rows"]:
        assert row["token_us"] == pytest.approx(row["enter_us"] + row["ask_us"], abs=1e-3)
    assert {name: kept[name] for name in ("token_us", "ratio")} == lookup_cost.summary(kept["rows"])


def test_the_last_line_is_one_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "kept.json"
    words = ["--contexts", "64,256", "--tokens", "32", "--rounds", "1", "--out", str(out)]
    assert lookup_cost.main(words) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(last) == {"token_us", "ratio"} and list(last["token_us"]) == ["64", "256"]
    assert json.loads(out.read_text())["ratio"] == last["ratio"]
