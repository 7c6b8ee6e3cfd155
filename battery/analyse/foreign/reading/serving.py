"""What vLLM's and SGLang's serving benchmarks write alike: means in milliseconds, and with details a list per request.

Means are over the requests that ended well. TPOT is (latency − TTFT) / (N − 1), over requests with two tokens or more;
latency ends with the last event, so it is that of the last token. A mean of 0 is how both write that nothing was
measured: it is taken for missing. With details, ttfts and the gaps itls are in seconds, and a request that failed has a
time to first token of 0 or an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime

from battery.analyse.foreign.reading.document import Node, agree, mean
from battery.analyse.foreign.reading.taken import Load, Run, Value, nothing
from battery.ledger.errors import InputError

DETAILS = ("input_lens", "output_lens", "ttfts", "itls")
_SLACK = 5.0
"""How many times what its requests took a run of one request at a time may last before a unit is doubted."""


def run(node: Node, failed: int | None, started: datetime | None = None) -> Run:
    """One result: its requests where they are told, else their means."""
    completed = node["completed"].count()
    if not completed:
        raise nothing(node.at, failed)
    load = load_of(node)
    if node.has(*DETAILS):
        values, lengths, lost = _requests(node, load)
        return Run(
            load=load,
            started=started,
            values=tuple(values),
            requests=len(lengths),
            failed=lost,
            lengths=lengths,
        )
    values = tuple(_means(node, completed))
    if not values:
        raise nothing(node.at, failed)
    _one_at_a_time(node, load, completed)
    return Run(load=load, started=started, values=values, requests=completed, failed=failed)


def load_of(node: Node) -> Load:
    """Requests at a time and a second; both tools write null or infinity for no limit."""
    streams, rate = node.get("max_concurrency"), node.get("request_rate")
    limit = (streams.count() if streams else 0) or math.inf
    if rate is None or rate.value in ("inf", math.inf):
        return Load(limit)
    if rate.value == "trace":
        raise InputError(
            f"{rate.at}: requests were sent at the times of a trace: not one load, which nothing can be set beside"
        )
    return Load(limit, rate.positive())


def _means(node: Node, completed: int) -> Iterator[Value]:
    """The values of a result without details."""
    context, tokens = told_context(node, completed), _tokens(node, completed)
    for metric, key in (
        ("ttft", "mean_ttft_ms"),
        ("tpot", "mean_tpot_ms"),
        ("e2e", "mean_e2el_ms"),
        ("e2e", "mean_e2e_latency_ms"),
    ):
        told = node.get(key)
        if told is not None and told.number() != 0:
            yield Value(
                metric=metric,
                value=told.positive() / 1e3,
                context=context,
                tokens=tokens,
                n=completed,
            )


def told_context(node: Node, completed: int) -> int | None:
    """Mean prompt tokens of a request, rounded."""
    total = node.get("total_input_tokens")
    return round(total.count() / completed) if total else None


def _tokens(node: Node, completed: int) -> int | None:
    """Generated tokens of a request, where all may have as many."""
    total = node.get("total_output_tokens")
    each = total.count() / completed if total else 0.0
    return int(each) if each and each == int(each) else None


def _one_at_a_time(node: Node, load: Load, completed: int) -> None:
    """InputError where requests sent one after another took another time than the whole run: milliseconds are none."""
    ttft, tpot, duration = node.get("mean_ttft_ms"), node.get("mean_tpot_ms"), node.get("duration")
    total = node.get("total_output_tokens")
    if not (load.alone and math.isinf(load.rate) and ttft and tpot and duration and total):
        return
    gaps = max(0.0, total.number() / completed - 1)
    own = completed * (ttft.number() + gaps * tpot.number()) / 1e3
    whole = duration.positive()
    if not whole / _SLACK <= own <= whole * 1.05:
        raise InputError(
            f"{ttft.at}: by mean_ttft_ms and mean_tpot_ms its {completed} requests, one after another, took"
            f" {own:.3g} s, and the run {whole:.3g} s: a unit was mistaken, or the file was changed"
        )


def _requests(node: Node, load: Load) -> tuple[list[Value], tuple[int, ...], int]:
    """Values of every request that ended well, their prompt tokens, and how many others there are."""
    columns = {key: node[key].items() for key in DETAILS}
    counts = {key: len(column) for key, column in columns.items()}
    if len(set(counts.values())) != 1:
        told = ", ".join(f"{count} {key}" for key, count in counts.items())
        raise InputError(f"{node.at}: {told}: every request has one of each")
    errors = node.get("errors")
    broken = [bool(one.value) for one in errors.items()] if errors else []
    kept: list[tuple[int, list[Node]]] = []
    for place, cells in enumerate(zip(*columns.values(), strict=True)):
        _, made, first, _ = cells
        if first.number() > 0 and made.count() > 0 and not any(broken[place : place + 1]):
            kept.append((place, list(cells)))
    lost = counts["ttfts"] - len(kept)
    if not kept:
        raise nothing(node.at, lost)
    told_mean = node.get("mean_ttft_ms")
    if told_mean:
        agree(
            told_mean,
            1e3 * mean([cells[2].positive() for _, cells in kept]),
            "the mean of ttfts in milliseconds",
        )
    lengths = tuple(cells[0].count() for _, cells in kept)
    context = round(mean(lengths))
    values = [value for place, cells in kept for value in _one(place, cells[1:], context, load)]
    return values, lengths, lost


def _one(place: int, cells: Sequence[Node], context: int, load: Load) -> Iterator[Value]:
    """The values of one request."""
    tokens, first = cells[0].count(), cells[1].positive()
    gaps = [gap.number() for gap in cells[2].items()]
    span = math.fsum(gaps)

    def value(metric: str, figure: float) -> Value:
        return Value(
            metric=metric, value=figure, context=context, seed=f"request {place + 1}", tokens=tokens
        )

    yield value("ttft", first)
    yield value("e2e", first + span)
    if tokens > 1 and span > 0:
        yield value("tpot", span / (tokens - 1))
        if load.alone:
            yield value("decode", (tokens - 1) / span)
