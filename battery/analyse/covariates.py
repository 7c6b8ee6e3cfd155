"""Whether block ratios go with what the machine was like: rank correlations, reported and never adjusted for.

An adjustment chosen after looking would be one more way to find something; many are looked at, and one in twenty
goes along by chance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pandas as pd
import scipy

from battery.analyse.speed import Comparison
from battery.ledger.receipt import Reading, Receipt

READINGS: dict[str, Callable[[Reading], float | None]] = {
    "temperature": lambda reading: reading.temp_c,
    "processor clock": lambda reading: reading.freq_mhz,
    "clock under the fixed work": lambda reading: reading.calibration_mhz,
    "busy": lambda reading: reading.busy,
    "steal": lambda reading: reading.steal,
    "processor pressure": lambda reading: reading.pressure.get("cpu"),
    "memory pressure": lambda reading: reading.pressure.get("memory"),
    "calibration time": lambda reading: reading.calibration_s,
    "GPU temperature": lambda reading: reading.gpu_temp_c,
    "GPU clock": lambda reading: reading.gpu_clock_mhz,
}
"""What the gate reads before a cell, whichever arm it is for."""
_FEWEST = 6


class Covariate(msgspec.Struct, frozen=True, kw_only=True):
    """One reading, candidate's window minus the control's, against the block's ratio at the primary endpoint."""

    candidate: str
    reading: str
    blocks: int
    rho: float
    """Spearman's: 1 where the ratio rises with it, −1 where it falls."""
    p: float
    """Before any correction for how many readings are looked at."""


def covariates(
    frame: pd.DataFrame, primary: Sequence[Comparison], receipts: Sequence[Receipt]
) -> tuple[Covariate, ...]:
    """Every candidate and every reading that differs between blocks; six blocks at least."""
    counted = {int(n) for n in frame[frame["counted"].astype(bool)]["sequence"]}
    seen: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for receipt in receipts:
        reading = receipt.gate.reading
        if receipt.sequence not in counted or reading is None:
            continue
        for name, of in READINGS.items():
            value = of(reading)
            if value is not None:
                seen[receipt.cell.arm, receipt.cell.block, name].append(float(value))
    means = {key: float(np.mean(values)) for key, values in seen.items()}
    found = [_covariate(one, name, means) for one in primary for name in READINGS]
    return tuple(one for one in found if one is not None)


def _covariate(
    one: Comparison, name: str, means: dict[tuple[str, int, str], float]
) -> Covariate | None:
    """One candidate and reading; None where there are too few blocks with both, or nothing varies."""
    pairs = [
        (math.log(ratio), means[one.candidate, block, name] - means[one.control, block, name])
        for block, ratio in one.by_block
        if (one.candidate, block, name) in means and (one.control, block, name) in means
    ]
    if len(pairs) < _FEWEST:
        return None
    d, difference = np.asarray(pairs).T
    if float(np.ptp(d)) <= 1e-12 or float(np.ptp(difference)) <= 1e-12:
        return None
    test = scipy.stats.spearmanr(difference, d)
    return Covariate(
        candidate=one.candidate, reading=name, blocks=len(pairs), rho=float(test.statistic), p=float(test.pvalue)
    )  # fmt: skip
