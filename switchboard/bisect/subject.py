"""One loaded model that a switch can be put on, run only through the engine's own session.

The switch is put on by the loader's own function, after the plain model was observed: so the weights are the same
ones, nothing of the switch was there before, and what is judged is what a server would run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard.bisect.compare import Observation
from switchboard.board import Board, Position
from switchboard.config import Asked
from switchboard.decode import Tally
from switchboard.load import Loaded, apply_switches, load
from switchboard.models import resolve
from switchboard.registry import Proposer, Room
from switchboard.sampler import Sampling
from switchboard.session import Session

OUT_OF_REACH = {"load": "it decides what is read of a checkpoint; this one was read without it"}
ROOM = Room(prompt=246, answer=10)
SENTENCE = (
    "The sun rises in the east and sets in the west, and the moon follows it across the sky. Water boils at one "
    "hundred degrees Celsius at sea level, and it freezes at zero. Water boils at one hundred degrees. "
)


@dataclass
class Subject:
    """A model with its session; `position` is the switch that was put on, or None."""

    name: str
    loaded: Loaded
    session: Session
    position: Position | None = None

    @property
    def model(self) -> Any:
        """The model itself."""
        return self.loaded.model

    @property
    def off(self) -> str | None:
        """Why the switch that was asked for is not on, or None."""
        if self.position is None:
            return "none was asked for"
        if self.position.on:
            return None
        return self.position.reason or OUT_OF_REACH.get(self.position.switch.stage, "it stayed off")

    @property
    def coverage(self) -> dict[str, Any] | None:
        """What the switch says that it covers, as /health tells it."""
        return None if self.position is None else self.position.told()["coverage"]

    def make_cache(self) -> list[Any]:
        """A fresh cache, as the session would make it, with room up to the middle of rung 4."""
        return self.session.make_cache(ROOM)

    @property
    def proposer(self) -> Proposer:
        """The proposer that the session made of a draft switch."""
        made = self.session.proposer
        if made is None:
            raise ValueError(f"{self.name}: no draft switch is on")
        return made

    def ids(self, count: int) -> list[int]:
        """The first tokens of a text that repeats itself, so that n-gram drafts find something."""
        ids: list[int] = []
        while len(ids) < count:
            ids += self.loaded.text.encode(SENTENCE)
        return ids[:count]

    def answer(self, prompt: list[int], sampling: Sampling, count: int) -> list[int]:
        """Tokens of one request through the session, loop and board and all."""
        made: list[int] = []
        for tokens in self.session.generate(prompt, sampling, count, Tally(), lambda: None):
            made += tokens
        return made

    def spell(self, ids: list[int]) -> bytes:
        """The bytes of a text."""
        return b"".join(self.loaded.text.token_bytes(one) for one in ids)


def open_plain(name: str, format: str) -> Subject:
    """Load a model with every switch off."""
    board = Board((), {})
    loaded = load(resolve(name), format, board)
    return Subject(name, loaded, Session(loaded, board, None, 0))


def put_on(subject: Subject, asked: Asked) -> Subject:
    """The same model with one switch on, by the way that the server takes."""
    board = Board((asked,), {})
    apply_switches(subject.model, board)
    session = Session(subject.loaded, board, None, 0)
    return Subject(subject.name, subject.loaded, session, board.positions[asked.name])


def contents(cache: list[Any]) -> Observation:
    """What a cache holds, entry by entry: the rows that count, without the room behind them."""
    held: Observation = {}
    for place, entry in enumerate(cache):
        for name, array in _held(entry).items():
            held[f"cache {place} {name}"] = array
    return held


def _held(entry: Any) -> Observation:
    inner = getattr(entry, "caches", None)
    if inner is not None:
        return {
            f"{place} {name}": array
            for place, one in enumerate(inner)
            for name, array in _held(one).items()
        }
    if not hasattr(entry, "keys"):
        arrays = [one for one in entry.cache if isinstance(one, mx.array)]
        return {f"state {place}": array for place, array in enumerate(arrays)}
    held: Observation = {}
    for name in ("keys", "values"):
        value = getattr(entry, name)
        parts = value if isinstance(value, tuple | list) else (value,)
        for place, part in enumerate(parts):
            if isinstance(part, mx.array):
                held[f"{name}{f' {place}' if len(parts) > 1 else ''}"] = _rows(entry, part)
    return held


def _rows(entry: Any, part: mx.array) -> mx.array:
    """The rows that count: all that were written, or those of a window that the next token will see, oldest first."""
    if not kv.rotates(entry):
        return part[..., : min(part.shape[2], entry.offset), :]
    # How far a window is rotated, and what it keeps beyond, depends on the widths of its passes.
    part = entry._temporal_order(part)
    seen = min(entry.offset, entry.max_size - 1)
    return part[..., part.shape[2] - seen :, :]
