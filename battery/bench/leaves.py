"""What a cell leaves: its receipt, without secrets and paths, and what the next cells of its window inherit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from battery.bench.launch import Server
from battery.bench.measure import Measured, WindowFailed
from battery.ledger import scrub
from battery.ledger.arm import Arm
from battery.ledger.cell import Cell
from battery.ledger.receipt import Memory, Receipt
from battery.ledger.store import Header


def receipt_of(
    header: Header,
    sequence: int,
    attempt: int,
    cell: Cell,
    arm: Arm,
    server: Server,
    measured: Measured,
    here: tuple[dict[str, Any], dict[str, Any]],
) -> Receipt:
    """The receipt of a cell, ready to be kept; `here` are the machine and the battery's versions as they are now."""
    ready = server.ready
    receipt = Receipt(
        campaign=header.campaign,
        sequence=sequence,
        attempt=attempt,
        cell=cell,
        arm=arm.public(),
        arm_digest=arm.digest,
        plan_digest=header.plan_digest,
        command=public_command(server.command),
        environment=server.environment,
        machine=here[0],
        versions={"battery": here[1], "engine": engine_versions(ready)},
        model=ready.get("model") or {},
        **{name: getattr(measured, name) for name in measured.__struct_fields__},
    )
    return scrub.record(receipt, server.secrets)


def engine_versions(health: dict[str, Any]) -> dict[str, Any]:
    """The engine's build and the packages of its interpreter, as its health tells them."""
    packages = health.get("packages")
    return {**(health.get("build") or {}), **({"packages": packages} if packages else {})}


def ends_window(receipt: Receipt) -> WindowFailed | None:
    """The failure that the rest of the window inherits from this cell, if it is of that kind."""
    # after a timeout the server may still be at work on the request that was given up: the next would wait behind it
    if receipt.outcome not in ("oom", "lost", "disengaged", "timeout"):
        return None
    cell = receipt.cell
    reason = f"inherited from receipt {receipt.sequence} ({cell.rung:,} tokens): {receipt.reason}"
    limit = Memory(peak=None, source=None, cap=receipt.memory.cap, cap_kind=receipt.memory.cap_kind)
    return WindowFailed(receipt.outcome, reason, {"inherited_from": receipt.sequence}, limit)


def public_command(command: Sequence[str]) -> tuple[str, ...]:
    """A command line without secrets and without the paths of this machine: programs by their name."""
    return (Path(command[0]).name, *scrub.command(tuple(command[1:])))
