"""guidellm run --output kind=json: every request with its stamps, or where none are kept the means over them.

One run for each benchmark of the report. What is read of a request: time_to_first_token_ms; inter_token_latency_ms =
(last − first token) / (N − 1), which is our TPOT, while its time_per_output_token_ms is (last token − start) / N with
the first token in it and is not read; request_latency, in seconds, to the end of the response. Prefill is prompt tokens
/ TTFT, where the server said that none were cached. Its own summaries are percentiles over requests of all kinds: not
read where single requests are there.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from datetime import datetime

from battery.analyse.foreign.formats import Format
from battery.analyse.foreign.reading.document import Document, Node, mean
from battery.analyse.foreign.reading.taken import Load, Run, Taken, Value, epoch, nothing
from battery.ledger.errors import InputError

_LAYOUT = 2
_SLACK = 1.02
"""How much later than its response a request's last token may seem, for rounding."""
_SHORTEST = 0.02
"""Share of a response's time that its tokens take at least, or a unit is doubted."""


def recognises(found: Document) -> bool:
    """Whether it is one report of guidellm."""
    if len(found.nodes) != 1 or not found.all("benchmarks", "metadata"):
        return False
    metadata = found.nodes[0].get("metadata")
    return metadata is not None and metadata.has("guidellm_version")


def read(found: Document) -> Taken:
    """A run for every benchmark of the report."""
    report = found.nodes[0]
    metadata = report["metadata"]
    layout = metadata.get("version")
    if layout is None or layout.count() != _LAYOUT:
        said = layout.value if layout else "none"
        raise InputError(
            f"{metadata.at}: layout {said} of guidellm's report, and layout {_LAYOUT} is known; write it with guidellm"
            " 0.8, or as a CSV"
        )
    benchmarks = report["benchmarks"].items()
    if not benchmarks:
        raise nothing(report.at, None)
    return Taken(
        runs=tuple(map(_run, benchmarks)), version=metadata["guidellm_version"].text(), absent=_ABSENT, notes=_NOTES
    )  # fmt: skip


def _run(node: Node) -> Run:
    """One benchmark."""
    totals = node["metrics"]["request_totals"]
    well = totals["successful"].count()
    failed = totals["errored"].count() + totals["incomplete"].count()
    if not well:
        raise nothing(node.at, failed)
    load = _load(node["config"]["strategy"])
    kept = node["requests"].get("successful")
    requests = kept.items() if kept else []
    if not requests:
        return Run(
            load=load, started=_started(node), values=tuple(_means(node["metrics"], well)),
            requests=well, failed=failed,
            notes=("guidellm: a report without single requests is read by its means: one value, nothing paired",),
        )  # fmt: skip
    requests.sort(key=lambda one: one["request_start_time"].number())
    lengths = tuple(one["prompt_tokens"].count() for one in requests)
    context = round(mean(lengths)) or None
    values = [
        value
        for place, one in enumerate(requests, start=1)
        for value in _values(one, f"request {place}", context, load)
    ]
    return Run(
        load=load, started=_started(node), values=tuple(values), requests=well, failed=failed, lengths=lengths,
        notes=tuple(_notes(requests, well)),
    )  # fmt: skip


def _notes(requests: Sequence[Node], well: int) -> Iterator[str]:
    """What is not told of some of the requests."""
    if len(requests) < well:
        yield f"guidellm: {len(requests)} of {well} requests are kept in the report"
    whole = sum(one.get("time_to_first_token_ms") is None for one in requests)
    if whole:
        yield (
            f"guidellm: {whole} of {len(requests)} requests have no first token, as those that were not streamed: e2e"
            " is all that is read of them"
        )


def _started(node: Node) -> datetime | None:
    """When its first request left."""
    told = node.get("start_time")
    return epoch(told.number()) if told else None


def _load(strategy: Node) -> Load | None:
    """Requests at a time and a second, from the strategy."""
    kind = strategy["type_"].text()
    streams, rate = strategy.get("streams"), strategy.get("rate")
    if kind == "synchronous":
        return Load(1)
    if kind == "concurrent" and streams:
        return Load(streams.count())
    if rate:
        return Load(math.inf, rate.positive())
    return Load(math.inf) if kind == "throughput" else None


def _values(node: Node, place: str, context: int | None, load: Load | None) -> Iterator[Value]:
    """What is told of one request."""
    latency, tokens = node["request_latency"].positive(), node["output_tokens"].count()
    first, gap = node.get("time_to_first_token_ms"), node.get("inter_token_latency_ms")
    seed = _seed(node) or place

    def value(metric: str, figure: float) -> Value:
        return Value(metric=metric, value=figure, context=context, seed=seed, tokens=tokens or None)

    yield value("e2e", latency)
    if not tokens or first is None:
        return
    ttft = first.positive() / 1e3
    span = gap.waited() / 1e3 * (tokens - 1) if gap else 0.0
    if not latency * _SHORTEST <= ttft + span <= latency * _SLACK:
        raise InputError(
            f"{node.at}: first token and gaps make {ttft + span:.3g} s of a response of {latency:.3g} s: a unit was"
            " mistaken, or the file was changed"
        )
    yield value("ttft", ttft)
    cached = node.get("cached_tokens")
    prompt = node["prompt_tokens"].count()
    if load and load.alone and prompt and cached is not None and not cached.count():
        yield value("prefill", prompt / ttft)
    if gap and tokens > 1 and span > 0:
        yield value("tpot", gap.positive() / 1e3)
        if load and load.alone:
            yield value("decode", (tokens - 1) / span)


def _seed(node: Node) -> str | None:
    """A digest of what was asked, by which the same prompt is found in other reports; None where it is not kept."""
    told = node.get("request_args")
    if told is None:
        return None
    try:
        body = json.loads(told.value)["body"]
        asked = body.get("messages") or body["prompt"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    written = json.dumps(asked, sort_keys=True)
    return f"prompt {hashlib.sha256(written.encode()).hexdigest()[:10]}"


def _means(metrics: Node, well: int) -> Iterator[Value]:
    """The means over all requests that ended well."""
    prompts = _mean(metrics, "prompt_token_count")
    context = round(prompts.positive()) if prompts else None
    for metric, key, per in (
        ("ttft", "time_to_first_token_ms", 1e3),
        ("tpot", "inter_token_latency_ms", 1e3),
        ("e2e", "request_latency", 1.0),
    ):
        told = _mean(metrics, key)
        # a mean of 0 is that of a list of nothing
        if told is not None and told.number() != 0:
            yield Value(metric=metric, value=told.positive() / per, context=context, n=well)


def _mean(metrics: Node, key: str) -> Node | None:
    """The mean of a metric over the requests that ended well."""
    found = metrics.get(key)
    well = found.get("successful") if found else None
    return well.get("mean") if well else None


_ABSENT = {
    "ttft": "answers that were not streamed have no first token",
    "tpot": "answers of one token, or that were not streamed, have no gaps",
    "decode": "requests that share the engine have no decode rate of their own, and means keep no rate: TPOT is told",
    "prefill": "TTFT of requests that share the engine holds their queue, and a prompt whose cached tokens are not told"
    " may not have been processed",
    "peak_memory": "guidellm does not look at the server's memory",
}
_NOTES = (
    "guidellm: no warm-up is left out unless the profile asks for one, so the first request of a launch is measured"
    " with the rest; what failed is in none of the figures",
    "guidellm: the same prompt is told by a digest of what was asked; requests are those that its report kept, and its"
    " percentiles are not read",
)
FORMAT = Format(title="guidellm run --output kind=json", recognises=recognises, read=read)
