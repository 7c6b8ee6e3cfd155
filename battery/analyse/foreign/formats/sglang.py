"""sglang.bench_serving --output-file: an object a line, each a run; with --output-details every request.

Made from the benchmark's documented keys; serving.py tells what they mean. The tool appends, so one file may hold the
runs of a day: those of the same context are rounds.
"""

from __future__ import annotations

import msgspec

from battery.analyse.foreign.formats import Format
from battery.analyse.foreign.reading.document import Document, Node
from battery.analyse.foreign.reading.serving import ABSENT, DETAILS, no_decode, notes, run
from battery.analyse.foreign.reading.taken import Run, Taken

_KEYS = ("mean_ttft_ms", "completed", "total_output_tokens_retokenized", "duration")

_SETTINGS = ("backend", "dataset_name", "random_range_ratio")
"""Without lengths: those make the rungs of a ladder, and are told as contexts and generated tokens."""


def recognises(found: Document) -> bool:
    """Whether every object is a result of SGLang's benchmark."""
    return found.all(*_KEYS)


def read(found: Document) -> Taken:
    """A run for every line."""
    detailed = all(node.has(*DETAILS) for node in found.nodes)
    return Taken(
        runs=tuple(map(_run, found.nodes)), absent={**_ABSENT, "decode": no_decode(detailed)},
        notes=(*_NOTES, *notes("SGLang", detailed)),
    )  # fmt: skip


def _run(node: Node) -> Run:
    """One line."""
    failed, cache = node.get("failed"), node.get("cache_report")
    told = run(node, failed.count() if failed else None, settings=_SETTINGS)
    cached = cache["total_cached_tokens"].count() if cache else 0
    if not cached:
        return told
    note = f"SGLang: {cached:,} prompt tokens came out of the cache, so TTFT is not that of a cold prompt"
    return msgspec.structs.replace(told, notes=(*told.notes, note))


_ABSENT = {
    **ABSENT,
    "prefill": "input tokens over the whole run are no prefill rate, and that a prompt was not cached is not told",
    "tokens_per_step": "accept_length is the server's mean since it started, not that of this run",
    "acceptance": "accept_length is the server's mean since it started, not that of this run",
}
_NOTES = (
    "SGLang: every request opens a connection of its own, and connecting is inside TTFT",
    "SGLang: the gaps of one event are shared among its tokens; with --output-details a request ends with its last"
    " token, in means with the last event of its stream, so that these read a little higher",
    "SGLang: no stamp tells when a line was written, so the order of the runs is that of the lines; whether the server"
    " was started again between them, whether prompts were cached (but with --cache-report) and which switches ran is"
    " not told, and how many requests failed only by --output-details",
)
FORMAT = Format(title="sglang.bench_serving --output-file", recognises=recognises, read=read)
