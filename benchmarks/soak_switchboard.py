"""Thousands of requests in a row to one server, and whether its memory stays as it is.

    python -m benchmarks.soak_switchboard [--requests 2000] [--model M] [--switch S …] [--out FILE] [--plant BYTES]

Requests of every kind in a seeded order: both endpoints, streamed and not, short and long prompts, drawn and greedy,
with log-probabilities, with stop strings, wrong ones, and clients that leave in the middle. After every 50 the server
is looked at while it rests: resident memory of its process, descriptors and threads as the system counts them, arrays
that are alive and buffers kept for reuse as MLX does.

The first tenth is warm-up: allocators and caches fill. Of what follows the first fifth of the looks is held against the
last, by their medians: resident memory and kept buffers may grow by 2 %, descriptors, threads and living arrays not at
all. `--plant` has the server keep so many bytes of each request: the check must find that. The last line is one JSON
object; the exit code is 1 if anything grew or a request did not end as it should.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil

MODEL = "synthetic:tiny-llama"
SWITCHES = ("fused_qkv", "fused_gate_up", "prompt_lookup:adaptive=false")
EVERY = 50
WITHIN = 0.02
PATIENCE_S = 120.0
LEAK = """
import sys
from switchboard import worker
kept, plain, size = [], worker.Worker._serve, int(sys.argv.pop(1))
def leaking(self, session, job):
    kept.append(bytearray(b"x") * size)
    return plain(self, session, job)
worker.Worker._serve = leaking
from switchboard.__main__ import main
main()
"""
"""A server that keeps some bytes of every request."""
EXPECTED = {"finished": 200, "stopped": 200, "streamed": 200, "left": 200, "wrong": 400}


class Look(msgspec.Struct, frozen=True):
    """The server after so many requests, at rest; bytes, but for the two counts."""

    requests: int
    rss: int
    fds: int | None
    threads: int
    active: int
    cache: int


class Found(msgspec.Struct, frozen=True):
    """What came of it; growth as a share, None where it was not looked at."""

    model: str
    switches: list[str]
    requests: int
    kinds: dict[str, int]
    wrong: list[str]
    growth: dict[str, float | None]
    grew: list[str]
    platform: str
    build: dict[str, Any]
    looks: list[Look]


@contextlib.contextmanager
def server(model: str, switches: Sequence[str], plant: int = 0) -> Iterator[tuple[str, int]]:
    """A server on a port of its own: its address and its process id."""
    start = (
        [sys.executable, "-c", LEAK, str(plant)] if plant else [sys.executable, "-m", "switchboard"]
    )
    words = [word for one in switches for word in ("--switch", one)]
    process = subprocess.Popen(
        [*start, "serve", "--model", model, "--port", "0", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if told := re.search(r" on (http://\S+) ", line):
                yield told[1], process.pid
                break
        else:
            raise RuntimeError(f"the server ended with status {process.wait()} before it listened")
    finally:
        process.terminate()
        process.wait(10)
        process.stderr.close()


def plan(count: int, seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, path and body of each request."""
    chance = random.Random(seed)
    for number in range(count):
        words = " ".join(chance.choice("abcdefgh") * 3 for _ in range(chance.randint(2, 60)))
        chat = chance.random() < 0.5
        body: dict[str, Any] = {
            "max_tokens": chance.randint(1, 16),
            "ignore_eos": True,
            "seed": number,
        }
        body["temperature"] = chance.choice([0, 0.8])
        kind = chance.choices(
            ["finished", "streamed", "stopped", "left", "wrong"], [8, 8, 2, 1, 1]
        )[0]
        if chance.random() < 0.2:
            body |= {"logprobs": True, "top_logprobs": 3} if chat else {"logprobs": 3}
        body |= {"messages": [{"role": "user", "content": words}]} if chat else {"prompt": words}
        if kind == "stopped":
            body["stop"] = ["e", "th"]
        elif kind == "left":
            body |= {"stream": True, "max_tokens": 500}
        elif kind == "streamed":
            body["stream"] = True
        elif kind == "wrong":
            body["temprature"] = 1
        yield kind, "/v1/chat/completions" if chat else "/v1/completions", body


def send(client: httpx.Client, kind: str, path: str, body: dict[str, Any]) -> str | None:
    """One request; what was wrong with its answer, or None."""
    with client.stream("POST", path, json=body) as reply:
        if reply.status_code != EXPECTED[kind]:
            return f"{kind}: status {reply.status_code}: {reply.read()[:200]!r}"
        lines = reply.iter_lines()
        if kind == "left":
            next(lines)
            return None
        text = "\n".join(lines)
    if kind == "streamed" and not text.rstrip().endswith("data: [DONE]"):
        return f"{kind}: the stream has no end mark"
    if kind in ("finished", "stopped") and "usage" not in json.loads(text):
        return f"{kind}: no usage"
    return None


def look(client: httpx.Client, pid: int, requests: int) -> Look:
    """The server at rest: asked for again until nothing runs or waits."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        figures = client.get("/metrics").text
        if all(f"requests_{state} 0\n" in figures for state in ("running", "waiting")):
            break
        time.sleep(0.01)
    else:
        raise RuntimeError(f"the server did not come to rest within {PATIENCE_S} s")
    process, memory = psutil.Process(pid), client.get("/health").json()["memory"]
    fds = process.num_fds() if hasattr(process, "num_fds") else None
    rss, threads = process.memory_info().rss, process.num_threads()
    return Look(requests, rss, fds, threads, memory["active"], memory["cache"])


def soak(
    model: str,
    switches: Sequence[str],
    count: int,
    *,
    every: int = EVERY,
    seed: int = 1,
    plant: int = 0,
) -> Found:
    """Send them all and judge."""
    kinds, wrong, looks = Counter[str](), list[str](), list[Look]()
    with (
        server(model, switches, plant) as (address, pid),
        httpx.Client(base_url=address, timeout=PATIENCE_S) as client,
    ):
        for number, (kind, path, body) in enumerate(plan(count, seed), 1):
            kinds[kind] += 1
            if (what := send(client, kind, path, body)) is not None:
                wrong.append(f"request {number}: {what}")
            if number % every == 0:
                looks.append(look(client, pid, number))
        health = client.get("/health").json()
    grown = growth(looks)
    return Found(
        model=model,
        switches=list(switches),
        requests=count,
        kinds=dict(sorted(kinds.items())),
        wrong=wrong,
        growth=grown,
        grew=judge(grown),
        platform=sys.platform,
        build=health["build"],
        looks=looks,
    )


def growth(looks: Sequence[Look]) -> dict[str, float | None]:
    """Each figure's growth from the first fifth of the looks behind the warm-up to the last fifth, as a share."""
    settled = looks[max(1, len(looks) // 10) :]
    size = max(1, len(settled) // 5)
    found: dict[str, float | None] = {}
    for name in ("rss", "fds", "threads", "active", "cache"):
        first, last = (
            [getattr(one, name) for one in part] for part in (settled[:size], settled[-size:])
        )
        if None in first + last:
            found[name] = None
            continue
        before, after = statistics.median(first), statistics.median(last)
        found[name] = (after - before) / before if before else float(after > 0)
    return found


def judge(grown: dict[str, float | None]) -> list[str]:
    """Names of the figures that grew by more than they may."""
    limits = {"rss": WITHIN, "cache": WITHIN}
    return [name for name, one in grown.items() if one is not None and one > limits.get(name, 0.0)]


def main(argv: list[str] | None = None) -> int:
    """Soak, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--switch", action="append", help="instead of the default three")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plant", type=int, default=0, metavar="BYTES")
    asked = parser.parse_args(argv)
    found = soak(asked.model, asked.switch or SWITCHES, asked.requests, plant=asked.plant)
    if asked.out:
        asked.out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    told = {name: getattr(found, name) for name in ("requests", "growth", "grew")}
    print(json.dumps({**told, "wrong": found.wrong[:5]}))
    return 1 if found.grew or found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
