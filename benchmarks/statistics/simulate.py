"""Simulated batteries: logarithms of rates whose every source of variation is known.

Log rate of a request = drift of the machine at its window + effect of the launch + content of the seed, common to the
arms + what the seed does to this arm alone + noise of the request (+ carry-over, + slow outliers). In the order that
battery itself runs, with its own coin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from battery.bench import schedule

Floats = NDArray[np.float64]
Drift = Literal["none", "linear", "walk", "warm-up", "step"]
Arms = Literal["exact", "rounding"]

LAUNCH, REQUEST = 0.007, 0.005
"""Standard deviations, in logarithms, of a launch and of a request."""
SEEDS: dict[Arms, tuple[float, float]] = {"exact": (0.06, 0.0), "rounding": (0.03, 0.052)}
"""Standard deviations of what a seed does: to both arms alike, and to each arm on its own.

Exact arms write the same tokens for the same seed; arms that differ by rounding soon write other texts, and what a
prompt costs is then each arm's own luck.
"""
LINEAR, WALK, WARM, STEP = -0.06, 0.01, -0.05, 0.03
"""From the first window to the last; spread of each step; at the first window, gone after a few; at a random one."""
CARRY, OUTLIERS, SLOWER = 0.01, 0.10, 0.10
"""Slowdown after the hotter arm; share of requests that are slow; by how much on average, exponentially."""
CONTROL, CANDIDATE = "A", "C"


@dataclass(frozen=True)
class World:
    """What is true in a simulated battery."""

    arms: Arms = "exact"
    drift: Drift = "walk"
    blocks: int = 6
    seeds: int = 3
    rungs: int = 1
    effect: float = 0.0
    """True difference of the candidate, in logarithms."""
    carry: bool = False
    outliers: bool = False
    alternating: bool = False
    """Control first in every block and no coin: A B A B …, as batteries that are not ours run."""
    same_seeds: bool = False
    """The same seeds in every block."""

    def but(self, **changes: object) -> World:
        """The same world with something else."""
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Drawn:
    """Batteries drawn from a world; arms are (control, candidate)."""

    world: World
    logs: Floats
    """Log rates: (battery, block, arm, rung, seed)."""
    windows: Floats
    """The part of them that all requests of a window share: (battery, block, arm)."""
    coins: NDArray[np.int64]
    """Which arm opened: (battery,)."""

    @property
    def differences(self) -> Floats:
        """Candidate − control per request of the first rung: (battery, block, seed)."""
        return self.logs[:, :, 1, 0] - self.logs[:, :, 0, 0]

    @property
    def blocks(self) -> Floats:
        """D of every block: (battery, block)."""
        return self.differences.mean(axis=2)


def order(world: World, coin: int) -> tuple[tuple[str, ...], ...]:
    """Per block, the arms as they run."""
    if world.alternating:
        return ((CONTROL, CANDIDATE),) * world.blocks
    return schedule.orders((CONTROL, CANDIDATE), world.blocks, coin)


def draw(world: World, count: int, rng: np.random.Generator) -> Drawn:
    """`count` batteries of a world."""
    coins = np.zeros(count, dtype=np.int64) if world.alternating else rng.integers(0, 2, count)
    places = np.array([[[2 * b + row.index(a) for a in (CONTROL, CANDIDATE)]
                        for b, row in enumerate(order(world, coin))] for coin in (0, 1)])  # fmt: skip
    numbers = places[coins]
    windows = np.take_along_axis(
        drift(world, count, rng), numbers.reshape(count, -1), axis=1
    ).reshape(numbers.shape)
    windows = windows + rng.normal(0, LAUNCH, numbers.shape)
    if world.carry:
        windows = windows - CARRY * _after_hot(places)[coins]
    shape = (count, world.blocks, 2, world.rungs, world.seeds)
    common, own = SEEDS[world.arms]
    blocks = 1 if world.same_seeds else world.blocks
    logs = windows[..., None, None] + rng.normal(0, REQUEST, shape)
    logs += rng.normal(0, common, (count, blocks, 1, *shape[3:]))
    if own:
        logs += rng.normal(0, own, (count, blocks, *shape[2:]))
    if world.outliers:
        logs -= (rng.random(shape) < OUTLIERS) * rng.exponential(SLOWER, shape)
    logs[:, :, 1] += world.effect
    return Drawn(world, logs, windows, coins)


def drift(world: World, count: int, rng: np.random.Generator) -> Floats:
    """The machine's own log speed at each window: (battery, window)."""
    size = 2 * world.blocks
    at = np.arange(size)
    if world.drift == "linear":
        return np.broadcast_to(LINEAR * at / (size - 1), (count, size))
    if world.drift == "walk":
        return rng.normal(0, WALK, (count, size)).cumsum(axis=1)
    if world.drift == "warm-up":
        return np.broadcast_to(WARM * np.exp(-at / 2), (count, size))
    if world.drift == "step":
        since = rng.integers(1, size, (count, 1))
        return rng.choice([-STEP, STEP], (count, 1)) * (at >= since)
    return np.zeros((count, size))


def _after_hot(places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the window before was the candidate's, which heats the machine more: (coin, block, arm)."""
    after = np.zeros(places.shape, dtype=bool)
    for coin, own in enumerate(places):
        hot = {int(number) for number in own[:, 1]}
        after[coin] = np.isin(own - 1, list(hot))
    return after
