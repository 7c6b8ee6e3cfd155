"""Measure what the statistics are worth, and write it down.

    python -m benchmarks.statistics [--quick] [--derive] [--out FOLDER]

Simulations are the same at every run; the positive control is a campaign of now. `reports/statistics.md` and the charts
follow from `reports/statistics.json` alone, and `--derive` writes them again without measuring (it reads the noise
floor anew). The last line is one JSON object; the exit code is 1 if a bar fails.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from battery.bench.sensors import fingerprint
from battery.ledger.disk import replace
from benchmarks.statistics import control, drawing, floor, intervals, nulls, report, rules

ROOT = Path(__file__).parents[2]
LARGE = 20_000
"""Simulated batteries per figure where all are judged at once: a share of one half is then known to 0.35 points."""
COVERED = 2000
SEEDS = {
    "nulls": nulls.SEED,
    "coverage": 5,
    "power": 5,
    "by theory": 5,
    "contrast": 7,
    "self tests": 3,
    "stopping": 6,
}


def say(words: str) -> None:
    """One line of progress."""
    print(words, file=sys.stderr, flush=True)


def measure(part: int) -> dict[str, Any]:
    """Everything, raw; with `part` > 1 that much fewer batteries, and no figure is worth anything."""
    large, covered, count = LARGE // part, COVERED // part, nulls.COUNT // part
    judged: list[nulls.Null] = []
    for one in nulls.judged(count):
        judged.append(one)
        if len(judged) % 50 == 0 or len(judged) == count:
            say(f"null batteries: {len(judged)} of {count}")
    told = {
        **nulls.summary(judged),
        "each": [[one.word, one.p, one.self_p] for one in judged],
        "rules": rules.shares(nulls.together(count)),
    }
    say(f"coverage: {covered} batteries")
    held = intervals.coverage(covered, SEEDS["coverage"])
    say(f"power, other rules, looking early: {large} batteries a figure")
    return {
        "command": "make bench-stats" + (" BENCH=--quick" if part > 1 else ""),
        "machine": fingerprint(),
        "seeds": SEEDS,
        "nulls": told,
        "coverage": held,
        "power": {
            "batteries": large,
            "error": intervals.error(0.5, large),
            "agreement": intervals.agreement(100, SEEDS["power"]),
            "rows": intervals.power(large, SEEDS["power"]),
            **intervals.found_by(large, SEEDS["by theory"]),
        },
        "contrast": {"batteries": large, "error": intervals.error(0.5, large),
                     "shares": rules.contrast(large, SEEDS["contrast"])},
        "self_tests": {"batteries": large, "shares": rules.self_tests(large, SEEDS["self tests"])},
        "stopping": {"batteries": large, "rows": intervals.stopping(large, SEEDS["stopping"])},
        "positive_control": control.positive(say),
    }  # fmt: skip


def plain(value: Any) -> Any:
    """The same document with floats at seven significant digits, and what is no number as null."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def text(document: dict[str, Any]) -> str:
    """The document as it is kept: indented, the list of single batteries one to a line."""
    each = document["nulls"]["each"]
    holder = {**document, "nulls": {**document["nulls"], "each": "EACH"}}
    lines = ",\n   ".join(json.dumps(one) for one in each)
    whole = json.dumps(holder, indent=1, ensure_ascii=False)
    return whole.replace('"EACH"', f"[\n   {lines}\n  ]") + "\n"


def derived(document: dict[str, Any]) -> dict[str, bytes]:
    """Every file that follows from the document, by its path."""
    charts = {
        f"charts/statistics/{key}.svg": data for key, data in drawing.charts(document).items()
    }
    return {"reports/statistics.md": report.page(document).encode(), **charts}


def keep(document: dict[str, Any], root: Path) -> None:
    """Write the document and everything that follows from it."""
    kept = text(document)
    # from what is kept, so that no digit depends on what was only in memory
    files = {"reports/statistics.json": kept.encode(), **derived(json.loads(kept))}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        replace(root / name, data)
        say(f"wrote {name}")


def headline(document: dict[str, Any]) -> dict[str, Any]:
    """The last line."""
    control = document["positive_control"]
    return {
        "null_batteries": document["nulls"]["batteries"],
        "null_rejections": document["nulls"]["rejections"],
        "coverage": document["coverage"]["coverage"],
        "positive_control_ratio": control["ratio"],
        "positive_control_low": control["low"],
        "positive_control_high": control["high"],
    }


def main(words: list[str] | None = None) -> int:
    """Measure or derive, write, print; 1 if a bar fails."""
    parser = argparse.ArgumentParser(prog="benchmarks.statistics", description=__doc__.splitlines()[0])  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the batteries; written only with --out"
    )
    parser.add_argument(
        "--derive", action="store_true", help="measure nothing: write report and charts again"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for reports/ and charts/ instead of the repository"
    )
    asked = parser.parse_args(words)
    began, root = time.monotonic(), asked.out or ROOT
    if asked.derive:
        document = json.loads((root / "reports" / "statistics.json").read_text())
    else:
        document = measure(10 if asked.quick else 1)
    document["noise_floor"] = floor.noise_floor(root / "reports")
    document = plain(document)
    document["bars"] = report.bars(document)
    if asked.out or not asked.quick:
        keep(document, root)
    say(f"took {time.monotonic() - began:.0f} s")
    for bar in document["bars"]:
        say(f"{'holds' if bar['holds'] else 'FAILS'}: {bar['what']}: {bar['value']} ({bar['bar']})")
    print(json.dumps(headline(document)))
    return 0 if all(bar["holds"] for bar in document["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
