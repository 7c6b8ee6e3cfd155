"""One answer of the fake engine in the making: its chunks at their times, the faults in between, and its totals.

Sleeps run to absolute times, so that one late token does not delay the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from fake_faults import Faults, log, run_out_of_memory
from fake_model import Model, Token, touched

SAMPLER = ("temperature", "top_p", "top_k", "seed", "max_tokens", "min_tokens")


class Generation:
    """One answer in the making: its chunks in time, then its totals."""

    def __init__(
        self, model: Model, faults: Faults, body: dict[str, Any], chat: bool, ids: list[int],
        text: str, asked_at: float,
    ) -> None:  # fmt: skip
        self.model, self.faults, self.body, self.chat = model, faults, body, chat
        self.ids, self.began = ids, asked_at
        self.speculates = model.options.speculates_on in text
        self.answer = model.write(ids, text, body, faults)
        self.stuck = ""
        self.cut = False
        self.sent: list[Token] = []
        self.finish = "length"
        most = int(body.get("max_tokens") or body.get("max_completion_tokens") or 64)
        clamped = "clamp-max-tokens" in faults or "clamps-silently" in faults
        if len(self.answer) < most and not clamped:
            self.finish = "stop"
        self.cached = model.cached(ids)
        self.prompt_s = self.decode_s = 0.0
        self.sizes: list[int] = []

    def schedule(self) -> Iterator[tuple[float, int]]:
        """(seconds after the request, tokens) of every event."""
        options, left = self.model.options, len(self.answer)
        fresh = len(self.ids) - self.cached
        compiling = 0.0 if self.model.knows_length(len(self.ids)) else options.compile_ms
        prefill_ms = options.ttft_ms + compiling + fresh * options.prefill_us_per_token / 1e3
        at = prefill_ms * options.slow / 1e3
        script = list(options.events or [])
        while left > 0:
            size = options.tokens_per_event if self.speculates else 1
            if script:
                ms, size = script.pop(0)
                at = ms * options.slow / 1e3
            yield at, min(size, left)
            left -= size
            at += options.itl_ms * options.slow / 1e3

    def chunks(self) -> Iterator[dict[str, Any] | str]:
        """Everything the stream says, each at its time."""
        faults, model = self.faults, self.model
        if self.chat:
            yield self.chunk({"role": "assistant", "content": ""})
        if faults.at("die-after", model.requests):
            log("fake_engine: fatal: lost the device")
            os._exit(1)
        if "role-only" in faults:
            yield "data: [DONE]\n\n"
            return
        if "empty-answer" in faults:
            self.answer, self.finish = [], "stop"
        held = self.touch("prefill")
        for number, (at_s, size) in enumerate(self.schedule()):
            limit = faults.number("oom-at")
            if number == 1 and limit is not None and len(self.ids) >= limit:
                run_out_of_memory(int(next(iter(model.faults.arguments("long-traceback")), 0)))
            time.sleep(max(0.0, self.began + at_s - time.perf_counter()))
            yield self.tokens(size)
            if number == 0:
                self.prompt_s = time.perf_counter() - self.began
                if "bad-json" in faults:
                    yield 'data: {"choices": [{"index": 0, "del\n\n'
            told = self.trouble()
            if told is not None:
                yield from told
                return
            if number == 0:
                held = held or self.touch("decode")
        del held
        self.decode_s = time.perf_counter() - self.began - self.prompt_s
        model.ran(max(1, len(self.sizes)))
        yield from self.end()

    def touch(self, when: str) -> bytearray | None:
        """Take and touch the memory of this context, as a KV cache does, if this is the time for it."""
        options = self.model.options
        if when != options.touch_when or not options.touch_kb_per_token:
            return None
        return touched(int(len(self.ids) * options.touch_kb_per_token * 1000))

    def tokens(self, size: int) -> dict[str, Any]:
        """A chunk with the next tokens."""
        taken = self.answer[len(self.sent) : len(self.sent) + size]
        reasoning = len(self.sent) < self.model.options.reasoning
        self.sent += taken
        self.sizes.append(len(taken))
        text = "".join(token.text for token in taken)
        choice = self.chunk({"reasoning_content" if reasoning else "content": text})
        if "no-ids" not in self.faults:
            choice["choices"][0]["token_ids"] = [token.id for token in taken]
        return choice

    def trouble(self) -> list[dict[str, Any] | str] | None:
        """What breaks the stream after the tokens so far; None while nothing does."""
        faults, came = self.faults, len(self.sent)
        if faults.at("error-in-stream", came):
            return [error_of("the engine lost its way"), "data: [DONE]\n\n"]
        for name in ("stall", "trickle"):
            if faults.at(name, came):
                self.stuck = name
                return [": waiting\n\n"]
        if faults.at("close-mid-stream", came):
            self.cut = True
            return [": going\n\n"]
        return None

    def end(self) -> Iterator[dict[str, Any] | str]:
        """Finish reason, usage, timings, sampler, [DONE]."""
        faults = self.faults
        if "no-terminal" in faults:
            return
        yield self.chunk({}, "error" if "finish-error" in faults else self.finish)
        totals = self.chunk({})
        totals["choices"] = []
        totals |= self.totals()
        if "no-usage" in faults:
            del totals["usage"]
        if "no-timings" in faults:
            del totals["timings"], totals["sampler"]
        yield totals
        if "no-done" not in faults:
            yield "data: [DONE]\n\n"

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        """One chunk in the dialect that was asked for."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if self.chat:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content") or delta.get("reasoning_content") or ""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {"object": kind, "model": self.model.options.model, "choices": [choice]}

    def totals(self) -> dict[str, Any]:
        """Usage, the engine's own clock, and the sampler that was applied."""
        faults, body, sizes = self.faults, self.body, self.sizes
        came = len(self.sent)
        prompt = len(self.ids) + (faults.number("wrong-prompt-count", 0) or 0)
        told = 0 if "lies-cold" in faults else self.cached
        total = came + (faults.number("wrong-total", 0) or 0)
        steps = max(0, len(sizes) - 1)
        widest = self.model.options.tokens_per_event - 1 if self.speculates else 0
        sampler = {key: body[key] for key in SAMPLER if key in body}
        clamp = faults.number("clamp-max-tokens")
        if clamp is not None and sampler.get("max_tokens", 0) > clamp:
            sampler["max_tokens"] = clamp
        silent = "ignores-forced" in faults or "forced-silent" in faults
        if body.get("forced_tokens") and not silent:
            sampler["forced_tokens"] = len(body["forced_tokens"])
        if "forced-anyway" in faults:
            sampler["forced_tokens"] = came
        if "sampler-changed" in faults:
            sampler["temperature"] = float(sampler.get("temperature") or 0) + 0.3
        return {
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": total,
                "total_tokens": prompt + total,
                "prompt_tokens_details": {"cached_tokens": told},
            },
            "timings": {
                "prompt_s": self.prompt_s,
                "prompt_tokens": prompt - told,
                "decode_s": self.decode_s,
                "decode_tokens": sum(sizes[1:]),
                "steps": steps,
                "proposed": widest * steps,
                "accepted": sum(sizes[1:]) - steps,
                "accepted_by_depth": [
                    sum(size > depth + 1 for size in sizes[1:]) for depth in range(widest)
                ],
                "peak_bytes": self.model.account(len(self.ids), came),
            },
            "sampler": sampler,
        }

    def whole(self) -> dict[str, Any]:
        """The answer that is not streamed."""
        text = "".join(token.text for token in self.sent)
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish}
        choice |= (
            {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        )
        return {"choices": [choice], **self.totals()}


def error_of(words: str) -> dict[str, Any]:
    """An error document."""
    return {"error": {"message": words, "type": "server_error", "code": 500}}
