"""The page of the engine's benchmark, from the document alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from battery.analyse.numerals import figure
from battery.analyse.stats import Estimate
from battery.render import words
from benchmarks.engine import ratios
from benchmarks.engine.arms import ALL, FUSED, LLAMA, MLX_LM, PLAIN
from benchmarks.engine.rounds import Sample


def page(told: dict[str, Any]) -> str:
    """The whole page as Markdown."""
    samples = ratios.samples_of(told)
    parts = [
        _head(told), _summary(told, samples), _decode(told, samples), _prefill(told, samples),
        _same(told, samples), _roofline(told, samples), _routes(told), _left_out(told), _limits(told),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def times(one: Estimate | None) -> str:
    """A ratio with its interval."""
    if one is None:
        return "—"
    if one.low is None or one.high is None:
        return f"{one.ratio:.3f} [no interval]"
    return f"{one.ratio:.3f} [{one.low:.3f}, {one.high:.3f}]"


def names(told: dict[str, Any]) -> list[str]:
    """The arms in their order."""
    return [one["name"] for one in told["arms"]]


def _head(told: dict[str, Any]) -> str:
    machine, model = told["machine"], told["model"]
    return (
        f"# switchboard beside other engines\n\n`{told['command']}`, {told['minutes']:.1f} minutes.\n\n"
        f"{model['name']}, {model['parameters'] / 1e6:.0f}M parameters, on {machine['cpu']}, {machine['cores_logical']}"
        f" cores, {machine['os']}. MLX {model['mlx']}. {told['blocks']} blocks; in each a new prompt of prose for every"
        " rung, the same tokens for all arms, read in a Williams order, then decoded greedily by all arms by turns in"
        f" slices of {told['slice']} tokens, there and back again. Ratios are formed within blocks; intervals are 95 %"
        f" t intervals over the blocks. Other processes took {100 * told['others']:.1f} % of the processor meanwhile."
    )


def _summary(told: dict[str, Any], samples: Sequence[Sample]) -> str:
    found = set(names(told))
    lines = []
    for arm, base, what in (
        (PLAIN, MLX_LM, "All switches off, over mlx_lm with the same BLAS, threads and arrays"),
        (FUSED, MLX_LM, "Joined projections on, over the same mlx_lm"),
        (ALL, MLX_LM, "All switches on, over the same mlx_lm"),
        (FUSED, PLAIN, "Joined projections over none"),
    ):
        if {arm, base} <= found:
            rungs = ratios.rungs_of(samples, arm, base)
            each = [(rung, ratios.ratio(samples, arm, base, "decode", [rung])) for rung in rungs]
            low, one = min(each, key=lambda pair: round(pair[1].ratio, 4) if pair[1] else 0.0)
            whole = ratios.ratio(samples, arm, base, "decode", rungs)
            lines.append(
                f"- {what}: decode **{times(whole)}**; lowest at {low:,} tokens: {times(one)}."
            )
    best = ratios.fastest(samples, [name for name in (PLAIN, FUSED, ALL) if name in found])
    for name in sorted(found):
        if name.startswith(LLAMA):
            whole = ratios.ratio(
                samples, name, best, "decode", ratios.rungs_of(samples, name, best)
            )
            lines.append(
                f"- {name} (4-bit weights) over our fastest arm (`{best}`): decode {times(whole)}."
            )
    share = ratios.overall_share(told, samples, best)
    lines.append(
        f"- `{best}` reads its weights at {100 * share:.0f} % of the rate at which this machine reads memory."
    )
    return "\n".join(lines)


def _rates(
    told: dict[str, Any], samples: Sequence[Sample], metric: str, base: str
) -> list[list[str]]:
    """A row for each arm: per rung its rate and its ratio to `base`."""
    rows = []
    for name in names(told):
        row = [name]
        for rung in told["rungs"]:
            own = ratios.level(samples, name, rung, metric)
            shared = {rung} <= set(ratios.rungs_of(samples, name, base))
            over = ratios.ratio(samples, name, base, metric, [rung]) if shared else None
            row += [figure(own.value) if own else "—", "1" if name == base else times(over)]
        rows.append(row)
    return rows


def _base(told: dict[str, Any]) -> str:
    return MLX_LM if MLX_LM in names(told) else PLAIN


def _decode(told: dict[str, Any], samples: Sequence[Sample]) -> str:
    base = _base(told)
    head = ["arm", *(cell for rung in told["rungs"] for cell in (f"at {rung:,}", f"over {base}"))]
    over = []
    for name in names(told):
        cells = [
            times(ratios.ratio(samples, name, other, metric, shared))
            if shared and name != other
            else "—"
            for other, metric in ((base, "cpu"), (PLAIN, "decode"), (PLAIN, "cpu"))
            for shared in [ratios.rungs_of(samples, name, other)]
        ]
        rungs = ratios.rungs_of(samples, name)
        over.append((name, ", ".join(f"{rung:,}" for rung in rungs), *cells))
    columns = (
        "arm",
        "rungs",
        f"over {base}, by processor time",
        f"over {PLAIN}",
        f"over {PLAIN}, by processor time",
    )
    return (
        "## Decode, tokens a second\n\n"
        f"{words.table(head, _rates(told, samples, 'decode', base))}\n\n"
        "From the first token to the last. A dash: not asked at that rung, since its prompt takes this arm too long or"
        " it is a single switch, asked at the middle rung only. Over the rungs that both arms were asked at, and by"
        " the processor time of all threads of a process, which other work on the machine hardly touches:\n\n"
        f"{words.table(columns, over)}"
    )


def _prefill(told: dict[str, Any], samples: Sequence[Sample]) -> str:
    base = _base(told)
    head = ["arm", *(cell for rung in told["rungs"] for cell in (f"at {rung:,}", f"over {base}"))]
    return (
        f"## Prefill, tokens a second\n\n{words.table(head, _rates(told, samples, 'prefill', base))}\n\n"
        "All but the last prompt token, until they are in the cache; llama.cpp's own figure for all of them. mlx_lm"
        " reads 2,048 tokens at once, switchboard 128 on a CPU, each as it comes."
    )


def _same(told: dict[str, Any], samples: Sequence[Sample]) -> str:
    rows = []
    for one in told["arms"]:
        mine = [sample for sample in samples if sample.arm == one["name"] and sample.of]
        whole = sum(sample.same == sample.of for sample in mine)
        parted = [sample.same or 0 for sample in mine if sample.same != sample.of]
        facts = one["facts"]
        threads = facts["blas_threads"]
        rows.append((
            one["name"], facts["format"], facts["blas"] or "its own", "—" if threads is None else threads,
            f"{whole} of {len(mine)}", min(parted, default="—"),
        ))  # fmt: skip
    head = (
        "arm",
        "weights",
        "BLAS",
        "threads",
        f"texts equal to {PLAIN}'s",
        "earliest difference after",
    )
    return (
        "## The same work\n\nWhat each process found itself to run with, and whether it wrote the same greedy tokens as"
        f" `{PLAIN}` ({told['tokens']} and more of each text). Arms of the same weights and format must choose the same"
        " first token, or nothing is compared.\n\n"
        f"{words.table(head, rows)}"
    )


def _roofline(told: dict[str, Any], samples: Sequence[Sample]) -> str:
    bandwidth = told["bandwidth"]
    rows = []
    for name in names(told):
        cells: list[str] = []
        for rung in told["rungs"]:
            asked = rung in ratios.rungs_of(samples, name)
            cells.append(f"{100 * ratios.share(told, samples, name, rung):.0f} %" if asked else "—")
        rows.append((name, f"{ratios.bytes_per_pass(told, name) / 1e6:,.0f} MB", *cells))
    head = ("arm", "weights a pass", *(f"at {rung:,}" for rung in told["rungs"]))
    return (
        f"## Roofline\n\nThis machine reads {bandwidth['read_one'] / 1e9:.1f} GB/s on one thread and"
        f" {bandwidth['read_all'] / 1e9:.1f} on {bandwidth['cores']} (a dot product over"
        f" {bandwidth['bytes'] >> 20} MiB a thread), and copies {bandwidth['copy_all'] / 1e9:.1f} (read and written"
        " bytes). Bytes of weights that decode passes read in a second, over the highest rate of reading:\n\n"
        f"{words.table(head, rows)}"
    )


def _routes(told: dict[str, Any]) -> str:
    routes = told.get("routes")
    if not routes:
        return ""
    samples = ratios.samples_of(routes)
    base, rung = routes["arms"][0]["name"], routes["rung"]
    rows = []
    for one in routes["arms"]:
        decode = ratios.level(samples, one["name"], rung, "decode")
        prefill = ratios.level(samples, one["name"], rung, "prefill")
        over = (
            "1"
            if one["name"] == base
            else times(ratios.ratio(samples, one["name"], base, "decode", [rung]))
        )
        assert decode is not None and prefill is not None
        rows.append(
            (
                one["name"],
                one["facts"]["blas"] or "—",
                figure(decode.value),
                figure(prefill.value),
                over,
            )
        )
    head = (
        "weights and BLAS",
        "answers matrix products",
        "decode",
        "prefill",
        "decode over the first",
    )
    return (
        f"## What makes MLX slow on this CPU\n\nmlx_lm's own loop after {rung} prompt tokens,"
        f" {routes['blocks']} blocks. MLX's wheel for Linux links the reference BLAS and runs its own kernels, those of"
        " quantised and half-precision matrices among them, on one thread. A preloaded BLAS takes the place of the"
        f" reference one for fp32 products alone.\n\n{words.table(head, rows)}\n\n"
        "Hence the route that `switchboard serve` takes on a CPU: matrices dequantised to fp32 at load, a BLAS"
        " preloaded by the launcher, one thread."
    )


def _left_out(told: dict[str, Any]) -> str:
    rows = sorted(told["absent"].items())
    if not rows:
        return ""
    return f"## Not measured\n\n{words.table(('arm', 'why'), rows)}"


def _limits(told: dict[str, Any]) -> str:
    return (
        "## Limits\n\nOne machine, one model, one run. An interval speaks for these prompts in this session and for one"
        " launch of each arm: where a process happens to lie in memory moves its rate by some per cent on this kind of"
        " machine. What an engine still computes when its turn ends (on a CPU the output matrix of the step that is"
        " under way) is"
        " outside the turn, for switchboard and mlx_lm alike. The text"
        " decides what drafts are worth: this is prose that goes on, which quotes little of itself. llama.cpp's weights"
        " stay in 4 bits and its activations are rounded to 8, so it reads a sixth of the bytes and writes other texts."
    )
