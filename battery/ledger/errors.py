"""Every error that battery raises on purpose, with the exit code a script can rely on.

    BatteryError                    1
    ├── InputError                  2   a file or an option is wrong: nothing was started
    │   ├── ArmError                2
    │   └── PlanError               2
    ├── GateRefused                 3   the machine did not become quiet in time
    ├── CellsFailed                 4   the campaign ended, but too many of its cells failed
    ├── Busy                        5   a lock or a port is held by someone else, who is left alone
    ├── LaunchError                 6   a server did not start, or was not the one that was asked for
    │   └── Unreachable             6   (bench.stream.wire) it could not be reached, broke off, or was too slow
    ├── ReceiptError                7   a receipt is corrupt, or receipts may not be pooled
    │   └── Torn                    7   (ledger.strict) a file whose bytes are no JSON
    ├── VerifyFailed                8   a figure or a digest does not hold, or a page says what no report may
    ├── BarsFailed                  10  a bar, declared or named to check, failed or is undecided
    ├── StopwatchLost               1   (bench.stream.stopwatch) the timing process ended by itself
    ├── WindowFailed                1   (bench.measure) a window cannot go on; its cells' receipts say so
    └── DiskError                   9   a file could not be written: disk full, read-only, no permission

A message says what, where, and what to do. Ctrl-C exits with 130.
"""

from __future__ import annotations


class BatteryError(Exception):
    """Root of the tree: anything battery refuses to go on with."""

    exit_code = 1


class InputError(BatteryError):
    """A file or an option is wrong; nothing was started."""

    exit_code = 2


class ArmError(InputError):
    """An arm is unknown, or its file says something that cannot be."""


class PlanError(InputError):
    """A plan is unknown, or asks for something that cannot be measured."""


class GateRefused(BatteryError):
    """The machine did not come back inside the plan's limits in time."""

    exit_code = 3


class CellsFailed(BatteryError):
    """The campaign ended, but more cells failed than the plan allows."""

    exit_code = 4


class Busy(BatteryError):
    """A lock or a port is held by someone else; they are left alone."""

    exit_code = 5


class LaunchError(BatteryError):
    """A server did not start, died while starting, or is not the one that was asked for."""

    exit_code = 6


class ReceiptError(BatteryError):
    """A receipt cannot be read, or receipts were asked to be pooled that may not be."""

    exit_code = 7


class VerifyFailed(BatteryError):
    """A committed figure, chart or receipt does not follow from the receipts, or a page says what no report may."""

    exit_code = 8


class BarsFailed(BatteryError):
    """A bar, declared in the plan or named to `check`, failed or is undecided."""

    exit_code = 10


class DiskError(BatteryError):
    """A file could not be written; what was there before is whole, and the same command goes on once there is room."""

    exit_code = 9
