"""One part of the epilogue's proof, into a file of its own; see the package for what they are."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.epilogue_gpu import plan
from benchmarks.epilogue_gpu.arms import Arms
from benchmarks.epilogue_gpu.kernels import dealt, kernels
from benchmarks.epilogue_gpu.speed import show, speed
from benchmarks.epilogue_gpu.texts import text
from benchmarks.gpu.sheet import Sheet
from switchboard.epilogue import kernel


def main() -> int:
    """Run one part; what it finds is judged elsewhere, so its status tells only whether it ran to its end."""
    ask = argparse.ArgumentParser()
    ask.add_argument("part", choices=("kernel", "text", "speed"))
    ask.add_argument("--out", type=Path, required=True)
    ask.add_argument("--model", default="smollm2-135m", choices=list(plan.MODELS))
    ask.add_argument("--share", type=int, default=0)
    ask.add_argument("--shares", type=int, default=1)
    asked = ask.parse_args()
    about = {
        "device": str(mx.device_info()), "mlx": mx.__version__, "language": kernel.language(),
        "variant": plan.variant(),
    }  # fmt: skip
    if asked.part == "kernel":
        planned = dealt(asked.share, asked.shares)
        sheet = Sheet(asked.out / f"kernel-{asked.share}.json", planned, **about)
        if kernel.language() is None:
            return nowhere(sheet)
        kernels(sheet, asked.share, asked.shares)
        return 0
    planned = [
        one for one in getattr(plan.plan(()), asked.part) if one.startswith(f"{asked.model} ")
    ]
    planned = [one for one in planned if asked.part == "speed" or one.endswith(plan.variant())]
    mark = f"{asked.part}-{asked.model.partition(':')[2] or asked.model}-{plan.variant()}"
    sheet = Sheet(asked.out / f"{mark.replace(' ', '-')}.json", planned, **about)
    if kernel.language() is None:
        return nowhere(sheet)
    arms = Arms(asked.model, plan.MODELS[asked.model].joined)
    sheet.about["arms"] = arms.told
    print(f"{asked.model}: {arms.told}", flush=True)
    declined(sheet, asked.model, arms.told)
    (texts if asked.part == "text" else speeds)(sheet, asked.model, arms)
    return 0


def nowhere(sheet: Sheet) -> int:
    """Nothing can be measured here, and every case says so."""
    for name in sheet.cases:
        sheet.cases[name] = {"error": "no GPU kernel on this device"}
    sheet.save()
    print("no GPU kernel on this device: nothing can be measured here", file=sys.stderr)
    return 2


def declined(sheet: Sheet, model: str, told: dict[str, Any]) -> None:
    """The cases of an arm that the switch refused have its words as their reason."""
    for arm, one in told.items():
        if "declined" in one:
            for name in sheet.cases:
                if name.startswith(f"{model} {arm} "):
                    sheet.cases[name] = {"error": f"declined: {one['declined']}"}
    sheet.save()


def spread(sheet: Sheet, names: dict[str, str], found: dict[str, dict[str, Any]]) -> None:
    """Results by arm, to the cases that those arms have."""
    for arm, one in found.items():
        sheet.cases[names[arm]] = one
        print(f"{names[arm]}: {one}"[:400], flush=True)
    sheet.save()


def texts(sheet: Sheet, model: str, arms: Arms) -> None:
    """Every length of prompt; an error is the result of the cases that it stopped."""
    for length in plan.PROMPTS:
        names = {arm: plan.text(model, arm, length, plan.variant()) for arm in arms.names[1:]}
        try:
            spread(sheet, names, text(arms, length))
        except Exception as error:
            spread(
                sheet, names, {arm: {"error": f"{type(error).__name__}: {error}"} for arm in names}
            )


def speeds(sheet: Sheet, model: str, arms: Arms) -> None:
    """Every context; the seconds of each block are kept beside the ratios."""
    for context in plan.CONTEXTS:
        names = {arm: plan.speed(model, arm, context) for arm in arms.names[1:]}
        found = speed(arms, context)
        show(model, context, found)
        pairs = {
            arm: {key: {side: found[key][side] for side in ("chain", arm)} for key in ("seconds", "peaks")}
            for arm in names
        }  # fmt: skip
        spread(sheet, names, {arm: {**found["ratio"][arm], **pairs[arm]} for arm in names})


if __name__ == "__main__":
    sys.exit(main())
