"""All sections of one GPU session into two files, the epilogue's verdict, and a short table.

    python -m benchmarks.gpu.gather --parts FOLDER --out FOLDER

Writes `epilogue.json` (the plan's cases and their verdict) and `proofs.json` (the other sections, and how and when each
process ended). A section whose file is not there is in the table as that. Exit status: the verdict's; 1 also when a
bisect rung failed, a view was read wrongly, or what is held against itself did not repeat; 2 when a file of a section
is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.epilogue_gpu.kernels import names
from benchmarks.epilogue_gpu.plan import plan
from benchmarks.epilogue_gpu.verdict import verdict

PARTS = ("kernel", "text", "speed")
SECTIONS = {
    "views": ("views",),
    "attention": ("attention-as-it-is", "attention-without-cudnn"),
    "bisect": ("smollm2", "llama", "qwen3_moe", "qwen3_5_moe", "gemma3"),
    "steps": ("smollm2", "qwen3_moe", "gemma3"),
}
"""The files that gpu_proofs.sh writes, by section; of a model by its name."""


def sheets(folder: Path, section: str) -> dict[str, dict[str, Any]]:
    """Every file of a section, by its name."""
    return {
        path.stem: json.loads(path.read_text()) for path in sorted(folder.glob(f"{section}*.json"))
    }


def epilogue(folder: Path) -> dict[str, Any]:
    """The epilogue's cases, what each process said of itself, and the verdict."""
    told: dict[str, Any] = {"about": {}}
    for part in PARTS:
        told[part] = {}
        for name, sheet in sheets(folder, part).items():
            told["about"][name] = sheet["about"]
            told[part] |= sheet["cases"]
    told["verdict"] = verdict(plan(names()), *(told[part] for part in PARTS))
    return told


def main() -> int:
    """Both files and the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=("all", "epilogue"), default="all")
    asked = parser.parse_args()
    told = epilogue(asked.parts)
    (asked.out / "epilogue.json").write_text(json.dumps(told, indent=1))
    found = told["verdict"]
    status: int = found["status"]
    if asked.only == "all":
        ends = asked.parts / "ends.txt"
        proofs: dict[str, Any] = {section: sheets(asked.parts, section) for section in SECTIONS}
        proofs["ends"] = ends.read_text().splitlines() if ends.exists() else []
        (asked.out / "proofs.json").write_text(json.dumps(proofs, indent=1))
        print("\n".join(table(proofs)))
        status = worst([status, *(judged(proofs, section) for section in SECTIONS)])
    print("\n".join(shown(found)))
    print(json.dumps({**found, "errors": len(found["errors"]), "status": status}))
    return status


def worst(statuses: list[int]) -> int:
    """1 where something was wrong, else 2 where something is missing, else 0."""
    return 1 if 1 in statuses else 2 if 2 in statuses else 0


def judged(proofs: dict[str, Any], section: str) -> int:
    """The status of one section: what failed, or what is not there."""
    cases = [case for sheet in proofs[section].values() for case in sheet["cases"].values()]
    if any(case.get("failed") or case.get("wrong") or unsteady(case) for case in cases):
        return 1
    there = {name.removeprefix(f"{section}-") for name in proofs[section]} | set(proofs[section])
    whole = there.issuperset(SECTIONS[section])
    return 0 if whole and not any("error" in case for case in cases) else 2


def unsteady(case: dict[str, Any]) -> bool:
    """Whether the same work twice gave two results: nothing that is held against it means anything then."""
    ways = [one for one in case.values() if isinstance(one, dict) and "repeats" in one]
    return bool(case.get("differ")) or not all(one["repeats"] for one in ways)


def table(proofs: dict[str, Any]) -> list[str]:
    """One line for every case that says something in a word or two."""
    lines = []
    for section in SECTIONS:
        if not proofs[section]:
            lines.append(f"{section}: no file; it never started")
        for name, sheet in proofs[section].items():
            lines.append(f"{name} ({sheet['about'].get('model', sheet['about'].get('cudnn', ''))})")
            lines += [f"  {case[:44]:44} {word(one)}" for case, one in sheet["cases"].items()]
    return lines


def word(case: dict[str, Any]) -> str:
    """What one case came to."""
    if "error" in case:
        return "- " + " ".join(case["error"].split())[-90:]
    if case.get("declined"):
        return f"declined: {case['declined'][:80]}"
    if "held" in case:
        return f"{case['held']} of {case['cases']} held"
    if "rungs" in case:
        failed = [name for name, said in case["rungs"].items() if said.startswith("failed")]
        return f"FAILED {', '.join(failed)}" if failed else "every rung passed"
    if "launches" in case:
        more = case.get("more_than_plain")
        return f"{case['launches']} launches" + ("" if more is None else f" ({more:+d})")
    if "whole steps" in case:
        ways = {name: one for name, one in case.items() if isinstance(one, dict)}
        return "; ".join(
            f"{name}: {'repeats' if one['repeats'] else 'DOES NOT REPEAT'}, "
            f"{'same' if one['as_whole_steps'] else 'other by ' + format(one['gap'], '.2g')}"
            for name, one in ways.items()
        )
    return str({key: value for key, value in case.items() if key != "took_s"})[:90]


def shown(found: dict[str, Any]) -> list[str]:
    """The epilogue's verdict in lines."""
    lines = [f"FAILED {one}"[:160] for one in found["failures"][:20]]
    lines += [f"not measured: {one}"[:160] for one in found["errors"][:12]]
    if len(found["errors"]) > 12:
        lines.append(f"… and {len(found['errors']) - 12} more not measured (epilogue.json has all)")
    return lines


if __name__ == "__main__":
    sys.exit(main())
