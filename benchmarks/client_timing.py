"""How late our stamps are, beside a bare socket and beside other tools, on one machine in one run.

    python -m benchmarks.client_timing --out reports/client-timing.json

A server dates each token event on the monotonic clock just before it gives it to the socket (stamping_server); the
client dates it on arrival. Per event: *late* = the client's stamp − the server's. Per gap: the error of the time
between two events. Per request: the error of TTFT, (first event − send) as the client has it − (first event −
arrival) as the server has it. `floor` is a blocking socket that only stamps: nothing in Python comes closer.

Every client runs in a process of its own. Rounds are interleaved and each begins with another client; of a client's
rounds the better half counts, statistic by statistic, since other work on a shared machine only ever adds. Rates are of
all streams together. The last line is JSON for the condition 1,000 events/s, one stream.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from battery.bench.sensors import fingerprint
from benchmarks.peers import PEERS, NotDriven, drive
from benchmarks.peers.environment import python_of

ROOT = Path(__file__).parents[1]
OWN = ("floor", "ours", "ours-watched", "httpx", "aiohttp")
RATES, STREAMS = (100, 1000, 5000), (1, 8, 32)
SECONDS = 2.0
"""Of events in one go."""
REQUESTS = 4
"""One after the other in each stream, so that a go has several first tokens."""
STATISTICS = ("median_us", "p99_us", "gap_median_us", "gap_p99_us", "ttft_median_us", "ttft_p99_us")


class Condition(NamedTuple):
    """Events per second of all streams together, and how many streams."""

    rate: int
    streams: int

    @property
    def tokens(self) -> int:
        """Events of one request."""
        return max(8, int(self.rate * SECONDS / self.streams / REQUESTS))


MAIN = Condition(1000, 1)


class Server:
    """The stamping server and what it tells."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.stamping_server"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def rate(self, rate: float) -> None:
        """Events per second from now on; what was dated before is forgotten."""
        body = json.dumps({"rate": rate}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/rate", body)).read()
        self.told()

    def told(self) -> dict[str, dict[str, Any]]:
        """The server's dates by the key of the request."""
        with urllib.request.urlopen(f"{self.url}/stamps") as answer:
            return {one["key"]: one for one in json.load(answer)}

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server for the length of a block."""
    server = Server()
    try:
        yield server
    finally:
        server.close()


def go(name: str, server: Server, condition: Condition) -> dict[str, float | int | None]:
    """One go of a client under a condition, as statistics; NotDriven where a client gave no figures."""
    server.rate(condition.rate)
    if name in PEERS:
        records = _peer(name, server, condition)
    else:
        python = python_of("llama-benchy") if name == "aiohttp" else sys.executable
        command = [str(python), "-m", "benchmarks.receivers", name, "--url", server.url]
        command += ["--tokens", str(condition.tokens), "--requests", str(REQUESTS)]
        done = subprocess.run(
            [*command, "--streams", str(condition.streams)],
            cwd=ROOT, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if done.returncode:
            raise NotDriven(f"{name} exited with {done.returncode}: {done.stderr.strip()[-300:]}")
        records = json.loads(done.stdout)
    if len(records) != condition.streams * REQUESTS:
        raise NotDriven(
            f"{name}: {len(records)} requests instead of {condition.streams * REQUESTS}"
        )
    return judge(records, server.told())


def _peer(name: str, server: Server, condition: Condition) -> list[dict[str, Any]]:
    """One run of a peer."""
    requests = condition.streams * REQUESTS
    with tempfile.TemporaryDirectory() as place:
        run = drive(
            name, server.url, "stamped", requests, condition.streams, condition.tokens, Path(place)
        )
    return [
        {
            "key": one.key,
            "send_ns": one.send_ns,
            "event_ns": one.event_ns,
            "ends_ns": [one.first_ns, one.last_ns],
        }
        for one in run.requests
    ]


def judge(
    records: Sequence[dict[str, Any]], told: dict[str, dict[str, Any]]
) -> dict[str, float | int | None]:
    """Statistics of one go, in microseconds; None where a client does not record what they need.

    A client that stamps only first and last tokens is judged by these; `stamps` says how many there were.
    """
    late: list[float] = []
    gaps: list[float] = []
    first: list[float] = []
    for record in records:
        truth = told[record["key"]]
        sent, seen = truth["sent_ns"], record["event_ns"]
        if seen:
            if len(seen) != len(sent):
                raise NotDriven(f"{len(seen)} events seen of {len(sent)} that were sent")
            here = [(a - b) / 1e3 for a, b in zip(seen, sent, strict=True)]
            gaps += [abs(b - a) for a, b in itertools.pairwise(here)]
            late += here
            start = seen[0]
        else:
            start, last = record["ends_ns"]
            late += [(start - sent[0]) / 1e3, (last - sent[-1]) / 1e3]
        if record["send_ns"] is not None:
            first.append((start - record["send_ns"] - sent[0] + truth["arrived_ns"]) / 1e3)
    return {
        "median_us": quantile(late, 0.5),
        "p99_us": quantile(late, 0.99),
        "gap_median_us": quantile(gaps, 0.5),
        "gap_p99_us": quantile(gaps, 0.99),
        "ttft_median_us": quantile(first, 0.5),
        "ttft_p99_us": quantile(first, 0.99),
        "stamps": len(late),
    }


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all do not exceed; None of none."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[max(0, -int(-share * len(ranked) // 1) - 1)]


def better_half(values: Sequence[float]) -> float:
    """The mean of the lower half of the rounds (of the lower middle one too, for an odd number)."""
    ranked = sorted(values)
    return statistics.fmean(ranked[: (len(ranked) + 1) // 2])


def summary(rounds: Sequence[dict[str, float | int | None]]) -> dict[str, float | int | None]:
    """What the better half of a client's rounds say."""
    told: dict[str, float | int | None] = {}
    for name in STATISTICS:
        values = [one[name] for one in rounds if one[name] is not None]
        told[name] = (
            round(better_half([float(value) for value in values if value is not None]), 1)
            if values
            else None
        )
    told["rounds"] = len(rounds)
    told["stamps"] = sum(int(one["stamps"] or 0) for one in rounds)
    return told


Results = dict[Condition, dict[str, list[dict[str, float | int | None]]]]


def measure(
    server: Server,
    condition: Condition,
    names: Sequence[str],
    rounds: int,
    results: Results,
    absent: dict[str, str],
) -> None:
    """Interleaved rounds of some clients under one condition."""
    for number in range(rounds):
        turned = [*names[number % len(names) :], *names[: number % len(names)]]
        for name in turned:
            if name in absent:
                continue
            try:
                told = go(name, server, condition)
            except (NotDriven, subprocess.TimeoutExpired) as why:
                print(
                    f"{name} at {condition.rate}/s x {condition.streams}: not driven: {why}",
                    file=sys.stderr,
                )
                if name in PEERS or name == "aiohttp":
                    results[condition].setdefault(name, [])
                    if not results[condition][name]:
                        absent[name] = str(why)
                    continue
                raise
            results[condition].setdefault(name, []).append(told)
        print(
            f"{condition.rate:,}/s x {condition.streams}: round {number + 1} of {rounds}",
            file=sys.stderr,
        )


def table(results: Results) -> str:
    """All conditions as Markdown: microseconds, and the ratio to the floor."""
    rows = [
        "| events/s | streams | client | late, median | × floor | late, p99 | × floor | gap, median | gap, p99"
        " | TTFT, median | stamps |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for condition, by_name in results.items():
        told = {name: summary(rounds) for name, rounds in by_name.items() if rounds}
        floor = told["floor"]
        for name, one in told.items():
            cells = [f"{condition.rate:,}", str(condition.streams), name]
            for key in ("median_us", "p99_us"):
                value, least = one[key], floor[key]
                cells.append(words(value))
                cells.append(f"{value / least:.2f}" if value is not None and least else "–")
            cells += [words(one[key]) for key in ("gap_median_us", "gap_p99_us", "ttft_median_us")]
            rows.append("| " + " | ".join([*cells, f"{one['stamps']:,}"]) + " |")
    return "\n".join(rows)


def words(value: float | int | None) -> str:
    """Microseconds for people; a dash where a client does not record them."""
    return "–" if value is None else f"{value:,.0f}"


def headline(results: Results) -> dict[str, Any]:
    """The main condition as the last line gives it."""
    told = {name: summary(rounds) for name, rounds in results[MAIN].items() if rounds}
    peers = {name: one for name, one in told.items() if name in (*PEERS, "httpx", "aiohttp")}
    best = min(peers, key=lambda name: peers[name]["median_us"] or float("inf"), default=None)
    said: dict[str, Any] = {}
    for key in ("median_us", "p99_us"):
        said[f"ours_{key}"] = told["ours"][key]
        said[f"floor_{key}"] = told["floor"][key]
    said["best_peer"] = best
    for key in ("median_us", "p99_us"):
        said[f"best_peer_{key}"] = peers[best][key] if best else None
    return {**said, "events_per_s": MAIN.rate, "streams": MAIN.streams}


def main() -> None:
    """Measure, print the table, keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6, help="under the main condition")
    parser.add_argument(
        "--other-rounds", type=int, default=2, help="of sockets and libraries elsewhere"
    )
    parser.add_argument(
        "--peer-rounds", type=int, default=1, help="of other tools elsewhere; they start slowly"
    )
    parser.add_argument(
        "--no-tools", action="store_true", help="without guidellm, aiperf, llama-benchy"
    )
    parser.add_argument("--only-main", action="store_true", help="only 1,000 events/s, one stream")
    parser.add_argument("--out", type=Path, help="JSON with everything; a Markdown table beside it")
    asked = parser.parse_args()
    tools = () if asked.no_tools else tuple(PEERS)
    conditions = [MAIN] if asked.only_main else [Condition(r, s) for r in RATES for s in STREAMS]
    results: Results = {condition: {} for condition in conditions}
    absent: dict[str, str] = {}
    with serving() as server:
        for condition in conditions:
            many = condition == MAIN
            if many:
                measure(server, condition, [*OWN, *tools], asked.rounds, results, absent)
                continue
            measure(server, condition, OWN, asked.other_rounds, results, absent)
            measure(server, condition, tools, asked.peer_rounds if tools else 0, results, absent)
    page = table(results)
    print(page)
    for name, why in absent.items():
        print(f"{name}: not driven: {why}")
    if asked.out:
        keep(asked.out, page, results, absent)
    print(json.dumps(headline(results)))


def keep(path: Path, page: str, results: Results, absent: dict[str, str]) -> None:
    """Write every round, and the table beside it."""
    document = {
        "command": "make bench-client",
        "machine": fingerprint(),
        "headline": headline(results),
        "not_driven": absent,
        "rounds": [
            {
                "events_per_s": condition.rate,
                "streams": condition.streams,
                "client": name,
                "rounds": rounds,
            }
            for condition, by_name in results.items()
            for name, rounds in by_name.items()
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    title = "# How late a stamp is\n\n"
    said = " ".join((__doc__ or "").split("\n\n", 1)[1].split("\n\n", 1)[1].split())
    path.with_suffix(".md").write_text(
        f"{title}`make bench-client`. {said}\n\nMicroseconds.\n\n{page}\n"
    )


if __name__ == "__main__":
    main()
