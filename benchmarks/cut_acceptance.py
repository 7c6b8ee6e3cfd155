"""How likely a guess of a cut model stands: by its layers, drawn or coupled, without a clock.

    python -m benchmarks.cut_acceptance [--model NAME] [--layers 2,8,15]

One pass of the target and of each cut over a text; at every place the two rows p and q say exactly how likely the next
guess stands: drawn and judged by the exact law, the sum of min(p, q); coupled, the length that the shares of each token
have in common on the line from 0 to 1 from which both draw; at temperature 0, whether the first choices agree. Means
over the places of one short text, so for a look and no more.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from switchboard import cache as kv
from switchboard import drafter
from switchboard.board import Board
from switchboard.decode import forward
from switchboard.load import load
from switchboard.models import resolve
from switchboard.sampler import Sampler, Sampling

TEXT = (
    "The lighthouse keeper climbed the stairs before dawn. The sea had been rough all night, and a letter lay on the "
    "step, wet with spray. He picked it up and read the first line: you are not alone on this island. He laughed, "
    "since nobody had come to the island for eleven years, and then he heard the door."
)
SAMPLINGS = (Sampling(temperature=0.7, top_p=0.95), Sampling(temperature=1.0))
Rows = NDArray[np.float64]


def stands(target: Rows, draft: Rows) -> tuple[float, float, float]:
    """Mean chances that a guess stands: drawn, coupled, and greedy."""
    drawn = np.minimum(target, draft).sum(axis=1).mean()
    ends, others = target.cumsum(axis=1), draft.cumsum(axis=1)
    shared = np.minimum(ends, others) - np.maximum(ends - target, others - draft)
    coupled = np.maximum(shared, 0).sum(axis=1).mean()
    greedy = (target.argmax(axis=1) == draft.argmax(axis=1)).mean()
    return float(drawn), float(coupled), float(greedy)


def rows(model: Any, layers: int, ids: mx.array, sampling: Sampling) -> Rows:
    """The rows that are drawn from, at every place of a text."""
    logits = forward(model, drafter.fresh(model, layers), ids)
    return np.array(Sampler(sampling, ()).distributions(logits)).astype(np.float64)


def main(words: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--layers", default="2,8,15,20,25,28")
    asked = parser.parse_args(words)
    loaded = load(resolve(asked.model), "auto", Board((), {}))
    ids = mx.array(loaded.text.encode(TEXT))
    whole = len(kv.make(loaded.model))
    print(f"{asked.model}, {ids.size} places, {whole} layers")
    for sampling in SAMPLINGS:
        target = rows(loaded.model, whole, ids, sampling)
        for layers in map(int, asked.layers.split(",")):
            part = rows(drafter.cut(loaded.model, layers), layers, ids, sampling)
            drawn, coupled, greedy = stands(target, part)
            print(
                f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, {layers:>2} layers:"
                f" drawn {drawn:.3f}, coupled {coupled:.3f}, greedy {greedy:.3f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
