"""How long it takes to load, analyse and draw a campaign of 100,000 receipts, and what memory: first and second time.

    python -m benchmarks.reading [--receipts 100000] [--small 10000] [--rounds 3] [--folder FOLDER] [--out FILE]

Two campaigns are made in a temporary folder (benchmarks.campaigns), a large and a small one. Every figure is of a
process of its own: `first` finds no index and leaves one, `second` finds it, `naive` takes a script's first steps with
json and pandas (json.loads of every file, a table of four metrics, their mean ratios by arm and rung over blocks of
pairs; no interval, no check, no page). They take turns, `rounds` times, and medians are printed. First and second must
give the same bytes of findings, pages and charts, and those of `findings.analyse`, which uses no index. The last line
is one JSON object about the large campaign.

*Times* begin after the imports; what these take, and what the whole process took from its start to its end, is told
beside them. Files are written out before the first look (else whoever writes first waits for all of them) and lie in
the page cache, where making them left them. *Memory* is the high-water mark of resident memory of the one process that
reads, draws and writes; it starts no other, which is checked, so that this is the sum over all of them. Whoever made
the campaign is another program.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from battery.ledger.index import FILE as INDEX
from battery.ledger.index import SETTLED_NS, why_not

KEPT = (INDEX, ".index.findings")
WAYS = ("first", "second", "naive")
METRICS = ["decode", "prefill", "ttft", "peak_memory"]
"""What the naive way computes, by the names that battery has for them."""


def worker(way: str, folder: Path, out: Path) -> dict[str, Any]:
    """One way through a campaign, timed."""
    began = time.perf_counter()
    if way == "naive":
        import pandas as pd

        ready, cpu = time.perf_counter(), time.process_time()
        naive(folder, pd)
        done = time.perf_counter()
        told: dict[str, Any] = {"digest": ""}
    else:
        from battery.analyse import findings, indexed
        from battery.render import charts, report
        from battery.render.html.page import write_page

        ready, cpu = time.perf_counter(), time.process_time()
        found = findings.analyse(folder) if way == "whole" else indexed.analyse(folder)
        analysed = time.perf_counter()
        drawn = charts.draw(found)
        written = charts.render_charts(found, out / "charts", drawn)
        written += [*report.write_report(found, out), write_page(folder, found, out, drawn)]
        done = time.perf_counter()
        told = {
            "analyse_s": analysed - ready, "render_s": done - analysed,
            "digest": hashlib.sha256(b"".join(path.read_bytes() for path in written)).hexdigest(),
        }  # fmt: skip
    spent = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_mb = peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
    return {
        **told,
        "import_s": ready - began,
        "s": done - ready,
        "cpu_s": spent,
        "peak_mb": peak_mb,
    }


def naive(folder: Path, pd: Any) -> dict[tuple[str, str, int], float]:
    """Ratios to the first arm by arm, metric and rung, as a script would have them: means over blocks of pairs."""
    rows = []
    for path in sorted(folder.glob("[0-9]*-b*.json")):
        one = json.loads(path.read_text())
        cell, trace = one["cell"], one["trace"]
        if one["outcome"] != "ok" or cell["sentinel"]:
            continue
        events, timings, window = trace["events"], trace["timings"], cell["window"]
        rate = (trace["completion_tokens"] - events[0][1]) * 1e9 / (events[-1][0] - events[0][0])
        prefill = timings["prompt_tokens"] / timings["prompt_s"]
        values = rate, prefill, events[0][0] / 1e9, one["memory"]["peak"]
        rows.append((window["arm"], cell["rung"], window["block"], cell["seed"], *values))
    table = pd.DataFrame(rows, columns=["arm", "rung", "block", "seed", *METRICS])
    table[METRICS] = table[METRICS].map(math.log)
    wide = table.set_index(["rung", "block", "seed", "arm"])[METRICS].unstack("arm")
    arms = list(dict.fromkeys(table["arm"]))
    ratios = {}
    for metric in METRICS:
        for arm in arms[1:]:
            gains = (wide[metric][arm] - wide[metric][arms[0]]).dropna()
            means = gains.groupby(["rung", "block"]).mean().groupby("rung").mean()
            ratios |= {(arm, metric, int(rung)): math.exp(mean) for rung, mean in means.items()}
    return ratios


def measured(way: str, folder: Path, out: Path) -> dict[str, Any]:
    """One way in a process of its own."""
    if way == "first":
        for name in KEPT:
            (folder / name).unlink(missing_ok=True)
    line = [sys.executable, "-m", "benchmarks.reading", "--worker", way, str(folder), str(out)]
    began = time.perf_counter()
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    process_s = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{way}: exit {done.returncode}\n{done.stderr}")
    return {**json.loads(done.stdout.splitlines()[-1]), "process_s": process_s}


def campaign(root: Path, receipts: int, rounds: int) -> dict[str, Any]:
    """Make a campaign, go through it, tell of it line by line; the medians."""
    from benchmarks import campaigns

    size, began = campaigns.shape(receipts), time.perf_counter()
    made = campaigns.make(root / "receipts" / f"many-{size.receipts}", size)
    count, total = len(made.names()), campaigns.total_bytes(made)
    print(
        f"{count:,} receipts, {total / 1e6:,.0f} MB: {len(campaigns.ARMS)} arms, {size.blocks} blocks,"
        f" {len(campaigns.LADDER)} contexts, {size.seeds} seeds; made in {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    os.sync()
    time.sleep(1.5 * SETTLED_NS / 1e9)  # an index is kept of files only that have been left alone
    seen: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            seen[way].append(measured(way, made.folder, root / way))
            print(f"  {way:6}", _told(seen[way][-1]), flush=True)
    whole = measured("whole", made.folder, root / "whole")
    print("  whole ", _told(whole), flush=True)
    if len({one["digest"] for one in (*seen["first"], *seen["second"], whole)}) != 1:
        raise SystemExit("first and second time do not give the same bytes")
    kept = sum(
        (made.folder / name).stat().st_size for name in KEPT if (made.folder / name).exists()
    )
    print(f"  index and findings kept beside them: {kept / 1e6:,.1f} MB", flush=True)
    return {
        "receipts": count,
        **{f"{way}_s": _median(seen[way], "s") for way in WAYS},
        "peak_mb": round(max(one["peak_mb"] for way in ("first", "second") for one in seen[way])),
    }


def _told(one: dict[str, Any]) -> str:
    parts = ", ".join(
        f"{name} {one[f'{name}_s']:.2f}" for name in ("analyse", "render") if f"{name}_s" in one
    )
    beside = f" ({parts})" if parts else ""
    return (
        f"{one['s']:7.2f} s{beside}, {one['cpu_s']:.2f} s of it on a processor; the whole process"
        f" {one['process_s']:.2f} s, imports {one['import_s']:.2f} s of it; peak {one['peak_mb']:,.0f} MB"
    )


def _median(found: list[dict[str, Any]], name: str) -> float:
    return round(statistics.median(one[name] for one in found), 2)


def main() -> None:
    """Measure both sizes and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--receipts", type=int, default=100_000)
    parser.add_argument("--small", type=int, default=10_000, help="0: the large one only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, help="where campaigns are made; default: a temporary folder"
    )
    parser.add_argument("--out", type=Path, help="a file for the last line")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        way, folder, out = options.worker
        told = json.dumps(worker(way, Path(folder), Path(out)))
        if resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss:
            raise SystemExit("a reader started another process: count the memory of both")
        print(told)
        return
    print(f"{os.cpu_count()} processors, {os.getloadavg()[0]:.1f} programs at work before this one")
    if why := why_not():
        print(f"no index: {why}; the second time is as slow as the first")
    with tempfile.TemporaryDirectory(dir=options.folder) as root:
        small = campaign(Path(root), options.small, options.rounds) if options.small else None
        large = campaign(Path(root), options.receipts, options.rounds)
    if small:
        size, times = (large[name] / small[name] for name in ("receipts", "first_s"))
        power = math.log(times) / math.log(size) if size > 1 else float("nan")
        print(
            f"{size:.1f} times the receipts take {times:.1f} times as long: time grows with power {power:.2f}"
        )
    last = json.dumps(
        {name: large[name] for name in ("receipts", "first_s", "second_s", "peak_mb", "naive_s")}
    )
    if options.out:
        options.out.write_text(last + "\n")
    print(last)


if __name__ == "__main__":
    main()
