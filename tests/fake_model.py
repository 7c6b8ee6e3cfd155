"""What the fake engine's model knows: a tokenizer, a seeded writer, a prefix cache, switches and memory. No sockets."""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
import zlib
from typing import Any, NamedTuple

from fake_faults import Faults

SWITCHES = {
    "fused_qkv": "exact", "fused_gate_up": "exact", "fused_experts": "rounding", "fused_epilogue": "exact",
    "prompt_lookup": "exact", "draft_model": "exact", "native_mtp": "exact", "prewarm": "exact",
    "quantized_kv": "lossy", "in_place_kv": "exact",
}  # fmt: skip
ANSWERS = {
    "capital of France": "The capital of France is Paris.",
    "2 + 2": "2 + 2 is 4.",
    "opposite of hot": "The opposite of hot is cold.",
}
LEXICON = (
    "river stone lantern quiet morning harbour orchard signal copper winter garden letter bridge market candle"
    " thunder meadow silver window journey pepper island compass feather marble engine timber valley ribbon anchor"
    " violet saddle kettle beacon willow carpet summit pocket ladder mirror"
)
WORDS = LEXICON.split()
BOS, ROLES, ASSISTANT = 1, {"system": 2, "user": 3, "assistant": 4, "tool": 5}, 6
PREFIX = 2
"""Tokens that every chat prompt begins with; a shared beginning of no more than this is no cache hit."""


class Token(NamedTuple):
    """One generated token."""

    id: int
    text: str


def tokenize(text: str) -> list[int]:
    """One token per word."""
    return [16 + zlib.crc32(word.encode()) % 60_000 for word in text.split()]


def prompt_of(body: dict[str, Any]) -> tuple[list[int], str] | None:
    """(tokens, text) of a request's messages (template: 1 + 1 per message + 1) or prompt; None where it has neither."""
    messages, prompt = body.get("messages"), body.get("prompt")
    if isinstance(messages, list):
        ids, texts = [BOS], []
        for message in messages:
            content = message.get("content") or ""
            if isinstance(content, list):
                content = " ".join(part.get("text", "") for part in content)
            ids += [ROLES.get(message.get("role"), 3), *tokenize(content)]
            texts.append(content)
        return [*ids, ASSISTANT], "\n".join(texts)
    return (tokenize(prompt), prompt) if isinstance(prompt, str) else None


def touched(size: int) -> bytearray:
    """Memory of that many bytes, every page of it written; MemoryError where it cannot be had."""
    memory = bytearray(size)
    for at in range(0, size, 4096):
        memory[at] = 1
    return memory


SPELLED = {tokenize(word)[0]: f" {word}" for word in (*WORDS, *" ".join(ANSWERS.values()).split())}


class Model:
    """The state of one fake engine between requests."""

    def __init__(self, options: Any, faults: Faults) -> None:
        self.options, self.faults = options, faults
        self.started = time.monotonic()
        self.requests = 0
        self.runs: dict[str, int] = dict.fromkeys(SWITCHES, 0)
        self._cache: list[list[int]] = []
        self._lengths: list[int] = []
        self.weights = touched(int(options.touch_mb_at_start * 1e6))
        self.base = int(options.memory_mb * 1e6)
        self.active = self.peak = self.base

    def write(self, ids: list[int], text: str, body: dict[str, Any], faults: Faults) -> list[Token]:
        """The whole answer: the same for the same prompt, seed and sampler; it stops by itself only where it may."""
        if body.get("forced_tokens") and "ignores-forced" not in faults:
            return _forced(body["forced_tokens"], faults)
        most = int(body.get("max_tokens") or body.get("max_completion_tokens") or 64)
        for clamp in ("clamp-max-tokens", "clamps-silently"):
            most = min(most, faults.number(clamp, most) or most)
        least = most if body.get("ignore_eos") else int(body.get("min_tokens") or 0)
        if "incoherent" in faults:
            return [_token("Paris", True), *[Token(33, "!")] * (most - 1)][:most]
        known = next((answer for key, answer in ANSWERS.items() if key in text), None)
        words = known.split() if known else []
        if not known or len(words) < least:
            greedy = float(body.get("temperature") or 0) == 0
            key = [ids, None if greedy else body.get("seed"), body.get("temperature")]
            if "ignores-seed" in faults:
                key.append([os.getpid(), self.requests])
            chance = random.Random(hashlib.sha256(json.dumps(key).encode()).digest())
            words += chance.choices(WORDS, k=most)
        stop = faults.number("short", len(words)) if "short" in faults else len(words)
        return [_token(word, at == 0) for at, word in enumerate(words[: min(most, stop or 0)])]

    def cached(self, ids: list[int]) -> int:
        """How many tokens of the prompt the cache spares; without a cache fault there is none."""
        if "warm-cache" not in self.faults and "lies-cold" not in self.faults:
            return 0
        best = max((_common(ids, old) for old in self._cache), default=0)
        self._cache.append(ids)
        return min(best, len(ids) - 1) if best > PREFIX else 0

    def knows_length(self, length: int) -> bool:
        """Whether a prompt of about this length came before; from now on one has."""
        known = any(abs(length - old) <= 8 for old in self._lengths)
        self._lengths.append(length)
        return known

    def clear_cache(self) -> None:
        """Forget every prompt."""
        self._cache.clear()

    def reset_peak(self) -> None:
        """Begin a new high-water mark."""
        self.peak = self.active

    def account(self, prompt: int, produced: int) -> int:
        """Grow memory by a request's context and give the peak."""
        self.active = self.base + int((prompt + produced) * self.options.memory_kb_per_token * 1000)
        self.peak = max(self.peak, self.active)
        return self.peak

    def ran(self, steps: int) -> None:
        """Count a request's steps for every switch that runs."""
        for name in SWITCHES:
            if self._runs(name):
                self.runs[name] += steps

    def _runs(self, name: str) -> bool:
        """Whether a switch runs in a request."""
        if name in self.faults.arguments("unasked-runs"):
            return True
        idle = self.faults.arguments("armed-never-runs") + self.faults.arguments("declined")
        return name in self.options.switches and name not in idle

    def health(self) -> dict[str, Any]:
        """The health document."""
        name = self.options.model
        digest = hashlib.sha256(name.encode()).hexdigest()
        if "wrong-model-digest" in self.faults:
            digest = self.faults.arguments("wrong-model-digest")[0] or "0" * 64
        if "wrong-model-name" in self.faults:
            name = self.faults.arguments("wrong-model-name")[0] or "another"
        document: dict[str, Any] = {
            "status": "ok",
            "pid": 1 if "wrong-pid" in self.faults else os.getpid(),
            "model": {
                "name": name,
                "digest": digest,
                "context": self.options.context,
                "synthetic": name.startswith("synthetic:"),
            },
        }
        if "bare-health" in self.faults:
            return document
        return document | {
            "build": {"version": self.options.build, "device": "fake"},
            "switches": {switch: self._switch(switch) for switch in SWITCHES},
            "memory": {
                "active": self.active,
                "cache": 0,
                "peak": self.peak,
                "limit": None,
                "source": "fake",
            },
            "config_digest": hashlib.sha256(repr(self.options).encode()).hexdigest(),
            "uptime_s": round(time.monotonic() - self.started, 3),
            "requests": self.requests,
        }

    def _why(self) -> str:
        """Why a switch was declined."""
        told = [os.environ.get(name, "") for name in self.faults.arguments("tells-env")]
        return " ".join(["the model has no weights for it", *told])

    def _switch(self, name: str) -> dict[str, Any]:
        """One switch as health tells it."""
        asked = name in self.options.switches
        declined = name in self.faults.arguments("declined")
        state = "armed" if asked else "off"
        if self.runs[name]:
            state = "engaged"
        if declined:
            state = "declined"
        return {
            "asked": asked,
            "state": state,
            "reason": self._why() if declined else None,
            "exactness": SWITCHES[name],
            "options": self.options.switches.get(name, {}),
            "coverage": None,
            "counters": {"runs": self.runs[name]},
            "kill": f"leave out --switch {name}",
        }


def _forced(ids: list[int], faults: Faults) -> list[Token]:
    """A recorded answer; ids that no word of ours has are shown by their number."""
    if "forced-other" in faults:
        place = (faults.number("forced-other", 1) or 1) - 1
        ids = [*ids[:place], ids[place] + 1, *ids[place + 1 :]]
    if "forced-short" in faults:
        ids = ids[: (faults.number("forced-short", 1) or 1) - 1]
    return [Token(one, SPELLED.get(one, f" <{one}>")) for one in ids]


def _token(word: str, first: bool) -> Token:
    """A word as a token, with its leading blank."""
    return Token(tokenize(word)[0], word if first else f" {word}")


def _common(one: list[int], other: list[int]) -> int:
    """Length of the common beginning."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))
