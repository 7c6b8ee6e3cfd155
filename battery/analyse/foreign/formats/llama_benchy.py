"""llama-benchy --save-result --format json: rates and times of every run, for each prompt size and depth.

Read: tg_req_throughput, tokens after the first / (last − first token), our decode, where one request ran at a time;
e2e_ttft in milliseconds; and the prefill pp_req_throughput = prompt tokens / (ttfr − latency). `ttfr` is the time to
the first *response*, and a server that opens its stream with the role alone answers long before it has read the prompt:
where the first token came much later the rate is none, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from battery.analyse.foreign.formats import Format
from battery.analyse.foreign.reading.document import Document, Node, agree, mean
from battery.analyse.foreign.reading.settings import made_with
from battery.analyse.foreign.reading.taken import Load, Run, Taken, Value, moment, nothing, several

_OPENER = 1.1
"""How much later than the first response the first token may come for it to be the response."""
_ROUNDED = 1e-6


def recognises(found: Document) -> bool:
    """Whether it is one report of llama-benchy."""
    return len(found.nodes) == 1 and found.all(
        "latency_mode", "prefix_caching_enabled", "benchmarks"
    )


def read(found: Document) -> Taken:
    """A run for each number of requests at a time."""
    report = found.nodes[0]
    tests = report["benchmarks"].items()
    warm = report["prefix_caching_enabled"].value is True
    started = moment(report["timestamp"].text())
    settings = made_with(report, ("model", "latency_mode", "prefix_caching_enabled"))
    loads = dict.fromkeys(node["concurrency"].count() for node in tests)
    runs = []
    for streams in loads:
        own = [node for node in tests if node["concurrency"].count() == streams]
        values = tuple(value for node in own for value in _values(node, warm))
        runs.append(Run(load=Load(streams), started=started, values=values, settings=settings))
    if not any(run.values for run in runs):
        raise nothing(report.at, None)
    return Taken(
        runs=tuple(run for run in runs if run.values), version=report["version"].text(), absent=_ABSENT,
        notes=(*_NOTES, *_openers(tests), *([_WARM] if warm else [])),
    )  # fmt: skip


def _values(node: Node, warm: bool) -> Iterator[Value]:
    """The means of one prompt size, depth and load."""
    context = node["context_size"].count()
    loads_context = node["is_context_prefill_phase"].value is True
    if not loads_context:
        context += node["prompt_size"].count()
    # behind a context that an earlier request left in the cache no prompt is processed whole
    cold = loads_context or not (warm and node["context_size"].count())
    first = _metric(node, "e2e_ttft")
    if first and cold:
        yield several("ttft", [one / 1e3 for one in first], context)
    if node["concurrency"].count() != 1:
        return
    prefill = _metric(node, "pp_req_throughput")
    if prefill and cold and not _opened_early(node):
        yield several("prefill", prefill, context)
    decode = _metric(node, "tg_req_throughput")
    if decode:
        yield several("decode", decode, context, asked=node["response_size"].count())


def _metric(node: Node, key: str) -> list[float]:
    """The values of the single runs, held against their mean; none where the tool has none."""
    kept = node.get(key)
    if kept is None:
        return []
    values = [one.positive() for one in kept["values"].items()]
    if values:
        agree(kept["mean"], mean(values), "the mean of its values", _ROUNDED)
    return values


def _opened_early(node: Node) -> bool:
    """Whether the first response was no token: the role alone, sent before the prompt was read."""
    response, token = _metric(node, "ttfr"), _metric(node, "e2e_ttft")
    return not (response and token) or mean(token) > _OPENER * mean(response)


def _openers(tests: list[Node]) -> list[str]:
    """That some prefill rates are none."""
    early = sum(bool(node.get("ttfr")) and _opened_early(node) for node in tests)
    if not early:
        return []
    return [
        f"llama-benchy: in {early} of {len(tests)} tests the first response came well before the first token, so it was"
        " the opener of the stream: the prefill rate that was computed from it is none, and is left out"
    ]


_ABSENT = {
    "prefill": "the rate is taken to the first response, and that was no token",
    "decode": "requests that share the engine have no decode rate of their own; tokens a second over all of them are"
    " throughput",
    "tpot": "its decode rate is the same figure turned over",
    "e2e": "llama-benchy keeps no time of whole requests",
    "peak_memory": "llama-benchy does not look at the server's memory",
}
_NOTES = (
    "llama-benchy: sizes of contexts are those that were asked for; the prompts that were sent differ from them by the"
    " chat template and by cuts between tokens",
    "llama-benchy: prompts are cut out of one book at random, others in every run, so no prompt is found in two files"
    " and one mean of the runs is taken; what makes them differ stands at their end, so a beginning may be cached",
    "llama-benchy: a warm-up run is left out unless --no-warmup was said, which the file does not tell, nor how many"
    " requests failed: it leaves them out; generated tokens are those that were asked for, not counted",
)
_WARM = (
    "llama-benchy: with prefix caching on, requests behind a loaded context are warm: their TTFT and prefill are left"
    " out, those of loading the context are kept"
)
FORMAT = Format(title="llama-benchy --save-result --format json", recognises=recognises, read=read)
