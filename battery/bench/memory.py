"""Peak memory of a server over one cell, from every source this platform has, the best one first.

Best first: the engine's own counter, then the kernel's high-water mark of the process (VmHWM), then the
largest resident set that was sampled, which is the last resort and too low for unified memory. The one
used is always named.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from battery.ledger.receipt import Memory, PeakSource, Reading


def reset_kernel_peak(pid: int) -> str | None:
    """Set VmHWM of a process back to its present size; the reason when that cannot be done."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError as refused:
        return f"VmHWM cannot be reset: {refused.strerror}"
    return None


def oom_kills() -> int | None:
    """How often the kernel has killed for memory since it started; None where it does not tell."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def counters(pid: int) -> dict[str, int]:
    """VmHWM and VmSwap in bytes, and major faults, as far as the kernel tells them."""
    found: dict[str, int] = {}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("VmHWM", "VmSwap"):
                found[name] = int(value.split()[0]) * 1024
        # the process name may hold blanks and brackets: fields count from behind the last one
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found["majflt"] = int(fields[9])
    except (OSError, ValueError, IndexError):
        return found
    return found


def peak(
    health: dict[str, Any],
    engine_reset: bool,
    before: dict[str, int],
    after: dict[str, int],
    not_reset: str | None,
    samples: Sequence[Reading],
) -> Memory:
    """The peak of one cell with its source; `before` and `after` are counters() around it."""
    sources: dict[str, PeakSource] = {}
    told = (health.get("memory") or {}).get("peak")
    if isinstance(told, int) and engine_reset:
        sources["engine"] = PeakSource(bytes=told, how="true peak")
    else:
        why = (
            "health gives no memory.peak"
            if engine_reset
            else "the engine's counter cannot be reset per cell"
        )
        sources["engine"] = PeakSource(bytes=None, how="true peak", reason=why)
    high = after.get("VmHWM")
    reason = "no /proc/PID/status here, or the process is gone" if high is None else not_reset
    sources["VmHWM"] = PeakSource(
        bytes=high if not_reset is None else None, how="true peak", reason=reason
    )
    sizes = [sample.rss_bytes for sample in samples if sample.rss_bytes is not None]
    sources["rss"] = PeakSource(
        bytes=max(sizes, default=None),
        how="sampled",
        reason=None if sizes else "no sample fell into the cell",
    )
    used = next((name for name, source in sources.items() if source.bytes is not None), None)
    faults = (
        after["majflt"] - before["majflt"] if "majflt" in before and "majflt" in after else None
    )
    return Memory(
        peak=sources[used].bytes if used else None,
        source=used,
        sources=sources,
        cap=(health.get("memory") or {}).get("limit"),
        major_faults=faults,
        swapped_bytes=after.get("VmSwap"),
    )
