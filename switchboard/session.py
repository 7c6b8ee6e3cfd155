"""One model ready to generate. It picks the plain or the verified loop, and nothing else.

Whatever is asked of the model passes here, so this is where end tokens end a text, times are taken, the memory
limit is held and the board learns which switches ran.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard import memory
from switchboard.board import Board
from switchboard.config import Config
from switchboard.decode import Chooser, Tally, plain, prefill
from switchboard.forced import Forced
from switchboard.load import Loaded, load
from switchboard.logprobs import Seen, Watched
from switchboard.models import Source
from switchboard.pool import Pool, Turn
from switchboard.registry import Proposer, Room, SamplingProposer, Target
from switchboard.sampler import Sampler, Sampling
from switchboard.speculate import verified

CHUNK_CPU = 128
CHUNK_GPU = 2048


@dataclass
class _Work:
    """One request in hand: its cache, what it made, and whether it stands between two passes."""

    prompt: Sequence[int]
    cache: list[Any]
    guard: Callable[[], None]
    seen: Seen | None = None
    made: list[int] = field(default_factory=list)
    turn: Turn | None = None
    sound: bool = False


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
        self.chunk = CHUNK_CPU if on_cpu else CHUNK_GPU
        self.pool: Pool | None = None
        self.board.apply_start(self)
        self.board.clear()
        # a second model and what is read ahead come after the first one's own peak
        self.load_peak = max(self.load_peak, memory.reset_peak())

    def make_cache(self, room: Room) -> list[Any]:
        """A fresh KV cache with the `cache` switches that are on."""
        return self._cache(room)

    @property
    def proposer(self) -> Proposer | None:
        """The proposer of the draft switch, when one is on."""
        return self._proposer

    def read_ahead(self, ids: Sequence[int]) -> None:
        """Read the beginning of prompts to come into a slot of the pool that is kept for good."""
        if self.pool is None:
            raise RuntimeError("there is no pool to read into")
        turn = self.pool.begin([*ids, ids[-1]], self.make_cache(Room(len(ids), 0)))
        self.pool.read(self.loaded.model, turn, Tally(), lambda: None)
        turn.prompt = ids
        self.pool.keep(turn, [], pinned=True)

    def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        count: int,
        tally: Tally,
        guard: Callable[[], None],
        seen: Seen | None = None,
    ) -> Iterator[list[int]]:
        """Tokens of the answer as they become known, without an end token, `count` at most.

        `seen` keeps the logits behind them, until it is asked for what they say.
        """
        work = _Work(prompt, self.make_cache(Room(len(prompt), count)), guard, seen)
        self.board.begin()
        try:
            yield from self._timed(work, sampling, count, tally)
        finally:
            if self.pool is not None and work.turn is not None and work.sound:
                self.pool.keep(work.turn, work.made)
            if self._proposer is not None:
                self._proposer.begin(
                    []
                )  # a drafter's cache of this text would live through the next prefill
            self.board.end()
            mx.clear_cache()

    def _timed(
        self, work: _Work, sampling: Sampling, count: int, tally: Tally
    ) -> Iterator[list[int]]:
        started = time.perf_counter()
        first: float | None = None
        eos = () if sampling.ignore_eos or sampling.forced else self.loaded.text.eos
        for tokens in self._tokens(work, sampling, count, tally):
            now = time.perf_counter()
            work.made += tokens
            work.sound = True
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
            self._between(work)
        work.sound = True

    def _between(self, work: _Work) -> None:
        """Between two passes: whoever stops here leaves a cache that can be kept, but not for lack of memory."""
        work.sound = True
        work.guard()
        work.sound = False
        while memory.over(self.memory_limit) and self.pool is not None and self.pool.shed():
            pass
        memory.hold(self.memory_limit)

    def _tokens(
        self, work: _Work, sampling: Sampling, count: int, tally: Tally
    ) -> Iterator[list[int]]:
        model, cache, prompt = self.loaded.model, work.cache, work.prompt

        def checked() -> None:
            self._between(work)

        if self.pool is None:
            prefill(model, cache, prompt, self.chunk, tally, checked)
        else:
            work.turn = self.pool.begin(prompt, cache)
            self.pool.read(model, work.turn, tally, checked)
        sampler = Sampler(sampling, self.loaded.text.eos, self._law)
        chooser: Chooser = Forced(sampler, sampling.forced) if sampling.forced else sampler
        if work.seen is not None:
            chooser = Watched(chooser, work.seen)
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
    loaded = load(source, config.format, board, config.layout)
    return Session(loaded, board, config.memory_limit, memory.reset_peak())
