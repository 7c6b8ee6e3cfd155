"""llama-benchy's own command line, with the stamps of its timed requests copied to a file when a batch is judged.

    python -P llama_benchy_launch.py STAMPS.jsonl --base-url …

Runs in llama-benchy's environment (`-P`: a module beside this file has its name). Both hooks are reached after a stream
has ended, so that nothing is added between two reads of a request; with several streams the copying (a reference) takes
its turn in the loop like anything else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Hook in, hand over, and leave with the tool's exit status."""
    from llama_benchy.__main__ import main as benchy  # type: ignore[import-not-found]
    from llama_benchy.client import LLMClient  # type: ignore[import-not-found]
    from llama_benchy.results import BenchmarkResults  # type: ignore[import-not-found]

    place = Path(sys.argv.pop(1))
    reads: dict[int, tuple[Any, list[dict[str, Any]]]] = {}
    finalize, add = LLMClient._finalize_stream_tokens, BenchmarkResults.add

    def finalized(self: Any, result: Any, chunks: list[dict[str, Any]], *more: Any) -> None:
        reads[id(result)] = (result, chunks)  # the result is held, so that its id stays its own
        finalize(self, result, chunks, *more)

    def added(self: Any, *given: Any, **named: Any) -> None:
        add(self, *given, **named)
        batches = given[5] if len(given) > 5 else named["run_results"]
        with place.open("a") as sink:
            for result in (one for batch in batches for one in batch):
                _, chunks = reads.get(id(result), (None, []))
                record = {
                    "start_s": result.start_ts,
                    "event_s": [chunk["timestamp"] for chunk in chunks],
                    "text": "".join(chunk["text"] for chunk in chunks),
                    "error": result.error,
                }
                sink.write(json.dumps(record) + "\n")

    LLMClient._finalize_stream_tokens, BenchmarkResults.add = finalized, added
    benchy()


if __name__ == "__main__":
    main()
