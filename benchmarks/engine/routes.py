"""The page's section on the route of MLX on this CPU: what a BLAS, a format and threads are worth, all from the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from battery.analyse.numerals import figure
from battery.analyse.stats import Estimate
from battery.render import words
from benchmarks.engine import ratios
from benchmarks.engine.arms import PLAIN, ROWS
from benchmarks.engine.rounds import Sample

HEAD = (
    "weights and BLAS",
    "answers matrix products",
    "cores busy",
    "decode",
    "over the first",
    "over its format as shipped",
    "prefill",
    "over its format as shipped",
)


def section(told: dict[str, Any]) -> str:
    """Every route with its gain, and whether that of `plain` is the fastest; empty where none was measured."""
    found = told.get("routes")
    if not found:
        return ""
    samples = ratios.samples_of(found)
    arms, rung = found["arms"], found["rung"]
    rows = [_row(one, arms, samples, rung) for one in arms]
    return (
        f"## What makes MLX slow on this CPU\n\nmlx_lm's own loop after {rung} prompt tokens, {found['blocks']} blocks,"
        " asked by turns as above. As shipped: no BLAS preloaded. Cores busy: processor time over elapsed time in"
        f" decode.\n\n{words.table(HEAD, rows)}\n\n{_taken(told, arms, samples, rung)}"
    )


def over(
    samples: Sequence[Sample], name: str, base: str | None, metric: str, rung: int
) -> Estimate | None:
    """One route over another, or None where they are the same or there is no other."""
    if base is None or base == name:
        return None
    return ratios.ratio(samples, name, base, metric, [rung])


def shipped(arms: Sequence[dict[str, Any]], format: str) -> str | None:
    """The route of a format without a BLAS."""
    return next((one["name"] for one in arms if one["format"] == format and not one["blas"]), None)


def busy(samples: Sequence[Sample], name: str) -> float:
    """How many cores a route kept busy in decode."""
    mine = [one for one in samples if one.arm == name]
    return sum(one.cpu_s for one in mine) / sum(one.seconds for one in mine)


def large(facts: dict[str, Any]) -> bool:
    """Whether a process's own memory lies in large pages, for the most part of its weights."""
    return 2 * (facts.get("huge_pages") or 0) > facts["weight_bytes"]


def _memory(facts: dict[str, Any]) -> str:
    held = facts.get("huge_pages")
    return (
        "large pages not told" if held is None else f"{held / 1e6:,.0f} MB of memory in large pages"
    )


def _laid(told: dict[str, Any], facts: dict[str, Any]) -> str:
    """How the weights of `plain` lie, and what that is worth over rows in the main comparison."""
    if "layout" not in facts:
        return ""
    said = f" Its weights lie by {facts['layout']}."
    samples = ratios.samples_of(told)
    rungs = ratios.rungs_of(samples, PLAIN, ROWS) if ROWS in {one.arm for one in samples} else []
    if not rungs:
        return said
    gains = (
        f"{metric} {ratios.times(ratios.ratio(samples, PLAIN, ROWS, metric, rungs))}"
        for metric in ("decode", "prefill")
    )
    return f"{said} Over the same engine with all weights by rows: {', '.join(gains)}."


def _row(
    one: dict[str, Any], arms: Sequence[dict[str, Any]], samples: Sequence[Sample], rung: int
) -> tuple[str, ...]:
    name, same = one["name"], shipped(arms, one["format"])
    cells = []
    for metric, bases in (("decode", (arms[0]["name"], same)), ("prefill", (same,))):
        level = ratios.level(samples, name, rung, metric)
        cells.append(figure(level.value) if level else "—")
        cells += [
            "1" if base == name else ratios.times(over(samples, name, base, metric, rung))
            for base in bases
        ]
    return (name, one["facts"]["blas"] or "—", f"{busy(samples, name):.2f}", *cells)


def _taken(
    told: dict[str, Any], arms: Sequence[dict[str, Any]], samples: Sequence[Sample], rung: int
) -> str:
    """What `plain` runs with, found among the routes by what both processes told of themselves."""
    facts = {one["name"]: one["facts"] for one in told["arms"]}[PLAIN]
    ways = ("format", "blas", "blas_threads")
    ours = next((one for one in arms if all(one["facts"][way] == facts[way] for way in ways)
                 and large(one["facts"]) == large(facts)), None)  # fmt: skip
    best = ratios.fastest(samples, [one["name"] for one in arms], arms[0]["name"])
    said = (
        f"switchboard takes its route at the start: `{PLAIN}` ran with {facts['format']} weights and {facts['blas']},"
        f" threads of it: {facts['blas_threads']}, {_memory(facts)}."
    )
    said += _laid(told, facts)
    if ours is None:
        return f"{said} None of the routes above is that one; the fastest in decode is `{best}`."
    gain = over(samples, ours["name"], arms[0]["name"], "decode", rung)
    reading = over(samples, ours["name"], arms[0]["name"], "prefill", rung)
    if best == ours["name"]:
        rank = "the fastest of these in decode"
    else:
        behind = over(samples, ours["name"], best, "decode", rung)
        rank = f"{ratios.times(behind)} of the fastest of these in decode, `{best}`"
    return (
        f"{said} That is `{ours['name']}`, {rank}. Its gain over `{arms[0]['name']}`, the model's own format with MLX"
        f" as its wheel ships: decode {ratios.times(gain)}, prefill {ratios.times(reading)}."
    )
