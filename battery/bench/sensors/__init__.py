"""What the machine is and how it is: the only place that reads sensors.

A reading that does not exist here is None, with its reason in `missing`; nothing is ever assumed to be nominal.

    linux, macos, nvidia   what each system tells, parsed by pure functions of files and words
    watch                  every sensor at one look
    sampling, sampler      looks while a cell runs, from a process of its own
    calibration            a fixed piece of work, where sensors are silent
    machine                what kind of machine this is
"""

from __future__ import annotations

from battery.bench.sensors.calibration import calibrate, calibrated, calibration_baseline, heat
from battery.bench.sensors.glance import Glances, baseline, glance
from battery.bench.sensors.machine import fingerprint
from battery.bench.sensors.sampling import EVERY_S, Sampler, Sampling
from battery.bench.sensors.watch import ROOT, Watch

__all__ = [
    "EVERY_S",
    "ROOT",
    "Glances",
    "Sampler",
    "Sampling",
    "Watch",
    "baseline",
    "calibrate",
    "calibrated",
    "calibration_baseline",
    "fingerprint",
    "glance",
    "heat",
]
