"""Other tools' time stamps for one request, on our clock, so that their timing error can be set beside ours.

Each peer is driven as a user would drive it: its own command line, in an environment of its own, against a local
server. What it records decides what can be compared: stamps of every token event, or of the first and the last only.
A peer that cannot be driven says why (`NotDriven`); it is never stood in for.

    python -m benchmarks.peers --server http://127.0.0.1:8123

Every peer module has `drive(base_url, model, requests, streams, tokens, workdir) -> PeerRun`. The server's log is
matched by `key`: the text up to the first `-` of an answer whose first token is such as "r17-0 ".
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

import msgspec

__all__ = ["PEERS", "Drive", "Finest", "NotDriven", "PeerRequest", "PeerRun", "drive", "key_of"]

PEERS = MappingProxyType(
    {"guidellm": "guidellm", "aiperf": "aiperf", "llama-benchy": "llama_benchy"}
)
"""Distribution names of the peers, and the module here that drives each."""

Finest = Literal["event", "first-last"]
"""The finest stamps that a peer records for a request: of every token event, or of the first and the last."""


class PeerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request as a peer stamped it, in nanoseconds of perf_counter_ns (CLOCK_MONOTONIC); None: not recorded."""

    key: str
    """Which request of the server's log it is."""
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
    """How its stamps became ours."""
    clock_error_ns: int
    """How far off the conversion may be, either way; 0 where the peer stamps with our clock."""


class NotDriven(Exception):
    """A peer gave no figures here; the message says why."""


Drive = Callable[[str, str, int, int, int, Path], PeerRun]


def drive(
    peer: str, base_url: str, model: str, requests: int, streams: int, tokens: int, workdir: Path
) -> PeerRun:
    """`requests` requests of `tokens` tokens, `streams` at a time, through one peer.

    `base_url` is the server's root or its …/v1; `workdir` takes what the peer writes. The environment is built when
    it is not there. Requests must fill the streams evenly, since llama-benchy sends whole batches.
    """
    if requests % streams or not requests:
        raise ValueError(f"{requests} requests do not fill {streams} streams evenly")
    root = base_url.rstrip("/").removesuffix("/v1")
    workdir.mkdir(parents=True, exist_ok=True)
    module = import_module(f"benchmarks.peers.{PEERS[peer]}")
    run = cast(Drive, module.drive)(root, model, requests, streams, tokens, workdir.resolve())
    short = [one.key for one in run.requests if len(one.event_ns) not in (0, tokens)]
    if len(run.requests) != requests or short:
        raise NotDriven(
            f"{peer} recorded {len(run.requests)} of {requests} requests, {len(short)} of them "
            f"with other than {tokens} token events; its output is in {workdir}"
        )
    return run


def key_of(text: str) -> str:
    """Which request of the server's log an answer belongs to: "r17" for "r17-0 r17-1 …"."""
    return text.partition("-")[0]
