"""Answers that the fake engine gives to messages it was told of, whole and at once, with the failures before them.

A script is one JSON object: the exact text of a request's messages -> {content, reasoning, finish, tokens, before,
together}. `before` is what the first requests meet in turn: an HTTP status, `close`, `die`, or `error` for an error
document under 200. `together`: answered only once so many requests for such answers are in flight. What `finish:
length` leaves out of `tokens` is max_tokens.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

TOGETHER_S = 10.0
SAMPLER = ("temperature", "top_p", "top_k", "seed", "max_tokens", "min_tokens", "reasoning_effort")


class Answers:
    """The script, and what is left of the failures before each answer."""

    def __init__(self, path: Path | None, delay_ms: float = 0) -> None:
        self._rules: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path else {}
        self._delay_s, self._lock = delay_ms / 1e3, threading.Lock()
        self._barriers: dict[int, threading.Barrier] = {}

    def failure(self, text: str) -> int | str | None:
        """What this request meets in place of an answer."""
        with self._lock:
            left = self._rules.get(text, {}).get("before")
            return left.pop(0) if left else None

    def document(self, text: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a text; None where the script has none."""
        rule = self._rules.get(text)
        if rule is None:
            return None
        time.sleep(self._delay_s)
        if rule.get("together"):
            with self._lock:
                many = rule["together"]
                barrier = self._barriers.setdefault(many, threading.Barrier(many))
            barrier.wait(TOGETHER_S)
        finish, content = rule.get("finish", "stop"), rule.get("content", "")
        most = int(body.get("max_tokens") or 64)
        tokens = rule.get("tokens", most if finish == "length" else min(most, len(content.split())))
        message = {"role": "assistant", "content": content}
        if "reasoning" in rule:
            message["reasoning_content"] = rule["reasoning"]
        prompt = len(text.split())
        sampler = {key: body[key] for key in SAMPLER if key in body} | rule.get("sampler", {})
        return {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": tokens,
                "total_tokens": prompt + tokens,
            },
            "sampler": sampler,
        }
