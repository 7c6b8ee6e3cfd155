"""Other tools' time stamps for one request, on our clock, so that their timing error can be set beside ours.

Each peer is driven as a user would drive it: its own command line, in an environment of its own, against a local server.
What its exported records hold decides what can be compared: stamps of every token event, of the first and the last
only, or nothing for each request. A peer that cannot be driven says why (`NotDriven`); it is never stood in for.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Finest", "NotDriven", "PeerRequest", "PeerRun"]

Finest = Literal["event", "first-last", "none"]
"""The finest stamps that a peer records for a request: of every token event, of the first and the last, or none."""


class PeerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request as a peer stamped it. Nanoseconds of CLOCK_MONOTONIC (perf_counter_ns on Linux); None: not recorded."""

    key: str
    """What the server can be asked for: the answer's text where the peer keeps it, else the order of sending."""
    send_ns: int | None = None
    event_ns: list[int] = []
    """One for each token event; empty where the peer keeps none."""
    first_ns: int | None = None
    last_ns: int | None = None


class PeerRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a peer gave."""

    peer: str
    version: str
    finest: Finest
    requests: list[PeerRequest]
    clock: str
    """How its stamps became ours, and how far off that may be."""
    clock_error_ns: int
    """Half the width of what the conversion leaves open; 0 where the peer stamps with our clock."""
    where: str
    """Where in its code the stamps are taken."""


class NotDriven(Exception):
    """This peer gave no figures here, and why."""
