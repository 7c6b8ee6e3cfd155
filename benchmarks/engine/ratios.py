"""Rates and ratios from samples: block by block, then one interval over the blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from battery.analyse.stats import Estimate, Mean, geometric, paired
from benchmarks.engine.arms import ALL, FUSED, LLAMA, MLX_LM, PLAIN
from benchmarks.engine.rounds import Sample


class Incomparable(Exception):
    """Two arms that should compute the same chose different first tokens."""


def rate(one: Sample, metric: str) -> float:
    """Tokens a second of `decode` or `prefill`, passes a second, or tokens a second of processor time (`cpu`)."""
    if metric == "prefill":
        return (one.rung - 1) / one.prefill_s
    if metric == "cpu":
        return one.tokens / one.cpu_s
    return (one.passes if metric == "passes" else one.tokens) / one.seconds


def level(samples: Iterable[Sample], arm: str, rung: int, metric: str) -> Mean | None:
    """An arm's own rate at a rung: geometric mean of the blocks."""
    return geometric(
        [math.log(rate(one, metric)) for one in samples if one.arm == arm and one.rung == rung]
    )


def rungs_of(samples: Iterable[Sample], *arms: str) -> list[int]:
    """The rungs at which all of the arms were asked."""
    asked = [{one.rung for one in samples if one.arm == arm} for arm in arms]
    return sorted(set.intersection(*asked)) if asked else []


def differences(
    samples: Sequence[Sample], arm: str, base: str, metric: str, rungs: Sequence[int]
) -> list[float]:
    """One logarithm of arm over base for each block: the mean over the rungs, each ratio from one prompt."""
    found = {(one.arm, one.rung, one.block): one for one in samples}
    blocks = sorted({one.block for one in samples})
    made = []
    for block in blocks:
        pairs = [(found.get((arm, rung, block)), found.get((base, rung, block))) for rung in rungs]
        logs = [math.log(rate(a, metric) / rate(b, metric)) for a, b in pairs if a and b]
        if logs and len(logs) == len(rungs):
            made.append(sum(logs) / len(logs))
    return made


def ratio(
    samples: Sequence[Sample], arm: str, base: str, metric: str, rungs: Sequence[int]
) -> Estimate | None:
    """Arm over base as a geometric mean over rungs and blocks, its interval from the blocks; None without a rung."""
    if not rungs:
        return None
    return paired(differences(samples, arm, base, metric, rungs), flip=False)


def times(one: Estimate | None) -> str:
    """A ratio with its interval, as the page writes it."""
    if one is None:
        return "—"
    if one.low is None or one.high is None:
        return f"{one.ratio:.3f} [no interval]"
    return f"{one.ratio:.3f} [{one.low:.3f}, {one.high:.3f}]"


def refuse(samples: Iterable[Sample], twins: Sequence[str]) -> None:
    """Incomparable where an arm that computes what `plain` computes chose another first token.

    A later difference is told, not refused: sums in another order may turn a near-tie.
    """
    for one in samples:
        if one.arm in twins and one.same == 0:
            raise Incomparable(
                f"{one.arm} and {PLAIN} chose different first tokens after the same {one.rung} prompt tokens "
                f"(block {one.block}): they do not run the same model, so no ratio is formed"
            )


def fastest(samples: Sequence[Sample], names: Sequence[str], base: str = PLAIN) -> str:
    """The arm with the highest geometric mean of decode over the rungs that `base` was asked at."""
    rungs = rungs_of(samples, base)
    whole = [name for name in names if rungs_of(samples, name) == rungs]

    def speed(name: str) -> float:
        logs = [math.log(rate(one, "decode")) for one in samples if one.arm == name]
        return sum(logs) / len(logs)

    return max(whole, key=speed)


def bytes_per_pass(document: dict[str, Any], arm: str) -> int:
    """Bytes of weights that a decode pass of an arm reads."""
    (found,) = [one for one in document["arms"] if one["name"] == arm]
    return int(found["facts"]["weight_bytes"])


def share(document: dict[str, Any], samples: Sequence[Sample], arm: str, rung: int) -> float:
    """Bytes of weights a second in decode over what this machine reads at best; the KV cache is not counted."""
    passes = level(samples, arm, rung, "passes")
    assert passes is not None
    best = max(document["bandwidth"][key] for key in ("read_one", "read_all"))
    return passes.value * bytes_per_pass(document, arm) / float(best)


def overall_share(document: dict[str, Any], samples: Sequence[Sample], arm: str) -> float:
    """The same as a geometric mean over the rungs."""
    shares = [share(document, samples, arm, rung) for rung in rungs_of(samples, arm)]
    return math.exp(sum(math.log(one) for one in shares) / len(shares))


def samples_of(document: dict[str, Any], key: str = "samples") -> list[Sample]:
    """The document's samples, typed."""
    return msgspec.convert(document[key], list[Sample])


def headline(document: dict[str, Any]) -> dict[str, Any]:
    """The last line: ours without switches over mlx_lm, the fusions over none, llama.cpp over our fastest."""
    samples = samples_of(document)
    names = {one.arm for one in samples}

    def against(arm: str, base: str) -> Estimate | None:
        if arm not in names or base not in names:
            return None
        return ratio(samples, arm, base, "decode", rungs_of(samples, arm, base))

    parity, fused = against(PLAIN, MLX_LM), against(FUSED, PLAIN)
    best = fastest(samples, [name for name in (PLAIN, FUSED, ALL) if name in names])
    llamas = [
        one for name in sorted(names) if name.startswith(LLAMA) and (one := against(name, best))
    ]
    return {
        "parity_mlx_lm": parity and round(parity.ratio, 4),
        "parity_low": None if parity is None or parity.low is None else round(parity.low, 4),
        "fused_over_plain": fused and round(fused.ratio, 4),
        "llama_cpp_over_ours": round(max(one.ratio for one in llamas), 3) if llamas else None,
        "bandwidth_share": round(overall_share(document, samples, best), 4),
    }
