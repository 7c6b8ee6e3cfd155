"""Sessions of tiny models, what they write against what they should, and a test of counts against chances."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx
import numpy as np
from scipy import stats

from switchboard.board import Board
from switchboard.config import Config, parse_asked
from switchboard.decode import Tally, forward
from switchboard.models import resolve
from switchboard.registry import Room
from switchboard.sampler import Sampler, Sampling
from switchboard.session import Session, open_session

Text = tuple[int, ...]


def session(*switches: str, required: bool = False, model: str = "synthetic:tiny-llama") -> Session:
    """A session with these switches, opened as the server opens it."""
    asked = parse_asked([] if required else list(switches), list(switches) if required else [])
    return open_session(Config(model, asked=asked), resolve(model), Board(asked, {}))


def answer(
    one: Session, prompt: list[int], sampling: Sampling, count: int, tally: Tally | None = None
) -> Text:
    """The tokens of one request."""
    stream = one.generate(prompt, sampling, count, tally or Tally(), lambda: None)
    return tuple(token for tokens in stream for token in tokens)


def enumerated(
    one: Session, prompt: list[int], sampling: Sampling, length: int
) -> dict[Text, float]:
    """The chance of every text of so many tokens, by passes of the model over each beginning."""
    sampler, found = Sampler(sampling, ()), {(): 1.0}
    bias = np.zeros(512, dtype=np.float32)
    bias[list(sampling.logit_bias)] = list(sampling.logit_bias.values())
    for _ in range(length):
        longer: dict[Text, float] = {}
        for text, chance in found.items():
            cache = one.make_cache(Room(len(prompt) + length, 1))
            logits = forward(one.loaded.model, cache, mx.array([*prompt, *text]))[-1:]
            row = np.array(sampler.distributions(logits + mx.array(bias)))[0].astype(np.float64)
            for token in np.flatnonzero(row):
                longer[(*text, int(token))] = chance * float(row[token] / row.sum())
        found = longer
    return found


def p_value(counts: Mapping[Text, int], chances: Mapping[Text, float]) -> float:
    """Of Pearson's test that the counts follow the chances; what is expected less than five times is one class."""
    runs = sum(counts.values())
    assert set(counts) <= {text for text, chance in chances.items() if chance > 0}
    often = [text for text, chance in chances.items() if runs * chance >= 5]
    seen = [counts.get(text, 0) for text in often]
    wanted = [runs * chances[text] for text in often]
    rest = runs - sum(wanted)
    if rest > 1e-6:
        seen, wanted = [*seen, runs - sum(seen)], [*wanted, rest]
    return float(stats.chisquare(seen, wanted).pvalue)
