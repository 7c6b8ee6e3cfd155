from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from scipy.stats import ttest_1samp
from synthetic import World, build

from battery.analyse.findings import Findings, analyse
from battery.ledger.claims import Stopping
from battery.render import words
from battery.render.charts import draw
from battery.render.report import markdown

RULES = {
    "95 %": Stopping(),
    "98.2 %": Stopping(rule="looks", looks=(6, 8, 10)),
    "97 %": Stopping(rule="precision", half_width=0.0001),
    "99 %": Stopping(rule="looks", looks=(6, 7, 8, 9, 10)),
}


def found(root: Path, rule: Stopping) -> Findings:
    blocks = rule.looks[-1] if rule.looks else 8
    world = World(
        blocks=blocks, seeds=1, effect={"C": 1.02}, noise=0.01, plan={"stopping": rule}, speculates=("A", "C")
    )  # fmt: skip
    return analyse(build(root, world))


@pytest.mark.parametrize("level", RULES)
def test_every_text_has_the_level_of_the_stopping_rule(level: str, tmp_path: Path) -> None:
    told = found(tmp_path, RULES[level])
    assert words.confidence(told) == level
    texts = [markdown(told)]
    if level == "98.2 %":  # charts take the same function; one look at them will do
        texts.append("".join(data.decode() for _, data in draw(told).values()))
    for text in texts:
        said = set(re.findall(r"([\d.]+ %)(?:\]| t interval| interval)", text))
        assert said == {level}


def test_intervals_are_at_the_level_of_the_stopping_rule(tmp_path: Path) -> None:
    told = found(tmp_path, RULES["98.2 %"])
    (one,) = told.primary
    logs = [math.log(ratio) for _, ratio in one.by_block]
    wanted = ttest_1samp(logs, 0).confidence_interval(0.982)
    assert one.estimate and one.estimate.low == pytest.approx(math.exp(wanted.low), rel=1e-7)
    level = told.level("A", "decode", 384)
    assert level and level.low
    own = ttest_1samp([math.log(value) for _, value in level.windows], 0)
    assert level.low == pytest.approx(math.exp(own.confidence_interval(0.982).low), rel=1e-7)
