"""llama.cpp through the wheel `xllamacpp`, in an environment of its own; needs the standard library beside it.

Its server runs in this process and is asked over its own loopback port. Times are the server's own: of the prompt, and
of generating. A slice is one request that goes on from the cache: its first token is the server's "prompt" of one
token, so a slice of n tokens has n passes, as everywhere; nothing of the next slice is computed ahead. It computes in
the GGUF's own format: 4-bit weights times activations quantised to 8 bits.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.engine import pipes

SPARE = 64


class Llama:
    """One model in llama.cpp's server."""

    def __init__(self, arm: dict[str, Any]) -> None:
        import xllamacpp  # type: ignore[import-not-found]

        place = Path(arm["place"])
        params = xllamacpp.CommonParams()
        params.model.path = str(place)
        params.n_ctx = arm["longest"] + SPARE
        params.n_parallel = 1
        params.cpuparams.n_threads = arm["threads"]
        params.cpuparams_batch.n_threads = arm["threads"]
        params.port = 0
        self._server = xllamacpp.Server(params)
        self._threads = arm["threads"]
        self._bytes = place.stat().st_size
        self._ids: list[int] = []

    def facts(self) -> dict[str, Any]:
        """What runs here; the weights are the file but for its few kilobytes of metadata."""
        return {
            "version": metadata.version("xllamacpp"),
            "blas": None,
            "blas_threads": self._threads,
            "format": "as in the GGUF file",
            "weight_bytes": self._bytes,
            "chunk": None,
        }

    def _complete(self, count: int, cached: bool) -> dict[str, Any]:
        body = {"prompt": self._ids, "n_predict": count, "temperature": 0, "ignore_eos": True,
                "cache_prompt": cached, "return_tokens": True, "samplers": ["top_k"], "top_k": 1}  # fmt: skip
        request = urllib.request.Request(
            f"{self._server.listening_address}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            told: dict[str, Any] = json.load(answer)
        self._ids = [*self._ids, *told["tokens"]]
        return told

    def begin(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Read a prompt anew; its time covers all tokens of it, as the server counts."""
        self._ids = list(prompt)
        told = self._complete(1, cached=False)
        if told["timings"]["prompt_n"] != len(prompt):
            raise RuntimeError(f"{told['timings']['prompt_n']} of {len(prompt)} tokens were read")
        seconds = told["timings"]["prompt_ms"] / 1000
        return {"prefill_s": seconds, "first_s": seconds, "tokens": told["tokens"]}

    def go(self, least: int) -> dict[str, Any]:
        """So many tokens more."""
        spent = time.process_time()
        told = self._complete(least, cached=True)
        spent = time.process_time() - spent
        timings = told["timings"]
        if timings["prompt_n"] != 1:
            raise RuntimeError(f"{timings['prompt_n']} tokens were read again instead of one")
        seconds = (timings["prompt_ms"] + timings["predicted_ms"]) / 1000
        return {
            "lead": [],
            "tokens": told["tokens"],
            "passes": len(told["tokens"]),
            "seconds": seconds,
            "cpu_s": spent,
        }

    def end(self) -> dict[str, Any]:
        """Nothing is kept but the server's cache, which no prompt of another block shares."""
        return {}


if __name__ == "__main__":
    arm = json.loads(sys.argv[1])
    pipes.serve(lambda: Llama(arm))
