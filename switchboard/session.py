"""One model ready to generate. It picks the plain or the verified loop, and nothing else.

Whatever is asked of the model passes here, so this is where end tokens end a text, times are taken, the memory
limit is held and the board learns which switches ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard import memory
from switchboard.board import Board
from switchboard.config import Config
from switchboard.decode import Chooser, Tally, plain, prefill
from switchboard.forced import Forced
from switchboard.load import Loaded, load
from switchboard.models import Source
from switchboard.registry import Proposer, Room, SamplingProposer, Target
from switchboard.sampler import Sampler, Sampling
from switchboard.speculate import verified

CHUNK_CPU = 128
CHUNK_GPU = 2048


@dataclass
class Session:
    """A loaded model, its switches and its proposer."""

    loaded: Loaded
    board: Board
    memory_limit: int | None
    load_peak: int

    def __post_init__(self) -> None:
        """Put on the `cache` switches, then make the proposer, if the cache can take tokens back."""
        plain_cache = kv.factory(self.loaded.model)
        check = kv.check(self.loaded.model, plain_cache)
        self._cache = self.board.apply_cache(plain_cache, check)
        self._proposer = self.board.proposer(
            kv.cannot_rewind(self._cache(Room(1, 1))),
            Target(self.loaded.model, self.loaded.text),
        )
        self._law = self.board.law(self._proposer)
        self.board.clear()
        # Short chunks spare the CPU the upper triangle of attention; a GPU wants long ones.
        on_cpu = mx.default_device() == mx.Device(mx.cpu)
        self._chunk = CHUNK_CPU if on_cpu else CHUNK_GPU

    def make_cache(self, room: Room) -> list[Any]:
        """A fresh KV cache with the `cache` switches that are on."""
        return self._cache(room)

    @property
    def proposer(self) -> Proposer | None:
        """The proposer of the draft switch, when one is on."""
        return self._proposer

    def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        count: int,
        tally: Tally,
        guard: Callable[[], None],
    ) -> Iterator[list[int]]:
        """Tokens of the answer as they become known, without an end token, `count` at most."""
        self.board.begin()
        try:
            yield from self._timed(prompt, sampling, count, tally, guard)
        finally:
            self.board.end()
            mx.clear_cache()

    def _timed(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        count: int,
        tally: Tally,
        guard: Callable[[], None],
    ) -> Iterator[list[int]]:
        started = time.perf_counter()
        first: float | None = None
        eos = () if sampling.ignore_eos or sampling.forced else self.loaded.text.eos
        for tokens in self._tokens(prompt, sampling, count, tally, guard):
            now = time.perf_counter()
            kept = _until(tokens, eos)
            if first is None:
                first, tally.prompt_s = now, now - started
                tally.prompt_tokens += 1
            elif kept:
                tally.decode_s = now - first
                tally.decode_tokens += len(kept)
                tally.steps += 1
            if kept:
                yield kept
            if len(kept) < len(tokens):
                return
            guard()
            memory.hold(self.memory_limit)

    def _tokens(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        count: int,
        tally: Tally,
        guard: Callable[[], None],
    ) -> Iterator[list[int]]:
        model, cache = self.loaded.model, self.make_cache(Room(len(prompt), count))

        def checked() -> None:
            guard()
            memory.hold(self.memory_limit)

        prefill(model, cache, prompt, self._chunk, tally, checked)
        sampler = Sampler(sampling, self.loaded.text.eos, self._law)
        chooser: Chooser = Forced(sampler, sampling.forced) if sampling.forced else sampler
        if self._proposer is None:
            return plain(model, cache, prompt[-1], chooser, count)
        if isinstance(self._proposer, SamplingProposer):
            self._proposer.sample_with(sampler)
        self._proposer.begin(list(prompt))
        return verified(model, cache, prompt[-1], chooser, self._proposer, count, tally)


def _until(tokens: list[int], ends: Sequence[int]) -> list[int]:
    """The tokens before the first end token."""
    for place, token in enumerate(tokens):
        if token in ends:
            return tokens[:place]
    return tokens


def open_session(config: Config, source: Source, board: Board) -> Session:
    """Load a model with its switches; must run in the thread that will generate, as MLX's streams are bound to it."""
    if config.memory_limit is not None:
        mx.set_memory_limit(config.memory_limit)
    loaded = load(source, config.format, board)
    return Session(loaded, board, config.memory_limit, memory.reset_peak())
