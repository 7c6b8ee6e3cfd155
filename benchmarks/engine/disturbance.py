"""How much of the processor others took while the engines were measured."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil

IDLE = ("idle", "iowait", "guest", "guest_nice")
"""What is no work, or is counted under another name already."""


class Watch:
    """From its making on: time of all processes and of the hypervisor, less that of the engines and our own."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids] + [psutil.Process()]
        self._began = (time.monotonic(), self._busy(), self._ours())

    def others(self) -> float:
        """Their share of all cores, 0 to 1."""
        wall, busy, ours = self._began
        spent = (self._busy() - busy) - (self._ours() - ours)
        share = spent / ((time.monotonic() - wall) * (psutil.cpu_count() or 1))
        return min(1.0, max(0.0, share))

    @staticmethod
    def _busy() -> float:
        return float(
            sum(value for name, value in psutil.cpu_times()._asdict().items() if name not in IDLE)
        )

    def _ours(self) -> float:
        return float(sum(sum(one.cpu_times()[:2]) for one in self._processes))
