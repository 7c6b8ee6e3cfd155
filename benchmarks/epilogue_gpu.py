"""The fused epilogue on a GPU: the kernel against its chain, bitwise; the same text; time, memory and launches a step.

    python -m benchmarks.epilogue_gpu --out FOLDER [--budget 420]
    python -m benchmarks.epilogue_gpu --launches MODEL ARM            one JSON line, for the first form to ask

Parts, each on its own, none of which ends the others:

- kernel: every head size, type, rotation, input form and way of writing, at offsets up to 131,071 and 1 to 5 rows,
  against MLX's add, rope and slice update on the same numbers: the same bytes or not;
- text: 128 greedy tokens after three prompts (one crosses the cache's growth), and the logits of 128 given tokens with
  the caches they leave, chain against kernel, and the chain against itself;
- speed: decode over caches filled with random numbers, the arms chain, rows and cache in turn within each block, the
  order rotating; ratio to the chain by blocks, with its interval, and the peak memory over what the model holds;
- launches: kernels of one decode step by name, from CUPTI through torch's profiler where that works.

The last line is one JSON; the whole goes to FOLDER/epilogue.json. Exit status 1 when any byte or token differed.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
import traceback
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx

from battery.analyse import stats
from switchboard import cache as kv
from switchboard import decode, lm
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.decode import Tally
from switchboard.epilogue import kernel, probe
from switchboard.epilogue.kernel import FORMS, Geometry
from switchboard.errors import Declined
from switchboard.load import load
from switchboard.models import resolve
from switchboard.registry import Counter
from switchboard.sampler import Sampler, Sampling
from switchboard.switches.fused_epilogue import Options, put_on

TYPES = (mx.float16, mx.bfloat16, mx.float32)
PLACES = ((1, 1), (37, 1), (255, 2), (4093, 1), (1000, 5), (131071, 1))
MODELS = (
    ("smollm2-135m", True),
    ("synthetic:qwen2.5-0.5b-q4", True),
    ("synthetic:qwen2.5-0.5b-mixed", False),
    ("synthetic:qwen2.5-7b-q4", True),
)
CONTEXTS = (64, 4096, 32768)
PROMPTS = (5, 250, 1500)
ARMS = ("chain", "rows", "cache")
BLOCKS, STEPS, WARM, TOKENS = 8, 48, 8, 128
FAILED = 6
"""Cases on which the other forms are tried as well: each costs five compilations."""
GREEDY = Sampling(temperature=0.0, ignore_eos=True)


# --- the kernel against the chain ---------------------------------------------------------------------------------


def geometries() -> Iterator[Geometry]:
    """Head sizes × rotations × input forms × ways of writing; then given frequencies, and no bias."""
    apart, joined = (0, 1, 2), (0, 0, 0)
    flags = (False, True)
    for size, traditional, buffers, into in product((64, 128), flags, (apart, joined), flags):
        yield Geometry(8, 2, size, traditional, 1e6, 1.0, buffers, True, into)
    for size in (64, 128):
        yield Geometry(8, 2, size, False, None, 1.0, joined, True, True)
        yield Geometry(9, 3, size, True, 1e5, 1.0, apart, False, True)
        yield Geometry(8, 2, size, False, 1e6, 1.0, (0, 0, 1), True, True)


def chain(
    geometry: Geometry,
    parts: list[mx.array],
    biases: list[mx.array],
    freqs: mx.array | None,
    offset: int,
) -> list[mx.array]:
    """q, k and v as MLX's operations give them, heads first."""
    rows = parts[0].shape[1]
    if biases:
        parts = [part + bias for part, bias in zip(parts, biases, strict=True)]
    heads = [part.reshape(1, rows, -1, geometry.size).transpose(0, 2, 1, 3) for part in parts]
    turned = [
        mx.fast.rope(
            one, geometry.size, traditional=geometry.traditional, base=geometry.base,
            scale=geometry.scale, offset=offset, freqs=freqs,
        )
        for one in heads[:2]
    ]  # fmt: skip
    return [*turned, heads[2]]


def pick(all_three: list[mx.array], geometry: Geometry, wanted: int) -> list[mx.array]:
    """Those of q, k and v that lie in one buffer."""
    return [
        one for one, buffer in zip(all_three, geometry.buffers, strict=True) if buffer == wanted
    ]


def differs(geometry: Geometry, dtype: mx.Dtype) -> str | None:
    """Where the kernel's bytes are not the chain's, or None."""
    widths = [count * geometry.size for count in (geometry.queries, geometry.keys, geometry.keys)]
    key = mx.random.split(mx.random.key(11), 12)
    for offset, rows in PLACES:
        parts = [
            (3 * mx.random.normal((1, rows, w), key=key[n])).astype(dtype)
            for n, w in enumerate(widths)
        ]
        biases = [
            mx.random.normal((w,), key=key[3 + n]).astype(dtype) for n, w in enumerate(widths)
        ]
        biases = biases if geometry.biased else []
        freqs = None
        if geometry.base is None:
            freqs = mx.abs(mx.random.normal((geometry.size // 2,), key=key[8])) * 100 + 1
        capacity = offset + rows + 3
        shape = (1, geometry.keys, capacity, geometry.size)
        old = [mx.random.normal(shape, key=key[9 + n]).astype(dtype) for n in range(2)]
        mine = [one * 1 for one in old]
        mx.eval(parts, biases, old, mine)
        wanted = chain(geometry, parts, biases, freqs, offset)
        inputs = [
            mx.concatenate(pick(parts, geometry, b), axis=-1)
            for b in range(max(geometry.buffers) + 1)
        ]
        if biases:
            inputs += [
                mx.concatenate(pick(biases, geometry, b)) for b in range(max(geometry.buffers) + 1)
            ]
        inputs.append(mx.array([offset, rows, capacity], dtype=mx.int32))
        inputs += [] if freqs is None else [freqs]
        inputs += mine if geometry.into_cache else []
        mx.eval(inputs)
        got = kernel.launch(geometry, rows, inputs)
        mx.eval(got)
        mx.synchronize()
        names = ["q", "k", "v"]
        if geometry.into_cache:
            for one, fresh in zip(old, wanted[1:], strict=True):
                one[..., offset : offset + rows, :] = fresh
            wanted, got, names = [wanted[0], *old], [*got, *mine], ["q", "keys", "values"]
        for name, one, two in zip(names, wanted, got, strict=True):
            if not mx.array_equal(one, two).item():
                gap = mx.abs(one.astype(mx.float32) - two.astype(mx.float32))
                count = int((gap > 0).sum().item())
                worst = f"{count} of {one.size} differ, by up to {gap.max().item():.3g}"
                return f"{name} at {offset} with {rows} rows: {worst}"
    return None


def kernels(told: dict[str, Any], late: Callable[[], bool]) -> None:
    """Part one; where the plain form differs, the others are tried on the same case."""
    cases: list[dict[str, Any]] = []
    told["cases"] = cases
    for dtype, geometry in product(TYPES, geometries()):
        if late():
            told["left_out"] = "out of time"
            break
        started = time.perf_counter()
        results = {"plain": differs(geometry, dtype)}
        if (
            results["plain"] is not None
            and sum(len(case["differs"]) > 1 for case in cases) < FAILED
        ):
            for form in list(FORMS)[1:]:
                shape = {**geometry.__dict__, "form": form}
                results[form] = differs(Geometry(**shape), dtype)
        case = {"type": str(dtype), **geometry.__dict__, "differs": results}
        cases.append({**case, "seconds": round(time.perf_counter() - started, 2)})
    told["same"] = sum(case["differs"]["plain"] is None for case in cases)
    told["all"] = len(cases)
    told["forms"] = Counts(
        form for case in cases for form, wrong in case["differs"].items() if wrong is None
    )
    print(
        f"kernel: {told['same']} of {told['all']} cases bitwise the chain's; by form {dict(told['forms'])}",
        flush=True,
    )
    for case in cases:
        if case["differs"]["plain"] is not None:
            print(f"  {case['type']} {case['size']} buffers={case['buffers']} traditional={case['traditional']} "
                  f"into_cache={case['into_cache']}: {case['differs']}", flush=True)  # fmt: skip


# --- models -------------------------------------------------------------------------------------------------------


class Arms:
    """One model whose attentions can be switched between the chain and both kernels, by class alone."""

    def __init__(self, name: str, joined: bool) -> None:
        switches = ["fused_qkv", "fused_gate_up"] if joined else []
        self.model = load(resolve(name), "auto", Board(parse_asked(switches, []), {})).model
        self.told: dict[str, Any] = {}
        self.counter = Counter()
        self._plain = self._classes()
        self._arms = {"chain": self._plain}
        for way in ARMS[1:]:
            started = time.perf_counter()
            try:
                done = put_on(self.model, Options(kv=way), self.counter, kernel.launch)
            except Declined as declined:
                self.told[way] = {"declined": str(declined)}
                continue
            self._arms[way] = self._classes()
            done.undo()
            self.told[way] = {
                "fused": done.fused, "eligible": done.eligible, "note": done.note,
                "load_s": round(time.perf_counter() - started, 2),
            }  # fmt: skip
        self.names = tuple(self._arms)
        q = self.model.layers[0].self_attn.q_proj
        module = q._joint.product if hasattr(q, "_joint") else q
        self.dtype = module.scales.dtype if "scales" in module else module.weight.dtype

    def _classes(self) -> list[tuple[Any, type]]:
        return [(layer.self_attn, type(layer.self_attn)) for layer in self.model.layers]

    def turn(self, arm: str) -> None:
        """Switch to an arm."""
        for attention, kind in self._arms[arm]:
            attention.__class__ = kind

    def filled(self, context: int) -> list[Any]:
        """Caches with `context` random tokens."""
        attention = self.model.layers[0].self_attn
        size = attention.rope.dims
        shape = Geometry(
            attention.n_heads, attention.n_kv_heads, size, False, 1e4, 1.0, (0, 0, 0), False, False
        )
        caches = [probe.filled(shape, context, self.dtype) for _ in self.model.layers]
        mx.eval([entry.keys for entry in caches], [entry.values for entry in caches])
        return caches


def walk(arms: Arms, arm: str, length: int) -> tuple[list[int], list[mx.array]]:
    """Greedy tokens after a prompt; and the logits of as many given tokens, with the caches they leave."""
    arms.turn(arm)
    before = arms.counter.runs
    prompt = [(17 * place + 3) % 500 for place in range(length)]
    cache = kv.make(arms.model)
    decode.prefill(arms.model, cache, prompt, 2048, Tally(), lambda: None)
    steps = decode.plain(arms.model, cache, prompt[-1], Sampler(GREEDY, ()), TOKENS)
    written = [token for tokens in steps for token in tokens]
    cache = kv.make(arms.model)
    decode.prefill(arms.model, cache, prompt, 2048, Tally(), lambda: None)
    seen: list[mx.array] = []
    for place in range(TOKENS):
        seen.append(decode.forward(arms.model, cache, mx.array([(29 * place + 7) % 500])))
        mx.async_eval(seen[-1])
    seen += [array for entry in cache for array in entry.keys_and_values()]
    mx.eval(seen)
    assert (arms.counter.runs > before) == (arm != "chain"), (
        "the arm did not run what it is named for"
    )
    return written, seen


def text(arms: Arms) -> dict[str, Any]:
    """For each prompt and arm: the first greedy token that differs, and how many of the forced logits and caches do.

    `again` is the chain a second time: what the device itself does not repeat is no fault of a kernel.
    """
    told: dict[str, Any] = {}
    for length in PROMPTS:
        tokens, seen = walk(arms, "chain", length)
        mine: dict[str, Any] = {
            "distinct": len(set(tokens)),
            "finite": bool(mx.isfinite(seen[0]).all().item()),
        }
        for name, arm in (("again", "chain"), *zip(arms.names[1:], arms.names[1:], strict=True)):
            others, found = walk(arms, arm, length)
            first = next(
                (n for n, (a, b) in enumerate(zip(tokens, others, strict=True)) if a != b), None
            )
            wrong = [
                n
                for n, (a, b) in enumerate(zip(seen, found, strict=True))
                if not mx.array_equal(a, b).item()
            ]
            mine[name] = {
                "token": first,
                "arrays": len(seen),
                "differ": len(wrong),
                "first": wrong[:1],
            }
        told[str(length)] = mine
    return told


def timed(arms: Arms, arm: str, context: int) -> tuple[float, int]:
    """Seconds a decode step takes, and bytes at the peak over what was held before."""
    arms.turn(arm)
    steps = decode.plain(arms.model, arms.filled(context), 1, Sampler(GREEDY, ()), WARM + STEPS)
    # The first steps bring what happens once a request: the caches grow, or are made private.
    for _ in range(WARM):
        next(steps)
    mx.clear_cache()
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    started = time.perf_counter()
    for _ in range(STEPS):
        next(steps)
    return (time.perf_counter() - started) / STEPS, mx.get_peak_memory() - held


def speed(arms: Arms, context: int) -> dict[str, Any]:
    """Every arm once in each block, the order rotating; ratios of speed to the chain with 95 % intervals."""
    for arm in arms.names:
        timed(arms, arm, context)
    seconds: dict[str, list[float]] = {arm: [] for arm in arms.names}
    peaks: dict[str, list[int]] = {arm: [] for arm in arms.names}
    for block in range(BLOCKS):
        turn = block % len(arms.names)
        order = (*arms.names[turn:], *arms.names[:turn])
        for arm in order if block % 2 == 0 else order[::-1]:
            took, peak = timed(arms, arm, context)
            seconds[arm].append(took)
            peaks[arm].append(peak)
    told: dict[str, Any] = {"seconds": seconds, "peaks": peaks, "ratio": {}}
    for arm in arms.names[1:]:
        logs = [math.log(a / b) for a, b in zip(seconds["chain"], seconds[arm], strict=True)]
        found = stats.paired(logs)
        assert found is not None
        told["ratio"][arm] = {
            "ratio": found.ratio,
            "low": found.low,
            "high": found.high,
            "p": found.p,
        }
    return told


def show(name: str, context: int, found: dict[str, Any]) -> None:
    """One line of the table."""
    ms = {arm: 1e3 * sorted(seconds)[BLOCKS // 2] for arm, seconds in found["seconds"].items()}
    mb = {arm: max(peaks) / 1e6 for arm, peaks in found["peaks"].items()}
    ratios = "  ".join(
        f"{a} {r['ratio']:.3f}x [{r['low']:.3f}, {r['high']:.3f}]"
        for a, r in found["ratio"].items()
    )
    print(f"{name:30} {context:6}  ms {'/'.join(f'{ms[a]:.2f}' for a in ms)}  "
          f"peak MB {'/'.join(f'{mb[a]:.0f}' for a in ms)}  {ratios}", flush=True)  # fmt: skip


# --- launches -----------------------------------------------------------------------------------------------------


def launches(name: str, arm: str) -> None:
    """Kernels a decode step by name, as JSON; in a process of its own, since torch shares it."""
    from torch import profiler

    joined = dict(MODELS)[name]
    arms = Arms(name, joined)
    arms.turn(arm)
    steps = decode.plain(arms.model, arms.filled(64), 1, Sampler(GREEDY, ()), 64)
    for _ in range(WARM):
        next(steps)
    mx.synchronize()
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(8):
            next(steps)
        mx.synchronize()
    found = Counts(event.name[:90] for event in seen.events() or [])
    print(
        json.dumps({"steps": 8, "per_step": {key: count / 8 for key, count in found.most_common()}})
    )


def ask_launches(name: str, arm: str, timeout: float) -> dict[str, Any]:
    """The launches of one arm, or why they are not known."""
    words = [sys.executable, "-m", "benchmarks.epilogue_gpu", "--launches", name, arm]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        found["all"] = sum(found["per_step"].values())
        return found if found["all"] else {"all": None, "why": "the profiler saw no kernel"}
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        said = done.stderr[-600:] if "done" in locals() else ""
        return {"all": None, "why": f"{type(error).__name__}: {error}"[:300], "stderr": said}


# --- all of it ----------------------------------------------------------------------------------------------------


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
