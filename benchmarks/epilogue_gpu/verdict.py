"""What the epilogue's measurements come to, as one dictionary and the status to leave with; pure.

The counts are out of what was planned, so a run that measured little cannot look like one that proved much:

- status 0: everything planned was measured, and the kernel differed nowhere more than the chain from itself;
- status 1: a kernel case is not bitwise the chain's, or a text or its arrays differ where the chain repeats itself;
- status 2: nothing of that, but something planned was not measured (each with its reason, under `errors`).

`same_text`, by model, is null where that cannot be known: not every text was measured, they are loops of a few tokens
(`DISTINCT`), or the chain's own second run gave other tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.epilogue_gpu.plan import DISTINCT, Plan

UNSAID = "it left no result and no reason"
Told = Mapping[str, Any]


def verdict(plan: Plan, kernel: Told, text: Told, speed: Told) -> dict[str, Any]:
    """The verdict over what each part told: a result by case name, or {"error": reason}.

    A kernel case holds `differs` (None, or where); a text holds `distinct`, `again` and `run`, each of the latter two
    with `token` (the first that differs, or None), `arrays` and `differ`; a speed case holds `ratio`, `low` and `high`.
    """
    failures: list[str] = []
    errors: list[str] = []
    found = {
        "kernel": _kernel(_measured(plan.kernel, kernel, errors), len(plan.kernel), failures),
        **_texts(_measured(plan.text, text, errors), plan.text, failures),
        "speed": _speed(_measured(plan.speed, speed, errors), len(plan.speed)),
    }
    for part, told in (("kernel", kernel), ("text", text), ("speed", speed)):
        stray = sorted(set(told) - set(getattr(plan, part)))
        errors += [f"{part}: {name} is not in the plan" for name in stray]
    status = 1 if failures else 2 if errors else 0
    return {**found, "failures": failures, "errors": errors, "status": status}


def _measured(planned: Iterable[str], told: Told, errors: list[str]) -> dict[str, Any]:
    """The planned cases that have a result; the others go to the errors, with their reason."""
    there: dict[str, Any] = {}
    for name in planned:
        one = told.get(name, {"error": UNSAID})
        if "error" in one:
            errors.append(f"{name}: {one['error']}")
        else:
            there[name] = one
    return there


def _kernel(there: Told, planned: int, failures: list[str]) -> dict[str, Any]:
    wrong = {name: one["differs"] for name, one in there.items() if one["differs"] is not None}
    failures += [f"kernel {name}: {why}" for name, why in wrong.items()]
    by_type = Counter(name.partition(" ")[0] for name in there if name not in wrong)
    return {
        "same": len(there) - len(wrong),
        "measured": len(there),
        "planned": planned,
        "same_by_type": dict(sorted(by_type.items())),
    }


def _texts(there: Told, planned: tuple[str, ...], failures: list[str]) -> dict[str, Any]:
    verdicts: dict[str, bool | None] = {}
    unknown: list[str] = []
    for name, one in there.items():
        again, run = one["again"], one["run"]
        if run["differ"] > again["differ"]:
            failures.append(
                f"text {name}: {run['differ']} of {run['arrays']} arrays differ from the chain's, "
                f"and {again['differ']} of the chain's own second run"
            )
        verdicts[name] = None
        if one["distinct"] < DISTINCT:
            unknown.append(f"{name}: {one['distinct']} different tokens, a loop")
        elif again["token"] is not None:
            unknown.append(f"{name}: the chain's second run differs from token {again['token']} on")
        else:
            verdicts[name] = run["token"] is None
            if run["token"] is not None:
                failures.append(f"text {name}: another token at {run['token']}")
    models = dict.fromkeys(name.partition(" ")[0] for name in planned)
    return {
        "text": {"measured": len(there), "planned": len(planned)},
        "same_text": {
            model: _all([verdicts.get(name) for name in planned if name.startswith(f"{model} ")])
            for model in models
        },
        "same_text_unknown": unknown,
        "arrays": {
            "of": sum(one["run"]["arrays"] for one in there.values()),
            "kernel_differs": sum(one["run"]["differ"] for one in there.values()),
            "chain_differs_from_itself": sum(one["again"]["differ"] for one in there.values()),
        },
    }


def _all(verdicts: list[bool | None]) -> bool | None:
    """False where one is, None where one is unknown, True where all are."""
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _speed(there: Told, planned: int) -> dict[str, Any]:
    ratios = {
        name: {key: round(one[key], 3) for key in ("ratio", "low", "high")}
        for name, one in there.items()
    }
    return {"measured": len(there), "planned": planned, "ratios": ratios}
