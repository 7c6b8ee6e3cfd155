"""The exact laws keep the target's distribution, and the lossy ones their bounds: by enumeration, not by sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from benchmarks.acceptance.oracle import Matched, Ruler, bound, look, outcomes
from benchmarks.acceptance.worlds import Kind, World, world, worlds
from switchboard.accept import exact, lossy
from switchboard.accept.exact import Block, OneByOne, matched
from switchboard.accept.lossy import Cascade, Typical
from switchboard.accept.ruling import Rows, Ruling, Verdict, capped, positive
from switchboard.sampler import Sampling

LOSSY = (
    Typical(0.09, 0.3),
    Typical(0.4, 0.9),
    Cascade(0.0, "token"),
    Cascade(0.5, "token"),
    Cascade(1.0, "token"),
    Cascade(0.0, "peak"),
    Cascade(0.5, "peak"),
)


def some(count: int, seed: int = 11) -> list[World]:
    return list(worlds(count, seed))


@pytest.mark.parametrize("kind", ["certain", "drawn", "stopping"])
@pytest.mark.parametrize("law", [OneByOne(), Block()])
def test_an_exact_law_keeps_the_distribution(law: Ruler, kind: Kind) -> None:
    assert max(look(law, one, kind).drift for one in some(72)) < 1e-12


def test_the_matched_law_keeps_the_distribution() -> None:
    assert max(look(Matched(), one, "certain").drift for one in some(72)) < 1e-12


def test_certain_guesses_fare_alike_under_every_exact_law() -> None:
    for one in some(36):
        found = [look(law, one, "certain").tokens for law in (Matched(), OneByOne(), Block())]
        assert np.ptp(found) < 1e-12


def test_a_block_accepts_as_much_as_one_by_one_and_more_where_it_can() -> None:
    pairs = [[look(law, one, "drawn").tokens for law in (OneByOne(), Block())] for one in some(72)]
    assert all(block >= single - 1e-12 for single, block in pairs)
    assert max(block - single for single, block in pairs) > 0.05


@dataclass(frozen=True)
class Wrong:
    """A law with a fault: an honest ruling that was tampered with."""

    tamper: Callable[[Ruling, Rows, Rows, Sequence[int]], Ruling]
    honest: Any

    def rule(self, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
        return self.tamper(self.honest.rule(target, draft, guesses), target, draft, guesses)


def first_stands(ruling: Ruling, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
    if not len(guesses):
        return ruling
    return Ruling([0.0, ruling.stands[0] + ruling.stands[1], *ruling.stands[2:]], ruling.following)


def whole_target(ruling: Ruling, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
    return Ruling(ruling.stands, lambda count: target[count])


def late(ruling: Ruling, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
    return Ruling(ruling.stands, lambda count: ruling.following(min(count + 1, len(guesses))))


def unscaled(ruling: Ruling, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
    """The token after a refusal as if all before it had a share of 1: right one by one, wrong for a block."""
    return Ruling(ruling.stands, OneByOne().rule(target, draft, guesses).following)


@pytest.mark.parametrize("honest", [OneByOne(), Block()])
@pytest.mark.parametrize("tamper", [first_stands, whole_target, late])
def test_the_enumeration_catches_a_wrong_law(tamper: Any, honest: Any) -> None:
    assert max(look(Wrong(tamper, honest), one, "drawn").drift for one in some(36)) > 1e-2


def test_the_enumeration_catches_what_is_wrong_from_depth_two_on() -> None:
    faulty = [look(Wrong(unscaled, Block()), one, "drawn").drift for one in some(72)]
    assert max(faulty) > 1e-2
    shallow = [one for one in some(72) if one.depth == 1]
    assert max(look(Wrong(unscaled, Block()), one, "drawn").drift for one in shallow) < 1e-12


def test_a_law_that_loses_outcomes_is_caught() -> None:
    def loses(ruling: Ruling, *_: Any) -> Ruling:
        return Ruling([0.99 * one for one in ruling.stands], ruling.following)

    assert look(Wrong(loses, OneByOne()), some(1)[0], "drawn").drift > 5e-3


@pytest.mark.parametrize("law", LOSSY, ids=str)
def test_a_lossy_law_drifts_within_its_bound(law: Any) -> None:
    kinds: tuple[Kind, ...] = ("drawn", "stopping") if law.needs_chances else ("drawn", "certain")
    drifts = []
    for one in some(72):
        if one.sampling.temperature == 0:
            continue
        for kind in kinds:
            drifts.append(look(law, one, kind).drift)
            assert drifts[-1] <= bound(law, one, kind) + 1e-12
    assert max(drifts) > 0.1, "a law that never drifts would be exact"


def test_typical_by_hand() -> None:
    row = np.array([0.5, 0.25, 0.125, 0.125])
    assert lossy.entropy(row) == pytest.approx(1.75 * np.log(2))
    law = Typical(0.2, 0.9)
    assert law.threshold(row) == pytest.approx(0.2)  # 0.9 e^-H = 0.2676
    assert Typical(0.5, 0.5).threshold(row) == pytest.approx(0.5 * 2**-1.75)
    target, draft = np.array([row, row]), np.array([[0.0, 1.0, 0.0, 0.0]])
    assert list(law.rule(target, draft, [1]).stands) == [0, 1]
    assert list(law.rule(target, draft, [2]).stands) == [1, 0]
    assert list(law.rule(target, draft, [2]).following(0)) == list(row)


def test_cascade_by_hand() -> None:
    target, draft = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.6, 0.3])
    # good: p >= 0.25, so the first two; 0.3 of the draft's weight goes back to the target
    blend = Cascade(0.5, "token").blend(target, draft)
    assert blend == pytest.approx([0.1 + 0.15, 0.6 + 0.09, 0.06])
    assert Cascade(0.0, "token").blend(target, draft) == pytest.approx([0.1 + 0.45, 0.27, 0.18])
    # TV = 0.4; the draft's peak is 0.6 against 0.5
    assert Cascade(0.0, "peak").blend(target, draft) == pytest.approx(draft)
    assert Cascade(0.0, "peak").blend(draft, target) == pytest.approx(draft)
    assert Cascade(0.3, "peak").blend(draft, target) == pytest.approx(target)  # 0.5 >= 0.6 - 0.12


def test_believing_a_sure_draft_has_no_bound_below_one() -> None:
    row, sure = np.array([0.9, 0.1, 0.0]), np.array([0.0, 0.0, 1.0])
    assert Cascade(0.0, "peak").most(row, sure) == pytest.approx(1.0)
    assert Cascade(0.0, "token").most(row, sure) == 0.0


@pytest.mark.parametrize("law", [OneByOne(), Block(), *LOSSY], ids=str)
def test_a_law_rules_alike_in_the_servers_precision(law: Any) -> None:
    compared = 0
    for one in some(24, seed=2):
        for guesses, rows, _ in one.guesses((), "drawn"):
            target = np.array([one.target[guesses[:place]] for place in range(len(guesses) + 1)])
            # a threshold may fall between two roundings; rows in fp32 for both leave only the arithmetic
            given, drawn = target.astype(np.float32), rows.astype(np.float32)
            exactly = law.rule(given.astype(np.float64), drawn.astype(np.float64), guesses)
            served = law.rule(mx.array(given), mx.array(drawn), guesses)
            assert [float(x) for x in served.stands] == pytest.approx(exactly.stands, abs=1e-5)
            for count, chance in enumerate(exactly.stands):
                if chance > 1e-3:
                    got, wanted = np.array(served.following(count)), exactly.following(count)
                    assert got / got.sum() == pytest.approx(wanted / wanted.sum(), abs=1e-3)
                    compared += 1
    assert compared > 100


def test_outcomes_of_a_pass_sum_to_one_and_drafts_end_early() -> None:
    one = world(np.random.default_rng(5), 4, 3, 1.0, Sampling())
    lengths = {len(guesses) for guesses, _, _ in one.guesses((), "stopping")}
    assert lengths == {1, 2, 3}
    for kind in ("certain", "drawn", "stopping"):
        total = sum(chance for _, chance in outcomes(Block(), one, (), kind))  # type: ignore[arg-type]
        assert total == pytest.approx(1.0)


def test_the_targets_own_choice_follows_the_first_difference() -> None:
    assert matched([5, 6, 7], [5, 9]) == Verdict(1, 6)
    assert matched([5, 6, 7], [5, 6]) == Verdict(2, 7)
    assert matched([5], []) == Verdict(0, 5)
    assert exact.matched is matched


def test_parts_of_a_row() -> None:
    assert list(positive(np.array([-1.0, 0.0, 2.0]))) == [0, 0, 2]
    assert [float(capped(x)) for x in (0.5, 1.0, 3.0)] == [0.5, 1.0, 1.0]
