"""The page of the engine's benchmark, from the document alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from battery.analyse.numerals import figure
from battery.render import words
from benchmarks.engine import ratios, routes
from benchmarks.engine.arms import ALL, FUSED, LLAMA, MLX_LM, PLAIN, ROWS
from benchmarks.engine.rounds import Sample


def page(told: dict[str, Any]) -> str:
    """The whole page as Markdown."""
    samples = ratios.samples_of(told)
    parts = [
        _head(told), _summary(told, samples), _decode(told, samples), _prefill(told, samples),
        _switches(told), _same(told, samples), _roofline(told, samples), routes.section(told), _left_out(told),
        _limits(told),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def names(told: dict[str, Any]) -> list[str]:
    """The arms in their order."""
    return [one["name"] for one in told["arms"]]


def _head(told: dict[str, Any]) -> str:
    machine, model = told["machine"], told["model"]
    return (
        f"# switchboard beside other engines\n\n`{told['command']}`, {told['minutes']:.1f} minutes.{_stopped(told)}\n\n"
        f"{model['name']}, {model['parameters'] / 1e6:.0f}M parameters, on {machine['cpu']}, {machine['cores_logical']}"
        f" cores, {machine['os']}. MLX {model['mlx']}. {told['blocks']} blocks; in each a new prompt of prose for every"
        " rung, the same tokens for all arms, read in a Williams order, then decoded greedily by all arms by turns in"
        f" slices of {told['slice']} tokens, there and back again. Ratios are formed within blocks; intervals are 95 %"
        f" t intervals over the blocks. Other processes took {100 * told['others']:.1f} % of the processor meanwhile."
    )


def _stopped(told: dict[str, Any]) -> str:
    if not told["stopped"]:
        return ""
    return f" **Stopped early** ({told['stopped']}): {told['blocks']} of {told['planned']} blocks."


def on(told: dict[str, Any], arm: str) -> list[str]:
    """The switches of an arm that ran in its texts."""
    (one,) = [one for one in told["arms"] if one["name"] == arm]
    return [name for name, state in one["facts"]["switches"].items() if state["runs"]]


def _asked(told: dict[str, Any], arm: str) -> int:
    (one,) = [one for one in told["arms"] if one["name"] == arm]
    return len(one["switches"])


def _summary(told: dict[str, Any], samples: Sequence[Sample]) -> str:
    found = set(names(told))
    lines = []
    for arm, base, what in (
        (
            PLAIN,
            MLX_LM,
            "All switches off, over mlx_lm with the same weights, BLAS, threads and large pages",
        ),
        (ROWS, MLX_LM, "The same with its weights row by row, as mlx_lm has them"),
        (FUSED, MLX_LM, "`{arm}` ({on}), over the same mlx_lm"),
        (
            ALL,
            MLX_LM,
            "`{arm}` (of {asked} switches asked for, those that ran: {on}), over the same mlx_lm",
        ),
        (FUSED, PLAIN, "`{arm}` over `plain`"),
    ):
        if {arm, base} <= found:
            what = what.format(
                arm=arm, on=", ".join(on(told, arm)) or "none", asked=_asked(told, arm)
            )
            rungs = ratios.rungs_of(samples, arm, base)
            each = [(rung, ratios.ratio(samples, arm, base, "decode", [rung])) for rung in rungs]
            low, one = min(each, key=lambda pair: round(pair[1].ratio, 4) if pair[1] else 0.0)
            whole = ratios.ratio(samples, arm, base, "decode", rungs)
            lines.append(
                f"- {what}: decode **{ratios.times(whole)}**; lowest at {low:,} tokens: {ratios.times(one)}."
            )
    best = ratios.fastest(samples, [name for name in (PLAIN, FUSED, ALL) if name in found])
    for name in sorted(found):
        if name.startswith(LLAMA):
            whole = ratios.ratio(
                samples, name, best, "decode", ratios.rungs_of(samples, name, best)
            )
            lines.append(
                f"- {name} (4-bit weights) over our fastest arm (`{best}`): decode {ratios.times(whole)}."
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
            row += [figure(own.value) if own else "—", "1" if name == base else ratios.times(over)]
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
            ratios.times(ratios.ratio(samples, name, other, metric, shared))
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
        "Over the turns, each timed after its first pass. A dash: not asked at that rung; a single switch is asked at"
        " the lowest only."
        " Over the rungs that both arms were asked at, and by"
        " the processor time of all threads of a process, which other work on the machine hardly touches:\n\n"
        f"{words.table(columns, over)}"
    )


def _prefill(told: dict[str, Any], samples: Sequence[Sample]) -> str:
    base = _base(told)
    head = ["arm", *(cell for rung in told["rungs"] for cell in (f"at {rung:,}", f"over {base}"))]
    return (
        f"## Prefill, tokens a second\n\n{words.table(head, _rates(told, samples, 'prefill', base))}\n\n"
        "All but the last prompt token, until they are in the cache; llama.cpp's own figure for all of them."
        f"{_chunks(told)}"
    )


def _chunks(told: dict[str, Any]) -> str:
    size = {one["name"]: one["facts"]["chunk"] for one in told["arms"]}
    if MLX_LM not in size:
        return f" `{PLAIN}` reads {size[PLAIN]:,} tokens at once, as it comes."
    return f" {MLX_LM} reads {size[MLX_LM]:,} tokens at once, `{PLAIN}` {size[PLAIN]:,}, each as it comes."


def _switches(told: dict[str, Any]) -> str:
    """What became of every switch in its own arm and in the joint ones, after the last block."""
    facts = {one["name"]: one["facts"].get("switches", {}) for one in told["arms"]}
    joint = [name for name in (FUSED, ALL) if name in facts]
    rows = []
    for name in sorted({switch for states in facts.values() for switch in states}):
        states = [facts[arm].get(name) for arm in (name, *joint) if arm in facts]
        said = sorted((one for one in states if one), key=lambda one: one["state"] != "declined")
        reason = next((one["reason"] for one in said if one["reason"]), None)
        cells = [_state(facts.get(arm, {}).get(name)) for arm in (name, *joint)]
        rows.append((name, *cells, reason or told["absent"].get(name, "—")))
    if not rows:
        return ""
    return (
        "## Switches\n\nAs each last process told them after its last text, with how often each ran in its texts."
        " Engaged: it ran in the last text; armed: it is on and did not; declined: it does not fit here, and the arm"
        " ran without it. A dash: the arm was not asked for it, or has nothing else and was not measured.\n\n"
        f"{words.table(('switch', 'alone', *joint, 'what it says'), rows)}"
    )


def _state(one: dict[str, Any] | None) -> str:
    if one is None:
        return "—"
    return f"{one['state']}, {one['runs']:,} runs" if one["runs"] else str(one["state"])


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


def _left_out(told: dict[str, Any]) -> str:
    rows = sorted(told["absent"].items())
    if not rows:
        return ""
    return f"## Not measured\n\n{words.table(('arm', 'why'), rows)}"


def _limits(told: dict[str, Any]) -> str:
    found = set(names(told))
    llamas = sorted(name for name in found if name.startswith(LLAMA))
    parts = [
        "One machine, one model, one run. Every block has new processes, since where a launch happens to lie in memory"
        " alone changes its rate by percents; an interval speaks for these prompts and launches in this session.",
        "switchboard builds the next step's graph while the current one computes, starts its first layers, hands the"
        " token on and then starts the rest; mlx_lm starts the whole next step first. So a turn is timed from its"
        " first token to its last, with as much started ahead at the one as at the other, and what was started is"
        " waited for when the clock has stopped: nothing of it runs in another arm's turn.",
        "The text decides what drafts are worth: this is prose that goes on, which quotes little of itself.",
    ]
    if llamas:
        part = ratios.bytes_per_pass(told, llamas[0]) / ratios.bytes_per_pass(told, PLAIN)
        parts.append(
            f"llama.cpp's weights stay as the GGUF file has them and its activations are rounded to 8 bits: it reads"
            f" {part:.2f} of the bytes that `{PLAIN}` reads and writes other texts."
        )
    return "## Limits\n\n" + " ".join(parts)
