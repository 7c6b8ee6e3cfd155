"""What vLLM's and SGLang's serving benchmarks write alike: means in milliseconds, and with details a list per request.

Means are over the requests that ended well. TPOT is (latency − TTFT) / (N − 1), over requests with two tokens or more;
latency ends with the last event. A mean of 0 is how both write that nothing was measured: it is taken for missing. With
details, ttfts and the gaps itls are in seconds, and a request that failed has a time to first token of 0 or an error.
An answer that was not streamed has the time of the whole of it for its TTFT: that one is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from battery.analyse.foreign.reading.document import Node, agree, mean
from battery.analyse.foreign.reading.settings import made_with
from battery.analyse.foreign.reading.taken import Load, Run, Value, nothing
from battery.ledger.errors import InputError

DETAILS = ("input_lens", "output_lens", "ttfts", "itls")
_SLIP = 100.0
"""How many times two figures that should be near may differ before a unit is doubted: a slip is a thousand times."""
_AT_ONCE = 1e-5
"""Seconds a token below which an answer came in one piece: it was not streamed."""


def run(
    node: Node, failed: int | None, started: datetime | None = None, settings: Sequence[str] = ()
) -> Run:
    """One result: its requests where they are told, else their means; `settings`: keys of how it was made."""
    made = made_with(node, settings)
    completed = node["completed"].count()
    if not completed:
        raise nothing(node.at, failed)
    load = load_of(node)
    if node.has(*DETAILS):
        return _requests(node, load, started, made)
    whole = _in_one_piece(node, completed)
    values = tuple(_means(node, completed, whole))
    if not values:
        raise nothing(node.at, failed)
    _one_at_a_time(node, load, completed)
    return Run(
        load=load, started=started, values=values, requests=completed, failed=failed, settings=made,
        notes=(WHOLE,) if whole else (),
    )  # fmt: skip


def load_of(node: Node) -> Load:
    """Requests at a time and a second; both tools write null or infinity for no limit."""
    ramp, probes = node.get("ramp_up_strategy"), node.get("probe_completed")
    if ramp:
        raise InputError(
            f"{ramp.at}: requests were sent faster and faster: not one load, which nothing can be set beside"
        )
    if probes and probes.count():
        raise InputError(
            f"{probes.at}: probes ran beside the requests, and share the engine with them: not the load that is told;"
            " measure without --probe-request-rate"
        )
    streams, rate = node.get("max_concurrency"), node.get("request_rate")
    limit = (streams.count() if streams else 0) or math.inf
    if rate is None or rate.value in ("inf", math.inf):
        return Load(limit)
    if rate.value == "trace":
        raise InputError(
            f"{rate.at}: requests were sent at the times of a trace: not one load, which nothing can be set beside"
        )
    return Load(limit, rate.positive())


def _in_one_piece(node: Node, completed: int) -> bool:
    """Whether no time went by between the first token and the last of answers that have several."""
    tpot, total = node.get("mean_tpot_ms"), node.get("total_output_tokens")
    if not (tpot and total) or total.count() <= completed:
        return False
    return abs(tpot.number()) / 1e3 < _AT_ONCE


def _means(node: Node, completed: int, whole: bool) -> Iterator[Value]:
    """The values of a result without details."""
    context, tokens = told_context(node, completed), _tokens(node, completed)
    for metric, key in (
        ("ttft", "mean_ttft_ms"), ("tpot", "mean_tpot_ms"), ("e2e", "mean_e2el_ms"), ("e2e", "mean_e2e_latency_ms"),
    ):  # fmt: skip
        figure = node.get(key)
        if figure is None or figure.number() == 0 or (whole and metric != "e2e"):
            continue
        yield Value(
            metric=metric,
            value=figure.positive() / 1e3,
            context=context,
            tokens=tokens,
            n=completed,
        )


def told_context(node: Node, completed: int) -> int | None:
    """Mean prompt tokens of a request, rounded; SGLang writes a sum of 0 where it did not count them."""
    total = node.get("total_input_tokens")
    return (round(total.count() / completed) or None) if total else None


def _tokens(node: Node, completed: int) -> int | None:
    """Mean generated tokens of a request, rounded."""
    total = node.get("total_output_tokens")
    return (round(total.count() / completed) or None) if total else None


def _one_at_a_time(node: Node, load: Load, completed: int) -> None:
    """InputError where requests sent one after another took another time than the whole run: milliseconds are none."""
    ttft, tpot, duration = node.get("mean_ttft_ms"), node.get("mean_tpot_ms"), node.get("duration")
    total = node.get("total_output_tokens")
    if not (load.alone and math.isinf(load.rate) and ttft and tpot and duration and total):
        return
    gaps = max(0.0, total.number() / completed - 1)
    own = completed * (ttft.number() + gaps * tpot.number()) / 1e3
    whole = duration.positive()
    if not whole / _SLIP <= own <= whole * _SLIP:
        raise InputError(
            f"{ttft.at}: by mean_ttft_ms and mean_tpot_ms its {completed} requests, one after another, took"
            f" {own:.3g} s, and the run {whole:.3g} s: a unit was mistaken, or the file was changed"
        )


def _requests(node: Node, load: Load, started: datetime | None, made: dict[str, str]) -> Run:
    """Every request that ended well, and how many others there are."""
    kept, lost = _kept(node)
    if not kept:
        raise nothing(node.at, lost)
    lengths = tuple(one.prompt for one in kept)
    context = round(mean(lengths)) or None
    _agree(node, kept)
    whole = sum(one.whole for one in kept)
    values = tuple(value for one in kept for value in one.values(context, load))
    return Run(
        load=load, started=started, values=values, requests=len(kept), failed=lost, lengths=lengths, settings=made,
        notes=(f"{WHOLE} ({whole} of {len(kept)} requests)",) if whole else (),
    )  # fmt: skip


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request that ended well; times in seconds."""

    place: int
    prompt: int
    tokens: int
    first: float
    span: float
    """From the first token to the last event."""

    @property
    def whole(self) -> bool:
        """Whether several tokens came in one piece."""
        return self.tokens > 1 and self.span < _AT_ONCE * (self.tokens - 1)

    def values(self, context: int | None, load: Load) -> Iterator[Value]:
        """What is told of it."""

        def value(metric: str, figure: float) -> Value:
            return Value(
                metric=metric, value=figure, context=context, seed=f"request {self.place}", tokens=self.tokens
            )  # fmt: skip

        yield value("e2e", self.first + self.span)
        if self.whole:
            return
        yield value("ttft", self.first)
        if self.tokens > 1:
            yield value("tpot", self.span / (self.tokens - 1))
            if load.alone:
                yield value("decode", (self.tokens - 1) / self.span)


def _kept(node: Node) -> tuple[list[_Request], int]:
    """The requests that ended well, and the number of those that did not."""
    columns = {key: node[key].items() for key in DETAILS}
    counts = {key: len(column) for key, column in columns.items()}
    if len(set(counts.values())) != 1:
        each = ", ".join(f"{count} {key}" for key, count in counts.items())
        raise InputError(f"{node.at}: {each}: every request has one of each")
    errors = node.get("errors")
    broken = [bool(one.value) for one in errors.items()] if errors else []
    kept = []
    for place, (prompt, made, first, gaps) in enumerate(zip(*columns.values(), strict=True)):
        if first.number() > 0 and made.count() > 0 and not any(broken[place : place + 1]):
            span = math.fsum(gap.waited() for gap in gaps.items())
            kept.append(
                _Request(
                    place=place + 1, prompt=prompt.count(), tokens=made.count(), first=first.positive(), span=span
                )
            )  # fmt: skip
    return kept, counts["ttfts"] - len(kept)


def _agree(node: Node, kept: Sequence[_Request]) -> None:
    """InputError where the requests do not make the means: seconds and milliseconds were mistaken for each other."""
    ttft, tpot = node.get("mean_ttft_ms"), node.get("mean_tpot_ms")
    if ttft:
        agree(ttft, 1e3 * mean([one.first for one in kept]), "the mean of ttfts in milliseconds")
    gaps = [one.span / (one.tokens - 1) for one in kept if one.tokens > 1 and not one.whole]
    if tpot and gaps:
        # SGLang's mean has the end of the stream in it, so it is near and no more
        agree(tpot, 1e3 * mean(gaps), "the mean gap of itls in milliseconds", 1 - 1 / _SLIP)


WHOLE = "answers of several tokens came in one piece, as they do without streaming: there is no first token of theirs"
ABSENT = {
    "ttft": WHOLE,
    "tpot": "answers of one token, or that came in one piece, have no gaps",
    "peak_memory": "the benchmark does not look at the server's memory",
}
"""Why metrics are missing in the results of either."""


def no_decode(detailed: bool) -> str:
    """Why there is no decode rate."""
    if detailed:
        return (
            "requests that share the engine have no decode rate of their own; tokens a second over all of them are"
            " throughput"
        )
    return "only mean times are kept, and the inverse of a mean time is no mean rate: TPOT tells the same"


_PLACES = (
    "a request is told by its place, and the same place in two results is the same prompt only for the same data and"
    " seed"
)
_MEANS = (
    "only means and percentiles of the requests are kept: nothing can be paired or resampled, and each result is one"
    " value; generated tokens are their mean too, and percentiles are not read"
)


def notes(name: str, detailed: bool) -> tuple[str, ...]:
    """What holds for requests by their places, or for means alone."""
    return (f"{name}: {_PLACES if detailed else _MEANS}",)
