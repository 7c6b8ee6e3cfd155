"""The estimator against the truth: coverage of its interval, power, and what looking early does to its error.

The interval of `coverage` is battery's own, from pairs through blocks; the large tables test all batteries at once, and
`agreement` shows that this gives battery's own p.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy import stats as scipy_stats
from statsmodels.stats.power import TTestPower

from battery.analyse import stats
from battery.analyse.pairs import Pair, Pairs
from battery.ledger.claims import Stopping
from benchmarks.statistics.rules import ALPHA, t_test
from benchmarks.statistics.simulate import Drawn, Floats, World, draw

TRUE = 0.04
"""The candidate's true gain in the batteries of `coverage`, as a share."""
EFFECTS = (0.01, 0.02, 0.03, 0.05, 0.07)
"""True differences of the power table, in logarithms."""
ROWS = (("exact", 3), ("rounding", 3), ("rounding", 8), ("rounding", 12))
BLOCKS = (6, 8, 12)
DESIGNED: dict[tuple[str, int, int], tuple[float, ...]] = {
    ("exact", 3, 6): (0.27, 0.76, 0.98, 1, 1), ("exact", 3, 8): (0.39, 0.91, 1, 1, 1),
    ("exact", 3, 12): (0.59, 0.99, 1, 1, 1),
    ("rounding", 3, 6): (0.07, 0.14, 0.26, 0.58, 0.86), ("rounding", 3, 8): (0.09, 0.19, 0.37, 0.77, 0.96),
    ("rounding", 3, 12): (0.10, 0.29, 0.56, 0.94, 1),
    ("rounding", 8, 6): (0.10, 0.27, 0.52, 0.90, 0.99), ("rounding", 8, 8): (0.14, 0.38, 0.70, 0.98, 1),
    ("rounding", 8, 12): (0.18, 0.57, 0.89, 1, 1),
    ("rounding", 12, 6): (0.12, 0.34, 0.64, 0.97, 1), ("rounding", 12, 8): (0.16, 0.48, 0.81, 1, 1),
    ("rounding", 12, 12): (0.25, 0.70, 0.96, 1, 1),
}  # fmt: skip
"""Power by arms, seeds and blocks at EFFECTS, as the design was chosen by."""
TOLERANCE = 0.03
MDE = {3: 3.26, 4: 2.13, 6: 1.43, 8: 1.16, 10: 1.00, 12: 0.89, 16: 0.75}
"""Difference in spreads of the block differences that so many blocks find four times out of five, by design."""
TOST = {
    4: (0.19, 0.54, 0.82), 6: (0.41, 0.86, 0.99), 8: (0.64, 0.97, 1.0), 12: (0.89, 1.0, 1.0),
}  # fmt: skip
"""Power of the equivalence test by blocks, where nothing differs and the margin is 1, 1.5 and 2 spreads."""
WITHIN = (1.0, 1.5, 2.0)


def coverage(count: int, seed: int) -> dict[str, Any]:
    """How often the interval holds the truth, over `count` batteries of every mixture with a true gain of 4 %."""
    held: dict[str, list[bool]] = {}
    mixtures = list(
        itertools.product(
            ("exact", "rounding"), ("none", "linear", "walk", "warm-up", "step"), (False, True), (False, True), BLOCKS
        )
    )  # fmt: skip
    for place, (arms, drift, carry, outliers, blocks) in enumerate(mixtures):
        rng = np.random.default_rng([seed, place])
        own = len(range(place, count, len(mixtures)))
        world = World(arms=arms, drift=drift, carry=carry, outliers=outliers, blocks=blocks)
        drawn = draw(world.but(effect=math.log1p(TRUE)), own, rng)
        for which in range(own):
            found = estimate(drawn, which)
            assert found.low is not None and found.high is not None
            inside = found.low <= 1 + TRUE <= found.high
            for key in ("all", f"{arms} arms", f"drift: {drift}", f"{blocks} blocks"):
                held.setdefault(key, []).append(inside)
    return {
        "batteries": count,
        "truth": 1 + TRUE,
        "covered": sum(held["all"]),
        "coverage": sum(held["all"]) / count,
        "error": error(sum(held["all"]) / count, count),
        "by": {
            key: {"batteries": len(held[key]), "covered": sum(held[key])}
            for key in sorted(held)
            if key != "all"
        },
    }


def estimate(drawn: Drawn, which: int) -> stats.Estimate:
    """Battery's own estimate of one battery: rates to pairs, pairs to blocks, blocks to the interval."""
    rates = np.exp(drawn.logs[which, :, :, 0])
    pairs = tuple(
        Pair(block=block, control=float(rates[block, 0, s]), candidate=float(rates[block, 1, s]), cut=False,
             receipts=(0, 0))
        for block in range(drawn.world.blocks)
        for s in range(drawn.world.seeds)
    )  # fmt: skip
    kept = Pairs(kept=pairs, planned=len(pairs), lost={}, metric="decode")
    found = stats.paired(list(kept.by_block().values()))
    assert found is not None
    return found


def agreement(count: int, seed: int) -> float:
    """Largest difference between battery's own p and that of the tables, over `count` batteries."""
    drawn = draw(World(arms="rounding"), count, np.random.default_rng(seed))
    whole = scipy_stats.ttest_1samp(drawn.blocks, 0.0, axis=1).pvalue
    return max(abs(float(estimate(drawn, k).p or 0) - float(whole[k])) for k in range(count))


def power(count: int, seed: int) -> list[dict[str, Any]]:
    """Per row of the design's table: the share of `count` batteries that rejects, at each true difference."""
    found = []
    for place, ((arms, seeds), blocks) in enumerate(itertools.product(ROWS, BLOCKS)):
        rng = np.random.default_rng([seed, place])
        null = spread_out(World(arms=arms, seeds=seeds, blocks=blocks), count, rng)  # type: ignore[arg-type]
        shares = [float(t_test(null + effect).mean()) for effect in EFFECTS]
        designed = DESIGNED[arms, seeds, blocks]
        found.append(
            {
                "arms": arms, "seeds": seeds, "blocks": blocks, "spread": spread(null),
                "false_positives": float(t_test(null).mean()),
                "power": shares, "designed": list(designed),
                "off": max(abs(a - b) for a, b in zip(shares, designed, strict=True)),
            }
        )  # fmt: skip
    return found


def spread_out(world: World, count: int, rng: np.random.Generator, most: int = 5000) -> Floats:
    """Block differences of `count` batteries, drawn `most` at a time to keep memory small."""
    sizes = [min(most, count - done) for done in range(0, count, most)]
    return np.concatenate([draw(world, size, rng).blocks for size in sizes])


def spread(d: Floats) -> float:
    """Standard deviation of block differences, over all batteries."""
    return math.sqrt(float(d.var(axis=1, ddof=1).mean()))


def found_by(count: int, seed: int) -> dict[str, Any]:
    """What so many blocks detect and prove equivalent, in spreads: by theory, and by `count` batteries of noise."""
    rng = np.random.default_rng(seed)
    detect, within = [], []
    for blocks, designed in MDE.items():
        effect = TTestPower().solve_power(nobs=blocks, alpha=ALPHA, power=0.8)
        theory = float(np.squeeze(effect))
        share = float(t_test(rng.normal(theory, 1, (count, blocks))).mean())
        detect.append({"blocks": blocks, "theory": theory, "designed": designed, "power": share})
    for blocks, wanted in TOST.items():
        shares = [float(equivalent(rng.normal(0, 1, (count, blocks)), m).mean()) for m in WITHIN]
        within.append({"blocks": blocks, "power": shares, "designed": list(wanted)})
    return {"detectable": detect, "equivalence": within}


def equivalent(values: Floats, margin: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether both one-sided tests of each row reject: its mean lies inside ±`margin`."""
    above = scipy_stats.ttest_1samp(values, -margin, axis=1, alternative="greater").pvalue
    below = scipy_stats.ttest_1samp(values, margin, axis=1, alternative="less").pvalue
    return np.asarray(np.maximum(above, below) < ALPHA)


def stopping(count: int, seed: int) -> list[dict[str, Any]]:
    """Share of `count` null batteries of up to twelve blocks that are ever called different, by when one looks."""
    d = spread_out(World(blocks=12), count, np.random.default_rng(seed))
    looks = (6, 8, 10, 12)
    ours = Stopping(rule="looks", looks=looks).alpha
    wide = spread(d)
    rows: list[tuple[str, str, float, float | None]] = [
        ("fixed", "after twelve blocks", looked(d, (12,), ALPHA), 0.05),
        ("peeking", "after every block from the third", looked(d, range(3, 13), ALPHA), 0.18),
        ("uncorrected", "at 6, 8, 10, 12 blocks, each at .05", looked(d, looks, ALPHA), 0.11),
        (
            "looks",
            f"at 6, 8, 10, 12 blocks, each at {ours:g} (battery)",
            looked(d, looks, ours),
            0.045,
        ),
    ]
    alpha = Stopping(rule="precision", half_width=1).alpha
    for width, designed in ((1.0, 0.053), (0.8, 0.061), (0.6, 0.067)):
        words = f"once the interval is within ±{width:g}"
        for level, key, of in (
            (ALPHA, "within", ""),
            (0.04, "design", ""),
            (alpha, "precision", " (battery)"),
        ):
            share = precise(d, width * wide, level)
            told = designed if level == ALPHA else None
            rows.append((f"{key} {width:g}", f"{words}, at {level:g}{of}", share, told))
    return [dict(zip(("key", "rule", "share", "designed"), row, strict=True)) for row in rows]


def looked(d: Floats, looks: Any, alpha: float) -> float:
    """Share of rows that reject at any of the looks."""
    return float(np.any([t_test(d[:, :k], alpha) for k in looks], axis=0).mean())


def precise(d: Floats, width: float, alpha: float) -> float:
    """Share of rows that reject where each stops: at the first block from the sixth with a half-width of `width`."""
    last = d.shape[1]
    stopped = np.zeros(len(d), dtype=bool)
    rejects = np.zeros(len(d), dtype=bool)
    for k in range(stats.FEWEST_BLOCKS, last + 1):
        half = scipy_stats.t.ppf(1 - alpha / 2, k - 1) * d[:, :k].std(axis=1, ddof=1) / math.sqrt(k)
        now = ~stopped & ((half <= width) | (k == last))
        rejects |= now & t_test(d[:, :k], alpha)
        stopped |= now
    return float(rejects.mean())


def error(share: float, count: int) -> float:
    """Standard error of a share of `count` simulated batteries."""
    return math.sqrt(share * (1 - share) / count)
