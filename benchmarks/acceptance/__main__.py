"""Sum what every acceptance law does to a text, and write it down.

    python -m benchmarks.acceptance [--quick] [--derive] [--out FOLDER]

The same at every run. `reports/acceptance.md` follows from `reports/acceptance.json` alone; `--derive` writes it again
without summing. What adaptive drafts cost at worst is read from the receipts of a campaign in both cases. The last line
is one JSON object; the exit code is 1 if a bar fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from battery.ledger.disk import replace
from benchmarks.acceptance import report, slowdown
from benchmarks.acceptance.oracle import Found, Matched, bound, look
from benchmarks.acceptance.worlds import Kind, World, worlds
from switchboard.accept.exact import Block, OneByOne
from switchboard.accept.lossy import Cascade, Typical

ROOT = Path(__file__).parents[2]
SEED = 1
WORLDS = 288
"""Every sampling with every vocabulary, depth and noise of the draft, once."""
KINDS: tuple[Kind, ...] = ("certain", "drawn", "stopping")


def exact_laws() -> list[tuple[str, Any, Sequence[Kind]]]:
    """Laws that keep the distribution, with the kinds of drafts that they are for."""
    return [("matched", Matched(), KINDS[:1]), ("exact", OneByOne(), KINDS), ("block", Block(), KINDS)]  # fmt: skip


def lossy_laws() -> list[tuple[str, Any, Sequence[Kind]]]:
    """Laws that do not: as Medusa has it by default and looser; both rules of cascades from alpha = 0 on."""
    typical = [
        (f"typical epsilon={epsilon:g} delta={delta:g}", Typical(epsilon, delta), KINDS[:2])
        for epsilon, delta in ((0.3, 0.55), (0.2, 0.45), (0.09, 0.3))
    ]
    token = [
        (f"cascade token alpha={alpha:g}", Cascade(alpha, "token"), KINDS[:2])
        for alpha in (0.0, 0.5, 0.75, 0.95)
    ]
    peak = [
        (f"cascade peak alpha={alpha:g}", Cascade(alpha, "peak"), KINDS[1:2])
        for alpha in (0.0, 0.25, 0.5, 2.0)
    ]
    return [*typical, *token, *peak]


def row(
    name: str, law: Any, kind: Kind, seen: list[World], usual: list[Found] | None
) -> dict[str, Any]:
    """One law with one kind of draft in all worlds; `usual` is the exact law's there, None where this one is exact."""
    found = [look(law, one, kind) for one in seen]
    exact = usual is None
    limits = [0.0 if exact else bound(law, one, kind) for one in seen]
    single = [place for place, one in enumerate(seen) if one.depth == 1]
    return {
        "law": name,
        "draft": kind,
        "exact": exact,
        "worlds": len(seen),
        "max_tv": max(one.drift for one in found),
        "mean_tv": sum(one.drift for one in found) / len(found),
        "bound": max(limits),
        "one_guess_tv": max(found[place].drift for place in single),
        "one_guess_bound": max(limits[place] for place in single),
        "over_bound": max(one.drift - limit for one, limit in zip(found, limits, strict=True)),
        "tokens": sum(one.tokens for one in found) / len(found),
        "tokens_exact": sum(one.tokens for one in usual or found) / len(found),
    }


def measure(count: int) -> dict[str, Any]:
    """The whole document, but for its bars."""
    every = list(worlds(count, SEED))
    drawing = [one for one in every if one.sampling.temperature > 0]
    rows = []
    usual = {kind: [look(OneByOne(), one, kind) for one in drawing] for kind in KINDS[:2]}
    for exact, laws, seen in ((True, exact_laws(), every), (False, lossy_laws(), drawing)):
        for name, law, kinds in laws:
            for kind in kinds:
                rows.append(row(name, law, kind, seen, None if exact else usual[kind]))
                say(f"{name}, {kind}: max TV {rows[-1]['max_tv']:.3g}")
    return {
        "command": "make bench-acceptance",
        "seed": SEED,
        "worlds": count,
        "rows": rows,
        "exact_max_tv": max(one["max_tv"] for one in rows if one["exact"]),
    }


def say(words: str) -> None:
    """One line of progress."""
    print(words, file=sys.stderr, flush=True)


def text(document: dict[str, Any]) -> str:
    """The document as it is kept."""
    return json.dumps(document, indent=1) + "\n"


def headline(document: dict[str, Any]) -> dict[str, Any]:
    """The last line: how far exact laws are off, how far each law with each draft, and what adapting costs at worst."""
    laws = {f"{one['law']}, {one['draft']}": one["max_tv"] for one in document["rows"]}
    asked = {key: document[key] for key in ("exact_max_tv", "adaptive_worst_slowdown", "reasons")}
    return {"exact_max_tv": asked.pop("exact_max_tv"), "laws": laws, **asked}


def plain(value: Any) -> Any:
    """The same document with floats at seven significant digits."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def main(words: list[str] | None = None) -> int:
    """Sum or derive, write, print; 1 if a bar fails."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.acceptance", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--quick", action="store_true", help="36 worlds only; written only with --out"
    )
    parser.add_argument("--derive", action="store_true", help="sum nothing: write the report again")
    parser.add_argument("--out", type=Path, help="folder for reports/ instead of the repository")
    asked = parser.parse_args(words)
    began, folder = time.monotonic(), (asked.out or ROOT) / "reports"
    if asked.derive:
        document = json.loads((folder / "acceptance.json").read_text())
    else:
        document = measure(36 if asked.quick else WORLDS)
    document = plain({**document, **slowdown.told(ROOT)})
    document["bars"] = report.bars(document)
    if asked.out or not asked.quick:
        folder.mkdir(parents=True, exist_ok=True)
        replace(folder / "acceptance.json", text(document).encode())
        replace(folder / "acceptance.md", report.page(document).encode())
    say(f"took {time.monotonic() - began:.0f} s")
    print("\n".join(report.table(document)))
    for bar in document["bars"]:
        print(f"{'holds' if bar['holds'] else 'FAILS'}: {bar['what']}: {bar['value']} ({bar['bar']})")  # fmt: skip
    print(json.dumps(headline(document)))
    return 0 if all(bar["holds"] for bar in document["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
