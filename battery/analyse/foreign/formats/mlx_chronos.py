"""A result of mlx-chronos: a sealed JSON with the raw values of every trial.

Read: ttft_cold_raw and decode_tokens_per_second_raw = (N − 1) / (first content to the end of the stream), in seconds
and tok/s; every trial has a prompt of its own, which the protocol lists, so trials are told by their prompts. Trials
with cached prompts are not read. The seal is a digest of the canonical JSON without it: a changed file is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from battery.analyse.foreign.formats import Format
from battery.analyse.foreign.reading.document import Document, Node, agree, mean
from battery.analyse.foreign.reading.settings import made_with
from battery.analyse.foreign.reading.taken import ALONE, Run, Taken, Value, moment
from battery.ledger.errors import InputError

_PARTS = ("hardware", "engine", "model", "metrics", "trials", "meta")
_SEAL = "mlx-chronos-integrity-v1"
_ROUNDED = 0.02
"""Tok/s by which a rate that was rounded to two digits may be off, as the tool itself allows."""


def recognises(found: Document) -> bool:
    """Whether it is one result of mlx-chronos."""
    if len(found.nodes) != 1 or not found.all(*_PARTS):
        return False
    meta = found.nodes[0].get("meta")
    return meta is not None and meta.has("chronos_version")


def read(found: Document) -> Taken:
    """The one run of a result."""
    result = found.nodes[0]
    _sealed(result)
    trials, meta = result["trials"], result["meta"]
    count, protocol = trials["count"].count(), meta["benchmark_protocol"]
    values = [
        *_column(trials, "ttft_cold_raw", protocol["ttft_cold"], "ttft", count),
        *_decode(trials, protocol["throughput"], count),
    ]
    if not values:
        raise InputError(f"{trials.at}: no trial has a value")
    run = Run(
        load=ALONE, started=moment(meta["timestamp"].text()), values=tuple(values), requests=count,
        notes=tuple(_warnings(meta)), settings=_settings(result),
    )  # fmt: skip
    return Taken(runs=(run,), version=meta["chronos_version"].text(), absent=_ABSENT, notes=_NOTES)


def _settings(result: Node) -> dict[str, str]:
    """The machine, the engine and the model."""
    keys = {
        "hardware": ("chip", "machine_model", "memory_gb", "macos_version", "power_source"),
        "engine": ("name", "version"), "model": ("name", "quantization", "format"),
    }  # fmt: skip
    return {
        name: value for part, own in keys.items() for name, value in made_with(result[part], own, f"{part} ").items()
    }  # fmt: skip


def _sealed(result: Node) -> None:
    """InputError where the seal is not that of what the file says."""
    seal = result["integrity"]
    if seal["schema"].text() != _SEAL:
        raise InputError(
            f"{seal['schema'].at}: a seal of '{seal['schema'].value}', and '{_SEAL}' is known"
        )
    rest = {key: value for key, value in result.value.items() if key != "integrity"}
    try:
        written = json.dumps(
            rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()
    except (ValueError, RecursionError) as wrong:
        raise InputError(f"{result.at}: {wrong}: such a result cannot have been sealed") from wrong
    if hashlib.sha256(written).hexdigest() != seal["digest"].text():
        raise InputError(
            f"{seal['digest'].at}: not the digest of this result: it was changed after it was sealed; ask for the file"
            " as it was"
        )


def _column(trials: Node, key: str, phase: Node, metric: str, count: int) -> Iterator[Value]:
    """One raw value a trial, under the prompt of that trial."""
    values, prompts = trials[key].items(), phase["prompts"].items()
    if not len(values) == len(prompts) == count:
        raise InputError(
            f"{trials[key].at}: {len(values)} values and {len(prompts)} prompts of {count} trials"
        )
    context = _context(phase)
    for value, prompt in zip(values, prompts, strict=True):
        yield Value(metric=metric, value=value.positive(), context=context, seed=_seed(prompt))


def _decode(trials: Node, phase: Node, count: int) -> Iterator[Value]:
    """The decode rates of the trials, held against their tokens and times."""
    if trials.get("decode_tokens_per_second_raw") is None:
        return
    tokens = [one.count() for one in trials["completion_tokens_raw"].items()]
    told = list(_column(trials, "decode_tokens_per_second_raw", phase, "decode", count))
    times = trials.get("decode_elapsed_seconds_raw")
    if len(tokens) != count or (times and len(times.items()) != count):
        raise InputError(
            f"{trials['completion_tokens_raw'].at}: {len(tokens)} counts of {count} trials, or not as many times"
        )
    for place, (value, made) in enumerate(zip(told, tokens, strict=True)):
        if times and made > 1:
            elapsed = times.items()[place]
            rate = trials["decode_tokens_per_second_raw"].items()[place]
            agree(
                rate, (made - 1) / elapsed.positive(), "tokens after the first over their time",
                max(_ROUNDED / value.value, 1e-3),
            )  # fmt: skip
        yield Value(
            metric=value.metric, value=value.value, context=value.context, seed=value.seed, tokens=made or None
        )  # fmt: skip


def _context(phase: Node) -> int | None:
    """Mean prompt tokens of a phase, where all are told."""
    told = phase.get("input_tokens")
    counts = [one for one in told.items() if one.value is not None] if told else []
    if not told or not counts or len(counts) < len(told.items()):
        return None
    return round(mean([one.count() for one in counts]))


def _seed(prompt: Node) -> str:
    """A label by which a prompt is found in other results."""
    written = prompt.raw().encode("utf-8", "surrogatepass")
    return f"prompt {hashlib.sha256(written).hexdigest()[:10]}"


def _warnings(meta: Node) -> Iterator[str]:
    """What the result itself warns of."""
    cache = meta.get("cache_validation")
    cleared = cache.get("cold_cache_cleared") if cache else None
    if cleared is None or cleared.value is not True:
        yield "mlx-chronos: a cold TTFT is one by another prompt only; the engine was not asked to clear its cache"
    for key, what in _WARNINGS.items():
        told = meta.get(key)
        if told and told.value is True:
            yield f"mlx-chronos: the result itself warns: {what}"
    heat = meta.get("thermal_monitor")
    warm = heat.get("non_nominal_observed") if heat else None
    if heat and warm and warm.value is True:
        yield f"mlx-chronos: the machine was {heat['worst_state'].text()} hot at its hottest"


_WARNINGS = {
    "word_fallback_warning": "tokens were counted as words in part",
    "memory_pressure_warning": "the machine swapped during the run",
    "sustained_throttling_warning": "throughput was not steady while the machine was hot",
    "cached_ttft_warning": "the TTFT of cached prompts is close to that of cold ones",
}
_ABSENT = {
    "prefill": "prompts are short and their tokens mostly not told: TTFT is what there is",
    "tpot": "its decode rate is the same figure turned over",
    "e2e": "the time of a request is told of the throughput trials only, over whatever length they had",
    "peak_memory": "ram_peak_gb is resident memory, which misses what Metal allocates, or that of the whole Mac;"
    " system_ram_peak_gb holds every program that ran",
}
_NOTES = (
    "mlx-chronos: decode is timed to the end of the stream, not to the last token, so it reads a little low; its"
    " tokens_per_second is over the whole request and is not read",
    "mlx-chronos: TTFT and decode are of different requests; memory, order of the arms and which switches ran are not"
    " told",
)
FORMAT = Format(title="a result of mlx-chronos run", recognises=recognises, read=read)
