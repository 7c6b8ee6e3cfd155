"""sglang.bench_serving --output-file: an object a line, each a run; with --output-details every request.

Made from the benchmark's documented keys; serving.py tells what they mean. The tool appends, so one file may hold the
runs of a day: those of the same context are rounds.
"""

from __future__ import annotations

from battery.analyse.foreign.formats import Format
from battery.analyse.foreign.reading.document import Document
from battery.analyse.foreign.reading.serving import DETAILS, run
from battery.analyse.foreign.reading.taken import Taken

_KEYS = ("mean_ttft_ms", "completed", "total_output_tokens_retokenized", "duration")


def recognises(found: Document) -> bool:
    """Whether every object is a result of SGLang's benchmark."""
    return found.all(*_KEYS)


def read(found: Document) -> Taken:
    """A run for every line."""
    detailed = all(node.has(*DETAILS) for node in found.nodes)
    runs = []
    for node in found.nodes:
        failed = node.get("failed")
        runs.append(run(node, failed.count() if failed else None))
    return Taken(
        runs=tuple(runs), absent=_absent(detailed), notes=_NOTES if detailed else (*_NOTES, *_MEANS)
    )  # fmt: skip


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
        "prefill": "input tokens over the whole run are no prefill rate, and how many were cached is not told",
        "peak_memory": "bench_serving does not look at the server's memory",
        "tokens_per_step": "accept_length is the server's mean since it started, not that of this run",
        "acceptance": "accept_length is the server's mean since it started, not that of this run",
    }


_NOTES = (
    "SGLang: every request opens a connection of its own, and connecting is inside TTFT",
    "SGLang: the gaps of one event are shared among its tokens; the end of a request is its last event, not its last"
    " byte",
    "SGLang: no stamp tells when a line was written, so the order of the runs is that of the lines; whether the server"
    " was started again between them, whether prompts were cached and which switches ran is not told",
)
_MEANS = (
    "SGLang: only means and percentiles of the requests are kept: nothing can be paired or resampled, and a line is one"
    " value; its percentiles are not read, and requests that failed are in none of them",
)
FORMAT = Format(title="sglang.bench_serving --output-file", recognises=recognises, read=read)
