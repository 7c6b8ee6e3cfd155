from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import false_discovery_control
from synthetic import World, build

from battery.analyse import stats
from battery.analyse.findings import analyse
from battery.analyse.speed import COMPARED
from battery.render.report import markdown
from battery.render.tables import headline

ARMS = ("C", "C-no-a", "C-no-b", "C-no-c")
SCREEN = World(arms=ARMS, blocks=8, seeds=1, noise=0.01, effect={"C-no-a": 0.97}, screen="knockout")


def test_false_discovery_by_hand() -> None:
    # Sorted .01 .02 .03 .5 of four: 4/1, 4/2, 4/3, 4/4 times p, then the running minimum from behind.
    assert stats.false_discovery([0.03, None, 0.01, 0.5, 0.02]) == pytest.approx(
        [0.04, None, 0.04, 0.5, 0.04]
    )
    assert stats.false_discovery([None]) == [None] and stats.false_discovery([]) == []


def test_a_screen_is_corrected_over_all_its_questions_and_is_exploratory(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, SCREEN))
    assert found.screen == "knockout"
    for metric in COMPARED[:4]:
        here = [one for one in found.comparisons if one.metric == metric]
        assert len(here) == 6 and all(one.exploratory for one in here)
        assert {one.correction for one in here} == {"Benjamini-Hochberg over 6 comparisons"}
        wanted = false_discovery_control([one.estimate.p for one in here if one.estimate])
        assert [one.p_corrected for one in here] == pytest.approx(list(wanted))
        tosts = false_discovery_control([one.tost_p for one in here])
        assert [one.tost_p_corrected for one in here] == pytest.approx(list(tosts))
    words = {one.candidate: one.verdict.word for one in found.primary}
    assert words["C-no-a"] == "slower"
    assert {one.standing[:11] for one in found.ladders} == {"exploratory"}


def test_a_screen_says_so_wherever_a_verdict_stands(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, SCREEN))
    lines = headline(found).splitlines()
    assert len(lines) == 3
    for line in lines:
        assert "after Benjamini-Hochberg over 6 comparisons" in line
        assert line.endswith("; exploratory, one of the questions of a screen.")
    page = markdown(found)
    assert "**Exploratory:**" in page and "Holm" not in page
    assert "(exploratory: Benjamini-Hochberg over 6 comparisons)" in page


def test_the_same_arms_compared_by_name_are_no_screen(tmp_path: Path) -> None:
    world = World(arms=ARMS, blocks=8, seeds=1, noise=0.01, effect={"C-no-a": 0.97})
    found = analyse(build(tmp_path, world))
    assert found.screen == "" and not any(one.exploratory for one in found.comparisons)
    assert {one.correction for one in found.primary} == {"Holm over 3 candidates"}
    rest = {one.correction for one in found.comparisons if not one.primary and one.metric == "ttft"}
    assert rest == {"Holm over 2 contexts"}
    assert "xploratory" not in markdown(found)
