"""What compiled_step is worth on this GPU: decode plain, compiled, joined, and joined and compiled, in turn.

    python -m benchmarks.compiled_gpu [--out FOLDER] [--budget 90]     OUT in the environment is the folder as well
    python -m benchmarks.compiled_gpu --anyway                         on a CPU, where no gain is expected

Every arm is the engine's own model with its switches on. Greedy tokens of every arm are held against the plain one's
first: a token may be another one only where the plain logits were a near-tie (twice the bound of `rounding`). Then
each block times every arm once, the order rotating (on a CPU by processor time); a ratio is that of speeds by blocks,
with its 95 % interval. What the time does not allow is left out, and named. The whole goes to FOLDER/compiled.json;
exit status 1 when a decided token changed or an arm stayed off, 2 when something planned was not measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from switchboard import blas, decode
from switchboard import cache as kv
from switchboard.bisect.compare import bound
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.decode import Tally
from switchboard.load import load
from switchboard.models import resolve
from switchboard.parity import number
from switchboard.sampler import Sampler, Sampling

MODELS = ("smollm2-135m", "synthetic:qwen2.5-0.5b")
JOINED = ("fused_qkv", "fused_gate_up")
ARMS: dict[str, tuple[str, ...]] = {
    "plain": (), "compiled": ("compiled_step",), "joined": JOINED, "joined, compiled": (*JOINED, "compiled_step"),
}  # fmt: skip
CONTEXTS = (64, 2000)
TOKENS, WARM, STEPS, BLOCKS = 96, 8, 64, 8
GREEDY = Sampling(temperature=0.0, ignore_eos=True)


class Arm:
    """One model with the switches of an arm."""

    def __init__(self, model: str, switches: tuple[str, ...]) -> None:
        started = time.perf_counter()
        self.board = Board(parse_asked(list(switches), []), {})
        self.model = load(resolve(model), "auto", self.board).model
        told = [self.board.positions[name].told() for name in switches]
        off = [one["reason"] for one in told if one["state"] == "declined"]
        self.off: str | None = off[0] if off else None
        self.told = {
            "load_s": round(time.perf_counter() - started, 1), "off": self.off,
            "notes": [one["reason"] for one in told if one["reason"]],
        }  # fmt: skip

    def begin(self, context: int) -> Any:
        """Greedy steps after a prompt of so many tokens, prefilled."""
        prompt = [(17 * place + 3) % 500 for place in range(context)]
        cache = kv.make(self.model)
        chunk = 128 if mx.default_device() == mx.Device(mx.cpu) else 2048
        decode.prefill(self.model, cache, prompt, chunk, Tally(), lambda: None)
        return decode.plain(self.model, cache, prompt[-1], Sampler(GREEDY, ()), 10**6)

    def text(self, context: int) -> list[int]:
        """The first tokens of the answer."""
        steps = self.begin(context)
        return [token for _ in range(TOKENS) for token in next(steps)]

    def rate(self, context: int) -> float:
        """Tokens a second, after the first steps, which bring what happens once a request; on a CPU of its own time."""
        steps = self.begin(context)
        for _ in range(WARM):
            next(steps)
        on_cpu = mx.default_device() == mx.Device(mx.cpu)
        clock = time.process_time if on_cpu else time.perf_counter
        started = clock()
        for _ in range(STEPS):
            next(steps)
        return STEPS / (clock() - started)


def strays(plain: Arm, context: int, old: list[int], new: list[int]) -> dict[str, Any] | None:
    """Where a text leaves the plain one, and whether the plain model had decided there; None: nowhere."""
    place = next(
        (at for at, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]), None
    )
    if place is None:
        return None
    prompt = [(17 * at + 3) % 500 for at in range(context)] + old[:place]
    cache = kv.make(plain.model)
    decode.prefill(plain.model, cache, prompt, 2048, Tally(), lambda: None)
    row = decode.forward(plain.model, cache, mx.array(prompt[-1:]))[-1]
    pair = row[mx.array([old[place], new[place]])].astype(mx.float32)
    gap, near = abs(number(pair[0]) - number(pair[1])), 2 * bound(row)
    return {"place": place, "gap": gap, "near_ties_end_at": near, "decided": gap > near}


def speeds(arms: dict[str, Arm], context: int, late: Callable[[], bool]) -> dict[str, Any]:
    """Rates by block, and each arm's ratio to plain and that of both to joined alone."""
    for arm in arms.values():
        arm.rate(context)
    names, rates = list(arms), {name: list[float]() for name in arms}
    for block in range(BLOCKS):
        if late():
            break
        turn = block % len(names)
        order = [*names[turn:], *names[:turn]]
        for name in order if block % 2 == 0 else order[::-1]:
            rates[name].append(arms[name].rate(context))
    told: dict[str, Any] = {"rates": rates, "blocks": len(rates["plain"]), "ratio": {}}
    pairs = [(name, "plain") for name in names[1:]] + [("joined, compiled", "joined")]
    for name, to in pairs:
        if name in rates and to in rates and len(rates[name]) > 1:
            logs = [math.log(a / b) for a, b in zip(rates[name], rates[to], strict=True)]
            told["ratio"][f"{name} / {to}"] = interval(logs)
    return told


def interval(logs: list[float]) -> list[float]:
    """Ratio and its 95 % t interval; where there is no scipy, as on a bare GPU machine, the ratio and nothing more."""
    middle = statistics.fmean(logs)
    try:
        from scipy.stats import t
    except ImportError:
        return [math.exp(middle)]
    half = float(t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return [math.exp(middle + step) for step in (0.0, -half, half)]


def measure(
    model: str, contexts: list[int], told: dict[str, Any], late: Callable[[], bool]
) -> None:
    """Texts and rates of one model."""
    arms = {name: Arm(model, switches) for name, switches in ARMS.items()}
    told["arms"] = {name: arm.told for name, arm in arms.items()}
    arms = {name: arm for name, arm in arms.items() if arm.off is None}
    for context in contexts:
        if late():
            told.setdefault("left_out", []).append(f"context {context}: out of time")
            continue
        mine = told[str(context)] = {}
        text = arms["plain"].text(context)
        mine["strays"] = {
            name: strays(arms["plain"], context, text, arm.text(context))
            for name, arm in arms.items()
            if name != "plain"
        }
        mine |= speeds(arms, context, late)
        show(model, context, mine)


def show(model: str, context: int, told: dict[str, Any]) -> None:
    """A few rows of the table."""
    for name, rates in told["rates"].items():
        rate = f"{sorted(rates)[len(rates) // 2]:8.1f}" if rates else "    none"
        versus = told["ratio"].get(f"{name} / plain")
        ratio = " ".join(f"{figure:.3f}" for figure in versus or ())
        stray = told["strays"].get(name)
        same = "" if name == "plain" else "same tokens" if stray is None else f"differs: {stray}"
        print(f"| {model} | {context} | {name:<16} | {rate} | {ratio} | {same} |", flush=True)


def main() -> int:
    """Every model in turn, within the budget."""
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    ask.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    ask.add_argument("--budget", type=float, default=90.0)
    ask.add_argument("--models", nargs="+", default=list(MODELS))
    ask.add_argument("--contexts", nargs="+", type=int, default=list(CONTEXTS))
    ask.add_argument("--anyway", action="store_true")
    asked = ask.parse_args()
    told: dict[str, Any] = {
        "device": str(mx.default_device()), "mlx": mx.__version__, "contexts": asked.contexts, "models": {},
    }  # fmt: skip
    if mx.default_device() == mx.Device(mx.cpu) and not asked.anyway:
        told["left_out"] = "no GPU here: a step on a CPU is bound by memory; --anyway measures it"
        print(json.dumps(told))
        return 2
    if mx.default_device() == mx.Device(mx.cpu):
        blas.preload(1)
    started = time.perf_counter()
    print(
        "| model | context | arm | tok/s, median | to plain, its interval | tokens |\n|---|---:|---|---:|---|---|"
    )
    for place, name in enumerate(asked.models):
        share = asked.budget * (place + 1) / len(asked.models)
        mine: dict[str, Any] = told["models"].setdefault(name, {})

        def late(share: float = share) -> bool:
            return time.perf_counter() - started > share

        try:
            measure(name, asked.contexts, mine, late)
        except Exception as error:
            mine["error"] = f"{type(error).__name__}: {error}"
            print(f"{name}: ERROR {mine['error']}", flush=True)
        mx.clear_cache()
    told["took_s"] = round(time.perf_counter() - started, 1)
    (asked.out / "compiled.json").write_text(json.dumps(told, indent=1))
    return verdict(told)


def verdict(told: dict[str, Any]) -> int:
    """The last line, and the status to leave with."""
    wrong = []
    for name, mine in told["models"].items():
        wrong += [f"{name}: {mine['error']}"] if "error" in mine else []
        wrong += [
            f"{name}, {arm}: {one['off']}"
            for arm, one in mine.get("arms", {}).items()
            if one["off"]
        ]
        for context in filter(str.isdigit, mine):
            for arm, stray in mine[context].get("strays", {}).items():
                if stray and stray["decided"]:
                    wrong.append(
                        f"{name}, {arm}, context {context}: another token, decided: {stray}"
                    )
    missing = [
        f"{name}, context {context}"
        for name, mine in told["models"].items()
        for context in told["contexts"]
        if mine.get(str(context), {}).get("blocks", 0) < 2
    ]
    print(json.dumps({"took_s": told["took_s"], "wrong": wrong, "not_measured": missing}))
    return 1 if wrong else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
