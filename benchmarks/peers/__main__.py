"""Try the peers against a running server: one line for each, and what it records.

    python -m benchmarks.peers --server http://127.0.0.1:8123 [guidellm aiperf llama-benchy]

Exit status 0 where every peer gave figures, else 1. Environments are built on the first call.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import PEERS, NotDriven, PeerRun, drive


def line(run: PeerRun) -> str:
    """A run in one line."""
    ttft = [
        one.first_ns - one.send_ns
        for one in run.requests
        if one.first_ns is not None and one.send_ns is not None
    ]
    gaps = [
        (one.event_ns[-1] - one.event_ns[0]) / (len(one.event_ns) - 1)
        for one in run.requests
        if len(one.event_ns) > 1
    ]
    events = f"{sum(len(one.event_ns) for one in run.requests)} event stamps"
    said = events if run.finest == "event" else "stamps of first and last token"
    mean_gap = f", gap {statistics.median(gaps) / 1e6:.3f} ms" if gaps else ""
    return (
        f"{run.peer} {run.version}: {len(run.requests)} requests, {said}, median TTFT "
        f"{statistics.median(ttft) / 1e6:.3f} ms{mean_gap}; clock: {run.clock}"
    )


def main() -> int:
    """Drive each named peer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("peers", nargs="*", help=", ".join(PEERS))
    parser.add_argument("--server", required=True, help="root of an OpenAI-compatible server")
    parser.add_argument("--model", default="stamped")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="folder for what the peers write")
    asked = parser.parse_args()
    if unknown := set(asked.peers) - set(PEERS):
        parser.error(f"no peer {', '.join(sorted(unknown))}: known are {', '.join(PEERS)}")
    failed = 0
    with tempfile.TemporaryDirectory() as spare:
        for peer in asked.peers or PEERS:
            place = (asked.keep or Path(spare)) / peer
            counts = (asked.requests, asked.streams, asked.tokens)
            try:
                print(line(drive(peer, asked.server, asked.model, *counts, place)), flush=True)
            except NotDriven as reason:
                failed += 1
                print(f"{peer}: not driven: {reason}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
