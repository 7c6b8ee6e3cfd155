"""vllm bench serve --save-result: means over the requests, or with --save-detailed every request.

Made from the benchmark's documented keys; serving.py tells what they mean. With --append-result a file holds an object
a line, each a run of its own.
"""

from __future__ import annotations

import msgspec

from battery.analyse.foreign.formats import Format
from battery.analyse.foreign.reading.document import Document, Node
from battery.analyse.foreign.reading.serving import ABSENT, DETAILS, no_decode, notes, run
from battery.analyse.foreign.reading.taken import Run, Taken, moment

_KEYS = ("completed", "num_prompts", "duration", "total_input_tokens", "total_output_tokens")

_SETTINGS = ("backend", "model_id", "tokenizer_id", "burstiness")


def recognises(found: Document) -> bool:
    """Whether every object is a result of vLLM's; SGLang's counts its tokens a second time."""
    return found.all(*_KEYS) and not any(
        node.has("total_output_tokens_retokenized") for node in found.nodes
    )


def read(found: Document) -> Taken:
    """A run for every object."""
    detailed = all(node.has(*DETAILS) for node in found.nodes)
    return Taken(
        runs=tuple(map(_run, found.nodes)), absent={**_ABSENT, "decode": no_decode(detailed)},
        notes=(*_NOTES, *notes("vLLM", detailed)),
    )  # fmt: skip


def _run(node: Node) -> Run:
    """One result."""
    date, failed = node.get("date"), node.get("failed")
    told = run(
        node,
        failed.count() if failed else None,
        moment(date.text(), "%Y%m%d-%H%M%S") if date else None,
        _SETTINGS,
    )
    missing = node["num_prompts"].count() - (told.requests or 0)
    if told.failed is not None or missing <= 0:
        return told
    note = f"vLLM: {missing} requests that were asked for have no result; whether they failed is not told"
    return msgspec.structs.replace(told, notes=(*told.notes, note))


_ABSENT = {
    **ABSENT,
    "prefill": "total input tokens over the whole run are no prefill rate, and how many were cached is not told",
    "e2e": "a mean_e2el_ms is written with --percentile-metrics ttft,tpot,itl,e2el only",
    "acceptance": "drafts are counted by the server, for whoever asked it during the run, and are not read",
    "tokens_per_step": "drafts are counted by the server, for whoever asked it during the run, and are not read",
}
_NOTES = (
    "vLLM: the first event with choices counts as the first token, an opener without text too, so TTFT may read low and"
    " TPOT, which leaves the first token out, high",
    "vLLM: the end of a request is its last event with choices, not its last byte; e2e is told to there, and begins"
    " when the request is sent, after any queue of --max-concurrency",
    "vLLM: the stamp of a result is when it was written, at the end of its run; with timed_trace data, which no key"
    " tells, requests were sent at the times of a trace",
    "vLLM: whether prompts were cached, which switches ran, and how warm the server was is not told; with a fixed seed"
    " a second run finds the prompts of the first in the cache",
)
FORMAT = Format(title="vllm bench serve --save-result", recognises=recognises, read=read)
