"""switchboard or mlx_lm in a process of its own; run with the arm as JSON.

Neither ends a text at an end token, nor keeps it from being chosen: it is a token like others. Both are driven where
their own servers and command lines drive them: `Session.generate` and `generate_step`, greedy. mlx_lm is spared its
detokeniser. Each reads prompts in pieces of the size that it chooses itself (`chunk` of its facts).

When a token is handed on, mlx_lm has started the next step, which MLX on a CPU nearly ends before it returns;
switchboard there has built the next step's graph while the current one computed and started its first layers, and
starts the rest when the next token is asked for. A clock over whole turns would favour one or the other: if it stops
at the last token, what was started ahead is computed for nothing; if it waits for that, whoever has the next graph
not yet built starts each turn with an idle processor. So a turn is timed between tokens, as in a text without turns:
its first pass, the lead, is not counted, and when the clock has stopped, all that was started is waited for, so that
nothing of it runs beside the engine whose turn comes next. As much is started ahead where the clock starts as where
it stops.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.engine import pipes
from switchboard import blas, pages


def per_pass(model: Any) -> int:
    """Bytes of weights that one decode pass reads: all, less an embedding of which it reads one row."""
    from mlx.utils import tree_flatten

    flat: Any = tree_flatten(model.parameters())
    apart = any(name.startswith("lm_head.") for name, _ in flat)
    return sum(array.nbytes for name, array in flat if not (apart and "embed_tokens." in name))


def told(version: str) -> dict[str, Any]:
    """The facts that both engines tell alike."""
    return {"version": version, "blas": blas.loaded(), "blas_threads": blas.threads_in_use(),
            "huge_pages": pages.held(), "mlx": metadata.version("mlx")}  # fmt: skip


class Stream:
    """A text in the making, timed by whoever takes tokens from it."""

    def __init__(self) -> None:
        self._tokens: Iterator[list[int]] = iter(())

    def facts(self) -> dict[str, Any]:
        """What runs here."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until everything that was started is computed."""
        raise NotImplementedError

    def begin(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Read a prompt and choose the first token."""
        raise NotImplementedError

    def go(self, least: int) -> dict[str, Any]:
        """One pass that is not timed, then at least that many tokens, then the end of all that they started."""
        lead = next(self._tokens)
        tokens: list[int] = []
        passes, began, spent = 0, time.perf_counter(), time.process_time()
        for some in self._tokens:
            tokens += some
            passes += 1
            if len(tokens) >= least:
                break
        seconds, spent = time.perf_counter() - began, time.process_time() - spent
        self.settle()
        return {
            "lead": lead,
            "tokens": tokens,
            "passes": passes,
            "seconds": seconds,
            "cpu_s": spent,
        }

    def end(self) -> dict[str, Any]:
        """Forget the text."""
        self._tokens.close()  # type: ignore[attr-defined]
        return {}


class Switchboard(Stream):
    """Our engine, by way of the session that its server uses."""

    def __init__(self, arm: dict[str, Any]) -> None:
        super().__init__()
        from switchboard.board import Board
        from switchboard.config import Config, parse_asked
        from switchboard.models import resolve
        from switchboard.session import open_session

        asked = parse_asked(arm["switches"], [])
        ways = {name: arm[name] for name in ("format", "layout", "threads")}
        config = Config(arm["model"], asked=asked, **ways)
        self._board = Board(config.asked, os.environ)
        self._session = open_session(config, resolve(arm["model"]), self._board)
        loaded = self._session.loaded
        self._encode = loaded.text.encode
        self._session.loaded = dataclasses.replace(
            loaded, text=dataclasses.replace(loaded.text, eos=())
        )

    def facts(self) -> dict[str, Any]:
        """What runs here, and what became of each switch that was asked for: the state after the latest text."""
        import mlx.core as mx

        from switchboard import session

        loaded = self._session.loaded
        states = {name: one.told() for name, one in self._board.positions.items() if one.asked}
        return {
            **told(metadata.version("battery")),
            "format": loaded.format,
            "layout": loaded.layout.told(),
            "parameters": loaded.parameters,
            "weight_bytes": per_pass(loaded.model),
            "chunk": session.CHUNK_CPU if mx.default_device() == mx.cpu else session.CHUNK_GPU,
            "switches": {
                name: {
                    "state": one["state"],
                    "reason": one["reason"],
                    "runs": one["counters"]["runs"],
                }
                for name, one in states.items()
            },
        }

    def settle(self) -> None:
        """Wait for the default stream, which the session computes on."""
        import mlx.core as mx

        mx.synchronize()

    def encode(self, text: str) -> dict[str, Any]:
        """The tokens of a text."""
        return {"tokens": self._encode(text)}

    def begin(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Read a prompt; the guard of the session is called when all but its last token are read."""
        from switchboard.decode import Tally
        from switchboard.sampler import Sampling

        stamps: list[float] = []
        began = time.perf_counter()
        self._tokens = self._session.generate(
            prompt, Sampling(temperature=0.0), count, Tally(), lambda: stamps.append(time.perf_counter())
        )  # fmt: skip
        tokens = next(self._tokens)
        first = time.perf_counter() - began
        self.settle()
        return {"prefill_s": stamps[-1] - began, "first_s": first, "tokens": tokens}


class MlxLm(Stream):
    """mlx_lm on the weights in a folder."""

    def __init__(self, arm: dict[str, Any]) -> None:
        super().__init__()
        from mlx_lm.utils import load_model

        self._model, config = load_model(Path(arm["place"]))
        self._format = str(config.get("stored_as", arm["format"]))

    def facts(self) -> dict[str, Any]:
        """What runs here."""
        from mlx_lm.generate import generate_step

        return {
            **told(metadata.version("mlx-lm")),
            "format": self._format,
            "weight_bytes": per_pass(self._model),
            "chunk": inspect.signature(generate_step).parameters["prefill_step_size"].default,
        }

    def settle(self) -> None:
        """Wait for mlx_lm's own stream."""
        import mlx.core as mx
        from mlx_lm.generate import generation_stream

        mx.synchronize(generation_stream)

    def begin(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Read a prompt; mlx_lm tells after each piece how far it is."""
        import mlx.core as mx
        from mlx_lm.generate import generate_step

        stamps: list[float] = []

        def progress(done: int, of: int) -> None:
            if done < of:
                stamps.append(time.perf_counter())

        began = time.perf_counter()
        steps = generate_step(
            mx.array(prompt), self._model, max_tokens=count, prompt_progress_callback=progress
        )
        self._tokens = ([int(token)] for token, _ in steps)
        tokens = next(self._tokens)
        first = time.perf_counter() - began
        self.settle()
        return {"prefill_s": stamps[-1] - began, "first_s": first, "tokens": tokens}


ENGINES = {"switchboard": Switchboard, "mlx_lm": MlxLm}


def main() -> None:
    """Replace the process by itself with a BLAS preloaded, where the arm has one, then serve."""
    arm = json.loads(sys.argv[1])
    blas.preload(arm["threads"])
    pipes.serve(lambda: ENGINES[arm["engine"]](arm))


if __name__ == "__main__":
    main()
