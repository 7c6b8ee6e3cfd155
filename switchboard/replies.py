"""Answers of the OpenAI API: chunks of a stream, or one object.

Beside the API's own fields every event carries `token_ids`, exactly the tokens behind its text, and the end carries
`timings` and the sampler as it was applied, so that a client need not guess.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from switchboard import logprobs
from switchboard.errors import RequestError
from switchboard.text import Piece
from switchboard.wire import Order
from switchboard.worker import Failure, Finish


def sse(document: Any) -> bytes:
    """One event of a stream; what some readers take for the end of a line is written as an escape."""
    told = msgspec.json.encode(document)
    for character, escape in LINE_ENDS:
        told = told.replace(character, escape)
    return b"data: " + told + b"\n\n"


LINE_ENDS = tuple((end.encode(), rf"\u{ord(end):04x}".encode()) for end in "\x85\u2028\u2029")
"""JSON may hold these as they are, in strings only; a client that splits text into lines would cut there."""


DONE = b"data: [DONE]\n\n"


def error_body(error: RequestError) -> dict[str, Any]:
    """An error as the API spells it."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    told = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
    return {"error": told}


@dataclass
class Reply:
    """Everything that the answer to one order is made of."""

    order: Order
    model: str
    token_bytes: Callable[[int], bytes]
    created: int = field(default_factory=lambda: int(time.time()))
    ident: str = field(default_factory=lambda: uuid.uuid4().hex)

    def opening(self) -> bytes:
        """The role of a chat's answer, sent at once; it holds no token."""
        if not self.order.chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        return sse(self._chunk([{"index": 0, "delta": delta, "finish_reason": None}]))

    def piece(self, piece: Piece) -> bytes:
        """Text that became certain."""
        return sse(self._chunk([self._part(piece, None)]))

    def closing(self, finish: Finish) -> bytes:
        """The rest with the finish reason, then usage, then the end mark."""
        usage = {**self._chunk([]), **self._figures(finish)}
        return sse(self._chunk([self._part(finish.rest, finish.reason)])) + sse(usage) + DONE

    def failure(self, failure: Failure) -> bytes:
        """An error event, a chunk with the finish reason `error`, and the end mark."""
        chunk = self._chunk([self._part(failure.rest, "error")])
        return sse(error_body(failure.error)) + sse(chunk) + DONE

    def whole(self, piece: Piece, finish: Finish) -> dict[str, Any]:
        """The answer of a request without a stream."""
        choice = self._part(piece, finish.reason)
        if self.order.chat:
            del choice["delta"]
            choice["message"] = {"role": "assistant", "content": piece.text, "refusal": None}
        head = self._chunk([choice])
        head["object"] = "chat.completion" if self.order.chat else "text_completion"
        return {**head, **self._figures(finish)}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.order.chat else 'cmpl'}-{self.ident}",
            "object": "chat.completion.chunk" if self.order.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _part(self, piece: Piece, reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0}
        if self.order.chat:
            choice["delta"] = {"content": piece.text} if piece.text else {}
        else:
            choice["text"] = piece.text
        told = self._logprobs(piece)
        return {**choice, "logprobs": told, "finish_reason": reason, "token_ids": piece.ids}

    def _logprobs(self, piece: Piece) -> dict[str, Any] | None:
        if self.order.logprobs is None:
            return None
        if self.order.chat:
            return logprobs.of_chat(piece.entries, self.token_bytes)
        return logprobs.of_text(piece.entries, self.token_bytes, piece.offsets)

    def _figures(self, finish: Finish) -> dict[str, Any]:
        prompt, made, tally = len(self.order.prompt), finish.completion_tokens, finish.tally
        sampling = self.order.sampling
        figures: dict[str, Any] = {
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": made,
                "total_tokens": prompt + made,
                "prompt_tokens_details": {"cached_tokens": prompt - tally.prompt_tokens},
            },
            "timings": {
                "prompt_s": tally.prompt_s,
                "prompt_tokens": tally.prompt_tokens,
                "decode_s": tally.decode_s,
                "decode_tokens": tally.decode_tokens,
                "steps": tally.steps,
                "proposed": tally.proposed,
                "accepted": tally.accepted,
                "accepted_by_depth": tally.accepted_by_depth,
                "bonus": tally.bonus,
                "peak_bytes": finish.peak_bytes,
            },
            "sampler": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "min_p": sampling.min_p,
                "seed": sampling.seed,
                "max_tokens": self.order.count,
                "min_tokens": sampling.min_tokens,
                "ignore_eos": sampling.ignore_eos,
                "forced_tokens": len(sampling.forced),
            },
        }
        if self.order.ignored:
            figures["ignored"] = self.order.ignored
        return figures
