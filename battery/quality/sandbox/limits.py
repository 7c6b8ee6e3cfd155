"""What a program may use, and how the kernel is told of it."""

from __future__ import annotations

import contextlib
import math
import resource
from typing import Any, NamedTuple

MIB = 1 << 20


class Limits(NamedTuple):
    """Bounds of one program; those of the kernel hold for each process of it, the wall's for all of them together."""

    cpu_s: float = 3.0
    """Processor time, counted from outside (`times`); the kernel ends what escapes that, a little later."""
    wall_s: float = 10.0
    """Time on the clock, kept from outside: sleeping counts, waiting for a core does not."""
    memory: int = 1024 * MIB
    """Bytes of address space of one process; what all of them hold is bounded from outside (`crowd`)."""
    file: int = 16 * MIB
    """Bytes that a file may grow to."""
    files: int = 64
    """Open files."""
    processes: int = 32
    """Processes and threads at a time, of all programs of the same user on this machine."""

    def scaled(self, factor: float) -> Limits:
        """These with more time, for a machine that is so many times slower."""
        return self._replace(cpu_s=self.cpu_s * factor, wall_s=self.wall_s * factor)


def kernel_seconds(cpu_s: float) -> int:
    """The kernel's own limit on processor time: its count can run ahead of what was used, so it leaves room."""
    return math.ceil(1.25 * cpu_s + 0.5)


def _bounds(limits: Limits, spare: int) -> dict[str, int]:
    """Limits by their names in `resource`; `spare` processes belong to others of the same user."""
    return {
        "RLIMIT_CPU": kernel_seconds(limits.cpu_s),
        "RLIMIT_AS": limits.memory,
        "RLIMIT_FSIZE": limits.file,
        "RLIMIT_NOFILE": limits.files,
        "RLIMIT_NPROC": limits.processes + spare,
        "RLIMIT_CORE": 0,
    }


NAMES = tuple(_bounds(Limits(), 0))
"""Limits by their names in the kernel."""


class Held(NamedTuple):
    """A limit ready to be set."""

    number: int
    """Of the resource, as the kernel counts them."""
    bound: int


def held(limits: Limits, spare: int = 0, but: tuple[str, ...] = ()) -> tuple[Held, ...]:
    """The limits as the kernel takes them, `but` for some, never above those that already bind this process.

    A limit that the system does not have is left out here; `unheld` names it beforehand.
    """
    found = []
    for name, bound in _bounds(limits, spare).items():
        if name not in but and (number := getattr(resource, name, None)) is not None:
            hard = resource.getrlimit(number)[1]
            found.append(
                Held(number, bound if hard == resource.RLIM_INFINITY else min(bound, hard))
            )
    return tuple(found)


def hold(ready: tuple[Held, ...]) -> None:
    """Set limits for this process and its children; one that the system does not take is passed over."""
    for number, bound in ready:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(number, (bound, bound))


def unheld() -> dict[str, str]:
    """Limits that this system does not take, each with its reason; asked in a process that ends afterwards."""
    missing: dict[str, str] = {}
    for name in _bounds(Limits(), 0):
        number = getattr(resource, name, None)
        if number is None:
            missing[name] = "this system has no such limit"
            continue
        soft, hard = resource.getrlimit(number)
        try:
            resource.setrlimit(number, (soft, hard))
        except (ValueError, OSError) as reason:
            missing[name] = str(reason)
    return missing


def parsed(given: dict[str, Any]) -> Limits:
    """Limits from their JSON."""
    return Limits(**given)
