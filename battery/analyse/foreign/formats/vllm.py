"""vllm bench serve --save-result: means over the requests, or with --save-detailed every request.

Made from the benchmark's documented keys; serving.py tells what they mean. With --append-result a file holds an object
a line, each a run of its own.
"""

from __future__ import annotations

from battery.analyse.foreign.formats import Format
from battery.analyse.foreign.reading.document import Document, Node
from battery.analyse.foreign.reading.serving import DETAILS, run
from battery.analyse.foreign.reading.taken import Run, Taken, moment

_KEYS = ("mean_ttft_ms", "completed", "num_prompts", "duration", "total_input_tokens")


def recognises(found: Document) -> bool:
    """Whether every object is a result of vLLM's; SGLang's counts its tokens a second time."""
    return found.all(*_KEYS) and not any(
        node.has("total_output_tokens_retokenized") for node in found.nodes
    )


def read(found: Document) -> Taken:
    """A run for every object."""
    detailed = all(node.has(*DETAILS) for node in found.nodes)
    return Taken(
        runs=tuple(map(_run, found.nodes)), absent=_absent(detailed), notes=_NOTES if detailed else (*_NOTES, *_MEANS)
    )  # fmt: skip


def _run(node: Node) -> Run:
    """One result."""
    date, failed = node.get("date"), node.get("failed")
    lost = (
        failed.count()
        if failed
        else max(0, node["num_prompts"].count() - node["completed"].count())
    )
    return run(node, lost, moment(date.text(), "%Y%m%d-%H%M%S") if date else None)


def _absent(detailed: bool) -> dict[str, str]:
    """Why metrics are missing."""
    decode = (
        "requests that share the engine have no decode rate of their own; tokens a second over all of them are"
        " throughput"
        if detailed
        else "only mean times are kept, and the inverse of a mean time is no mean rate: TPOT tells the same"
    )
    return {
        "decode": decode,
        "prefill": "total input tokens over the whole run are no prefill rate, and how many were cached is not told",
        "peak_memory": "vllm bench serve does not look at the server's memory",
        "acceptance": "drafts are told for the server, not for these requests",
    }


_NOTES = (
    "vLLM: the first event with choices counts as the first token, an opener without text too, so TTFT may read low and"
    " TPOT, which leaves the first token out, high",
    "vLLM: the end of a request is its last event with choices, not its last byte; e2e is told to there",
    "vLLM: whether prompts were cached, which switches ran, and how warm the server was is not told; with a fixed seed"
    " a second run finds the prompts of the first in the cache",
)
_MEANS = (
    "vLLM: only means and percentiles of the requests are kept: nothing can be paired or resampled, and a file is one"
    " value; its percentiles are not read",
)
FORMAT = Format(title="vllm bench serve --save-result", recognises=recognises, read=read)
