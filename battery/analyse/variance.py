"""How much of the spread of block differences comes from launches and how much from seeds, for planning alone.

d[b,j] = μ + L_b + e_bj: L_b is what the two launches of block b differ by, e_bj what the seed j of it adds. A block's D
is the mean over its s seeds, so var(D) = launch² + seed²/s. No verdict uses these components: a plain t interval on D
holds both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

BELOW = "below what can be told"


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """Both components as standard deviations of log ratios; what cannot be told is None, with the reason."""

    blocks: int
    seeds: float
    """Seeds a block, on average."""
    launch_sd: float | None
    launch_why: str = ""
    seed_sd: float | None
    seed_why: str = ""

    def scaled(self, sd: float, seeds: int) -> float | None:
        """What the spread `sd` of block differences would be with `seeds` a window; None where nothing splits it.

        sd · √((launch² + seed²/seeds) / (launch² + seed²/seeds now)): with the seeds of now it is `sd` itself.
        """
        if self.launch_sd is None or self.seed_sd is None:
            return None
        now = self.launch_sd**2 + self.seed_sd**2 / self.seeds
        if now <= 0:
            return None
        return sd * math.sqrt((self.launch_sd**2 + self.seed_sd**2 / seeds) / now)


def split(blocks: Sequence[Sequence[float]]) -> Split:
    """The components by the method of moments (one-way analysis of variance), from the log ratios of each block.

    seed² = mean square within blocks; launch² = (mean square between − within) / n₀, n₀ = (N − Σn²/N) / (K − 1). A
    negative launch² is reported as 0: the launches differ by less than the seeds let anyone see.
    """
    groups = [np.asarray(block, dtype=float) for block in blocks if len(block)]
    k, sizes = len(groups), np.asarray([group.size for group in groups], dtype=float)
    total = float(sizes.sum())
    seeds = total / k if k else 0.0
    if k < 2:
        why = "fewer than two blocks"
        return Split(blocks=k, seeds=seeds, launch_sd=None, launch_why=why, seed_sd=None, seed_why=why)  # fmt: skip
    if total <= k:
        why = "one seed a window: launches and seeds cannot be told apart"
        return Split(blocks=k, seeds=seeds, launch_sd=None, launch_why=why, seed_sd=None, seed_why=why)  # fmt: skip
    means = np.asarray([group.mean() for group in groups])
    grand = float((sizes * means).sum() / total)
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (total - k)
    between = float((sizes * (means - grand) ** 2).sum()) / (k - 1)
    launch = (between - within) / ((total - float((sizes**2).sum()) / total) / (k - 1))
    return Split(
        blocks=k, seeds=seeds,
        launch_sd=math.sqrt(max(0.0, launch)), launch_why=BELOW if launch <= 0 else "",
        seed_sd=math.sqrt(within), seed_why="" if within > 0 else BELOW,
    )  # fmt: skip


def best_seeds(found: Split, window_s: float, seed_s: float) -> tuple[float | None, str]:
    """Seeds a window that give the narrowest interval for the time, n*; None and why where there is no such number.

    n* = √(window_s/seed_s · seed²/launch²), `window_s` being what a window costs before its first measured seed and
    `seed_s` what one more seed costs. Source: Kalibera and Jones, ISMM 2013.
    """
    if found.launch_sd is None or found.seed_sd is None:
        return None, found.launch_why
    if found.seed_sd == 0:
        return 1.0, ""
    if found.launch_sd == 0:
        return (
            None,
            f"the launches' part is {BELOW}: more seeds pay as long as they cost less than launches",
        )
    if seed_s <= 0:
        return None, "a seed's cost is not known"
    return max(1.0, math.sqrt(window_s / seed_s) * found.seed_sd / found.launch_sd), ""
