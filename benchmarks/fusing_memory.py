"""Bytes in use before and after projections are joined, with the originals dropped and kept.

    python -m benchmarks.fusing_memory [--derive] [--out FOLDER] [MODEL …]

What MLX holds for arrays (active) and for reuse (cache), and the most that was active while the switches went on
(peak). Each model is loaded anew for each row. Then the budget of `fused_experts`: with a limit one byte below what
its largest layer needs beside the model, and with exactly that. `reports/fusing-memory.md` follows from
`reports/fusing-memory.json` alone; `--derive` writes it again. With models named, the tables are printed and nothing
is written, unless `--out` says where. No time is taken, so it may run beside other work.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import mlx.core as mx
import msgspec
from mlx.nn.layers.quantized import quantize

from battery.ledger.disk import replace
from battery.render import words
from switchboard import lm, memory
from switchboard.board import Board
from switchboard.errors import Declined
from switchboard.joined import routed
from switchboard.load import load
from switchboard.models import resolve
from switchboard.registry import Counter, known
from switchboard.siblings import describe, owners

ROOT = Path(__file__).parents[1]
NAME = "fusing-memory"
LARGE = "qwen3_moe-12-layers"
"""A mixture of random weights whose layers are large beside what checking a joined one takes."""
CONFIG = {
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "num_hidden_layers": 12,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "rope_theta": 1e5,
    "tie_word_embeddings": True,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}
MODELS = (
    "synthetic:tiny-llama-q4-g32",
    "synthetic:tiny-qwen3_moe-q4-g32",
    "synthetic:tiny-qwen3_5_moe-mixed",
    "smollm2-135m",
    LARGE,
)
FORMATS = ("quantized", "float32")
SWITCHES = ("fused_qkv", "fused_gate_up", "fused_experts")
EXPERTS = "fused_experts"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One model, joined once; bytes."""

    model: str
    format: str
    kept: bool
    """Whether the originals stay beside the joined matrices."""
    joined: list[str]
    """The switches that did something; the others declined."""
    active_before: int
    active_after: int
    cache_before: int
    cache_after: int
    peak: int
    """The most that was active while the switches went on."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """`fused_experts` under a memory limit; bytes."""

    model: str
    format: str
    needs: int
    """The copy of the largest layer's experts that joining needs beside the model."""
    spare: int
    """What the limit left above the bytes in use."""
    declined: str | None
    """The reason, or None where it joined."""
    active_before: int
    active_after: int
    peak: int


def measure(name: str, format: str, keep: bool) -> Row:
    """Load, join everything that can be, and read MLX's counters."""
    model, stored = fresh(name, format)
    before, cache, done = mx.get_active_memory(), mx.get_cache_memory(), []
    for switch in SWITCHES:
        options = known()[switch].parse({"keep_originals": str(keep).lower()})
        try:
            done.append((switch, known()[switch].apply(model, options, Counter())))
        except Declined:
            continue
    gc.collect()
    return Row(
        model=name, format=stored, kept=keep, joined=[switch for switch, _ in done], active_before=before,
        active_after=mx.get_active_memory(), cache_before=cache, cache_after=mx.get_cache_memory(), peak=memory.peak(),
    )  # fmt: skip


def budget(name: str, format: str, short: int) -> Budget | None:
    """`fused_experts` with so many bytes less than it needs; None where a model has no routed experts to join."""
    model, stored = fresh(name, format)
    needs = needed(model)
    if needs is None:
        return None
    before, spare, reason = mx.get_active_memory(), needs - short, None
    limit = mx.set_memory_limit(before + spare)
    try:
        done = known()[EXPERTS].apply(model, known()[EXPERTS].parse({}), Counter())
    except Declined as declined:
        done, reason = None, str(declined)
    finally:
        mx.set_memory_limit(limit)
    gc.collect()
    after, peak = mx.get_active_memory(), memory.peak()
    del done
    return Budget(model=name, format=stored, needs=needs, spare=spare, declined=reason,
                  active_before=before, active_after=after, peak=peak)  # fmt: skip


def fresh(name: str, format: str) -> tuple[Any, str]:
    """A model without a switch and its format, with nothing left of the one before and the peak at what is in use."""
    gc.collect()
    # MLX counts whole buffers, and one that is taken again may be larger than what it holds now
    reuse = mx.set_cache_limit(0)
    if name == LARGE:
        mx.random.seed(1)
        model, stored = lm.build(dict(CONFIG)), "float32"
        if format == "quantized":
            quantize(model, group_size=32, bits=4)
            stored = "q4-g32"
    else:
        loaded = load(resolve(name), format, Board((), {}))
        model, stored = loaded.model, loaded.format
        del loaded
    mx.eval(model.parameters())
    gc.collect()
    mx.set_cache_limit(reuse)
    memory.reset_peak()
    return model, stored


def needed(model: Any) -> int | None:
    """Bytes of the largest layer's gates and ups of routed experts that agree in format; None without any."""
    sizes = [
        sum(array.nbytes for part in one.parts() for array in part.parameters().values())
        for one in owners(model, (("gate_proj", "up_proj"),))
        if all(map(routed, one.parts())) and ", " not in describe(one)
    ]
    return max(sizes, default=None)


def gather(names: Sequence[str]) -> dict[str, Any]:
    """The document: every model in every format, dropped and kept, then the budgets."""
    each = [(name, format) for name in names for format in FORMATS]
    rows = [measure(name, format, keep) for name, format in each for keep in (False, True)]
    tried = [budget(name, format, short) for name, format in each for short in (1, 0)]
    return {
        "command": f"python -m benchmarks.{NAME.replace('-', '_')}",
        "mlx": metadata.version("mlx"),
        "device": str(mx.default_device()),
        "rows": msgspec.to_builtins(rows),
        "budgets": msgspec.to_builtins([one for one in tried if one is not None]),
    }


def page(told: dict[str, Any]) -> str:
    """The page as Markdown, from the document alone."""
    rows = msgspec.convert(told["rows"], list[Row])
    budgets = msgspec.convert(told["budgets"], list[Budget])
    tables = [_rows_table(rows), _needs(rows)]
    if budgets:
        tables.append(
            "## Routed experts under a memory limit\n\nWhat one layer's copy needs, and what the limit leaves above the"
            " bytes in use. The peak may pass the limit by what the check of a joined layer computes.\n\n"
            f"{_budget_table(budgets)}"
        )
    return (
        f"# Memory of joined projections\n\n`{told['command']}`; MLX {told['mlx']}, {told['device']}, megabytes of 10⁶"
        " bytes as MLX counts them. A model is loaded anew for each row, then"
        f" {', '.join(f'`{one}`' for one in SWITCHES)} go on, those that do not decline. Active: held by arrays;"
        " cache: held for reuse; peak: the most that was active meanwhile.\n\n"
        + "\n\n".join(tables)
        + "\n"
    )


def _rows_table(rows: Sequence[Row]) -> str:
    head = ("model", "format", "originals", "joined by", "active before", "after", "change", "cache before", "after",
            "peak", "peak over active before")  # fmt: skip
    body = [
        (
            _short(one.model), one.format, "kept" if one.kept else "dropped", ", ".join(one.joined) or "—",
            _mega(one.active_before), _mega(one.active_after), words.change(one.active_after / one.active_before),
            _mega(one.cache_before), _mega(one.cache_after), _mega(one.peak),
            words.change(one.peak / one.active_before),
        )
        for one in rows
    ]  # fmt: skip
    return words.table(head, body)


def _needs(rows: Sequence[Row]) -> str:
    """What layer by layer saves: the peak with originals dropped beside the whole copy that keeping them is."""
    body = []
    for one in rows:
        for other in rows:
            if (one.model, one.format, one.kept, other.kept) == (
                other.model,
                other.format,
                False,
                True,
            ):
                whole, most = other.active_after - other.active_before, one.peak - one.active_before
                share = f"{100 * most / whole:.1f} %" if whole > 0 else "—"
                body.append((_short(one.model), one.format, _mega(whole), _mega(most), share))  # fmt: skip
    head = ("model", "format", "copies of all layers", "most at a time", "share")
    return (
        "Layers are joined one at a time and the originals dropped at once; with originals kept the copies of all"
        " layers stay. The most at a time is the peak above the bytes in use with originals dropped: a layer's copy and"
        f" what its check computes, which in the tiny models is the larger part.\n\n{words.table(head, body)}"
    )


def _budget_table(budgets: Sequence[Budget]) -> str:
    head = (
        "model",
        "format",
        "needs",
        "left by the limit",
        "outcome",
        "active before",
        "after",
        "peak",
    )
    body = [
        (
            _short(one.model), one.format, f"{one.needs:,} B", f"{one.spare:,} B",
            f"declined: {one.declined}" if one.declined else "joined", f"{one.active_before:,} B",
            f"{one.active_after:,} B", f"{one.peak:,} B",
        )
        for one in budgets
    ]  # fmt: skip
    return words.table(head, body)


def _short(model: str) -> str:
    return model.removeprefix("synthetic:")


def _mega(count: int) -> str:
    return f"{count / 1e6:.2f}"


def main(argv: list[str] | None = None) -> int:
    """Measure or derive, write, print."""
    parser = argparse.ArgumentParser(prog=f"benchmarks.{NAME}", description=__doc__.splitlines()[0])  # fmt: skip
    parser.add_argument("models", nargs="*", help="as `switchboard serve --model`")
    parser.add_argument("--derive", action="store_true", help="measure nothing: write the page again")  # fmt: skip
    parser.add_argument("--out", type=Path, help="folder for reports/ instead of the repository")
    asked = parser.parse_args(argv)
    kept = (asked.out or ROOT) / "reports" / f"{NAME}.json"
    told = json.loads(kept.read_text()) if asked.derive else gather(asked.models or MODELS)
    if asked.out or not asked.models:
        replace(kept, (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode())
        replace(kept.with_suffix(".md"), page(told).encode())
    print(page(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
