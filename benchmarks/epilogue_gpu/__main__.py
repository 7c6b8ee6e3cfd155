"""Every part in turn, within the budget; see the package for what they are."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.epilogue_gpu.arms import ARMS, MODELS, Arms
from benchmarks.epilogue_gpu.kernels import kernels
from benchmarks.epilogue_gpu.launches import ask_launches, launches
from benchmarks.epilogue_gpu.speed import BLOCKS, CONTEXTS, STEPS, show, speed
from benchmarks.epilogue_gpu.texts import text
from switchboard import lm
from switchboard.epilogue import kernel


def part(told: dict[str, Any], name: str, run: Callable[[dict[str, Any]], None]) -> None:
    """Run one part; an error is a result of that part, printed and kept."""
    told[name] = {}
    started = time.perf_counter()
    try:
        run(told[name])
    except Exception as error:
        told[name]["error"] = f"{type(error).__name__}: {error}"
        print(f"{name}: ERROR {told[name]['error']}", flush=True)
        traceback.print_exc()
    told[name]["took_s"] = round(time.perf_counter() - started, 1)


def models(told: dict[str, Any], late: Callable[[], bool]) -> None:
    """Text and speed of every model."""
    for name, joined in MODELS:
        mine = told.setdefault(name, {"joined": joined})
        if late():
            mine["left_out"] = "out of time"
            continue

        def run(mine: dict[str, Any], name: str = name, joined: bool = joined) -> None:
            arms = Arms(name, joined)
            mine["arms"] = arms.told
            print(f"{name}: {arms.told}", flush=True)
            mine["text"] = text(arms)
            for length, one in mine["text"].items():
                print(f"  text after {length}: {one}", flush=True)
            for context in CONTEXTS:
                if late():
                    mine["left_out"] = f"context {context} and above: out of time"
                    break
                mine[str(context)] = speed(arms, context)
                show(name, context, mine[str(context)])

        part(told, name, run)
        mx.clear_cache()


def main() -> int:
    """Every part in turn, within the budget."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--out", type=Path, default=Path())
    ask.add_argument("--budget", type=float, default=420.0)
    ask.add_argument("--launches", nargs=2)
    asked = ask.parse_args()
    if asked.launches:
        launches(*asked.launches)
        return 0
    started = time.perf_counter()

    def past(share: float) -> Callable[[], bool]:
        return lambda: time.perf_counter() - started > share * asked.budget

    told: dict[str, Any] = {
        "device": str(mx.device_info()), "mlx": mx.__version__, "language": kernel.language(), "arms": ARMS,
        "blocks": BLOCKS, "steps": STEPS, "mlx_lm_cache": lm.caches().__name__,
    }  # fmt: skip
    print(told, flush=True)
    if kernel.language() is None:
        print("no GPU kernel on this device: nothing can be measured here", file=sys.stderr)
        return 2
    part(told, "kernel", lambda mine: kernels(mine, past(0.35)))
    part(told, "models", lambda mine: models(mine, past(0.85)))

    def count(mine: dict[str, Any]) -> None:
        for name, arm in product((MODELS[0][0], MODELS[1][0]), ("chain", "cache")):
            mine[f"{name} {arm}"] = (
                {"all": None, "why": "out of time"} if past(0.95)() else ask_launches(name, arm, 60)
            )
            print(f"launches a step: {name} {arm}: {mine[f'{name} {arm}']['all']}", flush=True)

    part(told, "launches", count)
    (asked.out / "epilogue.json").write_text(json.dumps(told, default=str, indent=1))
    return verdict(told)


def verdict(told: dict[str, Any]) -> int:
    """The last line, and whether anything differed."""
    kernels, models = told["kernel"], told["models"]
    texts = [
        one
        for mine in models.values()
        if isinstance(mine, dict)
        for one in mine.get("text", {}).values()
    ]
    runs = [one[arm] for one in texts for arm in ARMS[1:] if arm in one]
    tokens = all(one["token"] is None for one in runs) if runs else None
    logits = (
        f"{sum(one['arrays'] - one['differ'] for one in runs)}/{sum(one['arrays'] for one in runs)}"
    )
    errors = [name for name in ("kernel", "models", "launches") if "error" in told[name]]
    for name, mine in models.items():
        if isinstance(mine, dict):
            errors += [name] if "error" in mine else []
            errors += [
                f"{name} {arm} declined"
                for arm, one in mine.get("arms", {}).items()
                if "declined" in one
            ]
    ratios = {
        f"{name} {context}": {arm: round(one["ratio"], 3) for arm, one in mine[str(context)]["ratio"].items()}
        for name, mine in models.items() if isinstance(mine, dict)
        for context in CONTEXTS if str(context) in mine
    }  # fmt: skip
    bitwise = kernels.get("all") and kernels.get("same") == kernels.get("all")
    print(json.dumps({
        "bitwise": f"{kernels.get('same')}/{kernels.get('all')}", "same_text": tokens,
        "same_logits_and_rows": logits, "ratios": ratios,
        "launches": {key: one["all"] for key, one in told["launches"].items() if isinstance(one, dict)},
        "errors": errors,
    }))  # fmt: skip
    return 0 if bitwise and tokens and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
