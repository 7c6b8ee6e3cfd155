"""Answers of the OpenAI API: chunks of a stream, or one object.

Beside the API's own fields every event carries `token_ids`, exactly the tokens behind its text, and the end carries
`timings` and the sampler as it was applied, so that a client need not guess.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec

from switchboard.errors import RequestError
from switchboard.text import Piece
from switchboard.wire import Order
from switchboard.worker import Failure, Finish


def sse(document: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def error_body(error: RequestError) -> dict[str, Any]:
    """An error as the API spells it."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    return {"error": {"message": str(error), "type": kind, "code": error.code}}


@dataclass
class Reply:
    """Everything that the answer to one order is made of."""

    order: Order
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    ident: str = field(default_factory=lambda: uuid.uuid4().hex)

    def opening(self) -> bytes:
        """The role of a chat's answer, sent at once; it holds no token."""
        if not self.order.chat:
            return b""
        return sse(self._chunk([self._choice({"role": "assistant", "content": ""}, None, None)]))

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

    def whole(self, text: str, ids: list[int], finish: Finish) -> dict[str, Any]:
        """The answer of a request without a stream."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish.reason, "token_ids": ids}
        if self.order.chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
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
        if self.order.chat:
            return self._choice({"content": piece.text} if piece.text else {}, reason, piece.ids)
        return {"index": 0, "text": piece.text, "finish_reason": reason, "token_ids": piece.ids}

    def _choice(
        self, delta: dict[str, Any], reason: str | None, ids: list[int] | None
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": reason}
        if ids is not None:
            choice["token_ids"] = ids
        return choice

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
