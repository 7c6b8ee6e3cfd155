"""How likely the model itself held each token of an answer, and which others it would have preferred.

The logarithm of the model's own softmax, natural, before temperature, filters, biases and the ban of end tokens: the
API's meaning, and the only one that two requests with different samplers can be compared by. A token that the sampler
made likely may so have a very low figure. Rows are kept as the sampler gets them, so it is the pass that chose a token
that tells of it, a verify pass too: its rows may differ from those of single steps by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from switchboard.accept.ruling import Verdict
from switchboard.decode import Chooser

LOWEST = -9999.0
"""Stands for no chance at all, which JSON has no number for."""


@dataclass(frozen=True)
class Entry:
    """One token with its log-probability, and the most likely ones at its place, the likeliest first."""

    token: int
    logprob: float
    top: list[tuple[int, float]]


class Seen:
    """The rows of logits behind the tokens of one request, until each token has been told."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._rows: dict[int, mx.array] = {}
        self._told = 0

    def keep(self, logits: mx.array, made: int) -> None:
        """Rows for the places from `made` on; a place that is asked about again is overwritten."""
        for row in range(logits.shape[0]):
            self._rows[made + row] = logits[row]

    def take(self, tokens: Sequence[int]) -> list[Entry]:
        """The entries of the next tokens of the answer; their rows are let go."""
        if not tokens:
            return []
        places = range(self._told, self._told + len(tokens))
        logits = mx.stack([self._rows.pop(place) for place in places]).astype(mx.float32)
        self._told += len(tokens)
        shares = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        own = mx.take_along_axis(shares, mx.array([*tokens])[:, None], axis=-1)[:, 0]
        count = min(self._top, logits.shape[-1])
        best = _likeliest(shares, count)
        figures = mx.take_along_axis(shares, best, axis=-1)
        mx.eval(own, best, figures)
        rows: list[Any] = [own.tolist(), best.tolist(), figures.tolist()]
        return [
            Entry(token, _finite(one), _ordered(others, theirs))
            for token, one, others, theirs in zip(tokens, *rows, strict=True)
        ]


def _likeliest(shares: mx.array, count: int) -> mx.array:
    """Ids of the `count` highest of each row, in no order."""
    if count == 0:
        return mx.zeros((shares.shape[0], 0), dtype=mx.uint32)
    return mx.argpartition(-shares, count - 1, axis=-1)[:, :count]


def _ordered(tokens: list[int], figures: list[float]) -> list[tuple[int, float]]:
    pairs = [(token, _finite(one)) for token, one in zip(tokens, figures, strict=True)]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def _finite(figure: float) -> float:
    return figure if figure > LOWEST else LOWEST


class Watched:
    """A sampler whose rows are kept on their way in; what it chooses stays as it is."""

    def __init__(self, chooser: Chooser, seen: Seen) -> None:
        self._chooser = chooser
        self._seen = seen

    def choose(self, logits: mx.array, made: int) -> mx.array:
        """Keep the row, then choose."""
        self._seen.keep(logits, made)
        return self._chooser.choose(logits, made)

    def judge(self, logits: mx.array, draft: Sequence[int], made: int) -> Verdict:
        """Keep the rows, then judge."""
        self._seen.keep(logits, made)
        return self._chooser.judge(logits, draft, made)


def spelled(token: int, token_bytes: Callable[[int], bytes]) -> str:
    r"""A token as a word of its own: its text, or how it is told where it has none.

    A part of a character is spelled `bytes:\xe2\x82`, as the API does, and one that writes nothing by its id.
    """
    raw = token_bytes(token)
    if not raw:
        return f"token_id:{token}"
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def of_chat(entries: Sequence[Entry], token_bytes: Callable[[int], bytes]) -> dict[str, Any]:
    """The object of a chat's answer: tokens with their bytes, ids and likeliest others."""

    def told(token: int, logprob: float) -> dict[str, Any]:
        raw = token_bytes(token)
        name = raw.decode(errors="replace")
        return {"token": name, "logprob": logprob, "bytes": list(raw), "token_id": token}

    content = [
        {
            **told(one.token, one.logprob),
            "top_logprobs": [told(*pair) for pair in one.top],
        }
        for one in entries
    ]
    return {"content": content, "refusal": None}


def of_text(
    entries: Sequence[Entry], token_bytes: Callable[[int], bytes], offsets: Sequence[int]
) -> dict[str, Any]:
    """The object of a completion's answer: parallel lists, with the place of each token in the text.

    `top_logprobs` holds the likeliest and the token itself, by their spelling; two tokens of the same text are told
    apart by id.
    """
    tops: list[dict[str, float]] = []
    for one in entries:
        top: dict[str, float] = {}
        pairs = [*one.top, *([] if one.token in dict(one.top) else [(one.token, one.logprob)])]
        for token, logprob in pairs:
            name = spelled(token, token_bytes)
            top[f"token_id:{token}" if name in top else name] = logprob
        tops.append(top)
    return {
        "tokens": [spelled(one.token, token_bytes) for one in entries],
        "token_logprobs": [one.logprob for one in entries],
        "top_logprobs": tops,
        "text_offset": list(offsets),
    }
