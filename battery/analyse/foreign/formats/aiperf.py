"""aiperf profile: profile_export.jsonl, a record a request, or profile_export_aiperf.json, the means over them.

Every figure has its unit beside it, and is converted by that. Read: time_to_first_token; inter_token_latency =
(latency − TTFT) / (OSL − 1), our TPOT; request_latency, to the last response; prefill is input tokens / TTFT, where the
server said that no prompt token was cached. Records of the warm-up phase are left out. The records do not say how many
requests ran at a time: it is counted from their stamps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from battery.analyse.foreign.formats import Format
from battery.analyse.foreign.reading.document import Document, Node, agree, mean
from battery.analyse.foreign.reading.taken import Load, Run, Taken, Value, epoch, moment, nothing
from battery.ledger.errors import InputError

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
_TIMES = (
    ("ttft", "time_to_first_token"), ("tpot", "inter_token_latency"), ("e2e", "request_latency"),
)  # fmt: skip


def recognises(found: Document) -> bool:
    """Whether it is an export of AIPerf, of either kind."""
    if _is_summary(found):
        return True
    told = [node.get("metadata") for node in found.nodes]
    return found.all("metadata", "metrics") and all(
        one and one.has("benchmark_phase") for one in told
    )


def _is_summary(found: Document) -> bool:
    """Whether it holds the means."""
    return len(found.nodes) == 1 and found.all("aiperf_version")


def read(found: Document) -> Taken:
    """The one run of either export."""
    if _is_summary(found):
        node = found.nodes[0]
        return Taken(
            runs=(_summary(node),), version=node["aiperf_version"].text(), absent=_ABSENT, notes=(*_NOTES, *_MEANS)
        )  # fmt: skip
    return Taken(runs=(_records(found.nodes),), absent=_ABSENT, notes=(*_NOTES, *_RECORDS))


def _records(nodes: Sequence[Node]) -> Run:
    """All records of the timed phase."""
    timed = [node for node in nodes if node["metadata"]["benchmark_phase"].text() == "profiling"]
    well = [node for node in timed if not node.get("error") and not _cancelled(node)]
    failed = len(timed) - len(well)
    if not well:
        raise nothing(nodes[0].file.rpartition(":")[0] or nodes[0].file, failed)
    load = Load(_at_a_time(timed))
    lengths = tuple(_whole(node["metrics"], "input_sequence_length") for node in well)
    context = round(mean(lengths)) or None
    values = [value for node in well for value in _values(node, context, load)]
    started = epoch(min(node["metadata"]["request_start_ns"].number() for node in timed) / 1e9)
    return Run(
        load=load, started=started, values=tuple(values), requests=len(well), failed=failed, lengths=lengths,
        notes=(f"AIPerf: {len(nodes) - len(timed)} records of the warm-up are left out",),
    )  # fmt: skip


def _cancelled(node: Node) -> bool:
    """Whether the tool gave a request up."""
    told = node["metadata"].get("was_cancelled")
    return bool(told and told.value)


def _at_a_time(nodes: Sequence[Node]) -> int:
    """Most requests that were under way together, by their stamps; one that ends as another begins is over."""
    edges: list[tuple[float, int]] = []
    for node in nodes:
        began, ended = (node["metadata"][f"request_{edge}_ns"] for edge in ("start", "end"))
        if ended.number() < began.number():
            raise InputError(
                f"{ended.at}: a request that ended before it began; the stamps are wrong"
            )
        edges += [(began.number(), 1), (ended.number(), -1)]
    return max(itertools.accumulate(step for _, step in sorted(edges)), default=0)


def _values(node: Node, context: int | None, load: Load) -> Iterator[Value]:
    """What is told of one request."""
    metrics, metadata = node["metrics"], node["metadata"]
    tokens = _whole(metrics, "output_sequence_length")
    turn = metadata.get("turn_index")
    seed = f"{metadata['conversation_id'].text()} turn {turn.count() if turn else 0}"

    def value(metric: str, figure: float) -> Value:
        return Value(metric=metric, value=figure, context=context, seed=seed, tokens=tokens or None)

    times = {
        metric: _seconds(told, "value") for metric, key in _TIMES if (told := metrics.get(key)) is not None
    }  # fmt: skip
    if len(times) == len(_TIMES) and tokens > 1:
        wanted = (times["ttft"] + (tokens - 1) * times["tpot"]) / _SECONDS[
            metrics["request_latency"]["unit"].text()
        ]
        agree(metrics["request_latency"]["value"], wanted, "first token and gaps together")
    for metric, figure in times.items():
        yield value(metric, figure)
    cached, first = metrics.get("usage_prompt_cache_read_tokens"), metrics.get(_TIMES[0][1])
    prompt = _whole(metrics, "input_sequence_length")
    if load.alone and first and prompt and cached is not None and not cached["value"].count():
        yield value("prefill", prompt / _seconds(first, "value"))
    gap = metrics.get(_TIMES[1][1])
    if load.alone and gap and tokens > 1:
        yield value("decode", 1 / _seconds(gap, "value"))


def _seconds(told: Node, key: str) -> float:
    """A time in seconds, by the unit that stands beside it."""
    unit = told["unit"].text()
    if unit not in _SECONDS:
        raise InputError(
            f"{told.at}.unit: '{unit}' is no unit of time; known: {', '.join(_SECONDS)}"
        )
    return told[key].positive() * _SECONDS[unit]


def _whole(metrics: Node, key: str) -> int:
    """A number of tokens."""
    return metrics[key]["value"].count()


def _summary(node: Node) -> Run:
    """The means over all requests that ended well."""
    count, lost = node["request_count"]["avg"].count(), node.get("error_request_count")
    failed = lost["avg"].count() if lost else 0
    if not count:
        raise nothing(node.at, failed)
    load, prompts = _declared(node), node.get("input_sequence_length")
    made = node.get("output_sequence_length")
    tokens = round(made["avg"].positive()) if made else None
    values = [
        Value(
            metric=metric, value=_seconds(told, "avg"), context=round(prompts["avg"].positive()) if prompts else None,
            tokens=tokens, n=count, low=_seconds(told, "min"), high=_seconds(told, "max"),
        )
        for metric, key in _TIMES
        if (told := node.get(key)) is not None
    ]  # fmt: skip
    rate = node.get("output_token_throughput_per_user")
    if rate and load and load.alone:
        low, high = rate["min"].positive(), rate["max"].positive()
        values.append(
            Value(
                metric="decode", value=rate["avg"].positive(), context=values[0].context if values else None,
                tokens=tokens, n=count, low=low, high=high,
            )
        )  # fmt: skip
    if not values:
        raise nothing(node.at, failed)
    start = node.get("start_time")
    whole = node.get("is_complete")
    return Run(
        load=load, started=moment(start.text()) if start else None, values=tuple(values), requests=count, failed=failed,
        notes=("AIPerf: the run was cut short, by its own word",) if whole and whole.value is not True else (),
    )  # fmt: skip


def _declared(node: Node) -> Load | None:
    """The load that was asked for in the timed phase."""
    config = node.get("input_config")
    phases = config.get("phases") if config else None
    for phase in phases.items() if phases else []:
        kind = phase.get("kind")
        if kind and kind.value == "profiling":
            streams, rate = phase.get("concurrency"), phase.get("request_rate") or phase.get("rate")
            if streams or rate:
                limit = streams.positive() if streams else float("inf")
                return Load(limit, rate.positive()) if rate else Load(limit)
    return None


_ABSENT = {
    "decode": "requests that share the engine have no decode rate of their own: TPOT is told",
    "prefill": "it is input tokens / TTFT where each request was alone and the server said that none of them were"
    " cached; the means do not say so of each",
    "peak_memory": "AIPerf does not look at the server's memory, only, where asked, at the GPU's",
}
_NOTES = (
    "AIPerf: a request ends with its last response, not with its last byte; several tokens of one event count as one"
    " gap between chunks, and TPOT is shared among all tokens",
    "AIPerf: the same conversation in two exports is the same prompt only where both were made with the same"
    " --random-seed and data; engagement of switches is not told",
)
_RECORDS = (
    "AIPerf: an export of records does not tell how many there should be: one that was cut between two lines reads as a"
    " shorter run",
)
_MEANS = (
    "AIPerf: the export of means holds nothing that could be paired or resampled: a file is one value, its generated"
    " tokens are their mean too (profile_export.jsonl has the requests)",
)
FORMAT = Format(
    title="aiperf profile: profile_export.jsonl or profile_export_aiperf.json", recognises=recognises, read=read
)  # fmt: skip
