"""Rules by which people call one arm faster, on batteries in which nothing differs: how often each is wrong.

Every rule sees the same numbers: all requests of one rung of many batteries at once. Ours is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from battery.analyse.self_test import SELF_TEST_ALPHA, TURNS
from benchmarks.statistics.simulate import Drawn, Floats, World, draw

ALPHA = 0.05
RESAMPLES = 1999
"""Of every bootstrap; all batteries of a set share their draws, which are of places and know no values."""

MOST = 2000
"""Batteries drawn at once, to keep memory small."""

Hits = NDArray[np.bool_]


@dataclass(frozen=True)
class Rule:
    """One way of calling a difference."""

    key: str
    words: str
    hits: Callable[[Drawn], Hits]
    """Per battery, whether it calls one."""


def fastest(gap: float) -> Callable[[Drawn], Hits]:
    """The fastest request of one arm is more than `gap` above that of the other."""

    def hits(drawn: Drawn) -> Hits:
        best = drawn.logs[:, :, :, 0].max(axis=(1, 3))
        return np.expm1(np.abs(best[:, 1] - best[:, 0])) > gap

    return hits


def pooled(drawn: Drawn) -> Hits:
    """Welch's t test of all requests of one arm against all of the other."""
    control, candidate = _arms(drawn)
    return scipy_stats.ttest_ind(candidate, control, axis=1, equal_var=False).pvalue < ALPHA


def apart(drawn: Drawn) -> Hits:
    """The 95 % intervals of the two means do not overlap."""
    ends = [scipy_stats.ttest_1samp(one, 0.0, axis=1).confidence_interval() for one in _arms(drawn)]
    return (ends[0].high < ends[1].low) | (ends[1].high < ends[0].low)


def per_seed(drawn: Drawn) -> Hits:
    """Paired t test in which every request counts as independent."""
    return t_test(drawn.differences.reshape(drawn.coins.size, -1))


def bootstrap(drawn: Drawn) -> Hits:
    """The percentile bootstrap's 95 % interval of the mean excludes 0, blocks resampled, then seeds inside them."""
    count, blocks, seeds = drawn.differences.shape
    rng = np.random.default_rng(0)
    which = rng.integers(0, blocks, (RESAMPLES, blocks))
    inside = rng.integers(0, seeds, (RESAMPLES, blocks, seeds))
    weights = np.zeros((RESAMPLES, blocks * seeds))
    np.add.at(weights, (np.arange(RESAMPLES)[:, None, None], which[..., None] * seeds + inside), 1)
    means = drawn.differences.reshape(count, -1) @ (weights.T / (blocks * seeds))
    low, high = np.quantile(means, [ALPHA / 2, 1 - ALPHA / 2], axis=1)
    return (low > 0) | (high < 0)


def seed_level(drawn: Drawn) -> Hits:
    """T test over seeds, each the mean of its repeats: only where the same seeds return in every block."""
    return t_test(drawn.differences.mean(axis=1))


def block_level(drawn: Drawn) -> Hits:
    """T test over the block differences: the verdict of battery."""
    return t_test(drawn.blocks)


def t_test(values: Floats, alpha: float = ALPHA) -> Hits:
    """Whether a t test of each row against 0 rejects."""
    return np.asarray(scipy_stats.ttest_1samp(values, 0.0, axis=1).pvalue < alpha)


def _arms(drawn: Drawn) -> tuple[Floats, Floats]:
    """All requests of each arm: (battery, request)."""
    here, count = drawn.logs[:, :, :, 0], drawn.coins.size
    return here[:, :, 0].reshape(count, -1), here[:, :, 1].reshape(count, -1)


RULES = (
    Rule("fastest_2", "fastest request more than 2 % ahead", fastest(0.02)),
    Rule("fastest_5", "fastest request more than 5 % ahead", fastest(0.05)),
    Rule("pooled_welch", "Welch t over all requests", pooled),
    Rule("apart", "95 % intervals of the arms do not overlap", apart),
    Rule("per_seed", "paired t over requests", per_seed),
    Rule("bootstrap", "percentile bootstrap, blocks then seeds", bootstrap),
    Rule("seed_level", "t over seeds (only where they return)", seed_level),
    Rule("block_level", "t over blocks (battery)", block_level),
)

FIXED = World(blocks=3, alternating=True, same_seeds=True)
"""Three windows an arm, A B A B A B, the same three seeds in each: how such batteries are often run."""
OURS = World(blocks=6)
"""Six blocks A B, B A, …, opened by a coin, three new seeds in each."""
PROTOCOLS = {"fixed": FIXED, "ours": OURS}
SETTINGS = tuple((arms, drift) for arms in ("rounding", "exact") for drift in ("none", "linear", "walk"))  # fmt: skip


def contrast(count: int, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Share of `count` null batteries that each rule calls different, by protocol and by arms and drift."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for number, (protocol, world) in enumerate(PROTOCOLS.items()):
        for place, (arms, drift) in enumerate(SETTINGS):
            rng = np.random.default_rng([seed, number, place])
            sizes = [min(MOST, count - done) for done in range(0, count, MOST)]
            told = [shares(draw(world.but(arms=arms, drift=drift), size, rng)) for size in sizes]
            found.setdefault(protocol, {})[f"{arms} {drift}"] = {
                key: float(np.average([one[key] for one in told], weights=sizes)) for key in told[0]
            }
    return found


def shares(drawn: Drawn) -> dict[str, float]:
    """Share of these batteries that each rule calls different; rules that do not fit are left out."""
    return {rule.key: float(rule.hits(drawn).mean()) for rule in RULES if fits(rule, drawn.world)}


def fits(rule: Rule, world: World) -> bool:
    """Whether a rule can be applied: seeds as units need seeds that return."""
    return rule.key != "seed_level" or world.same_seeds


def against_themselves(drawn: Drawn, turns: tuple[int, ...] = TURNS) -> Hits:
    """Whether the arms differ from themselves at the level that voids a battery; `turns` are the signs of the pairs."""
    means, place = drawn.logs[:, :, :, 0].mean(axis=3), np.arange(drawn.coins.size)
    pairs = []
    for block in range(drawn.world.blocks - 1):
        # in A B, B A, … the arm that closes a block opens the next
        arm = 1 - (drawn.coins ^ (block % 2))
        step = means[place, block + 1, arm] - means[place, block, arm]
        pairs.append(turns[block % len(turns)] * step)
    return t_test(np.stack(pairs, axis=1), SELF_TEST_ALPHA)


def self_tests(count: int, seed: int) -> dict[str, dict[str, float]]:
    """How often honest batteries void themselves, by arms and carry-over: with our signs, and with alternating ones."""
    found = {}
    for place, (arms, carry) in enumerate(
        (a, c) for a in ("exact", "rounding") for c in (False, True)
    ):
        rng = np.random.default_rng([seed, place])
        drawn = draw(World(arms=arms, carry=carry, blocks=8, seeds=2), count, rng)
        found[f"{arms}{' with carry-over' if carry else ''}"] = {
            "ours": float(against_themselves(drawn).mean()),
            "alternating": float(against_themselves(drawn, (1, -1)).mean()),
        }
    return found
