"""Requests of the OpenAI API: read strictly, with every default filled in.

An unknown field is an error that names it and the nearest known one, never a silent drop: a sampler that the server
ignored would void a measurement. A few fields of the API that change nothing here are listed, and told back as
ignored; a few others are accepted at their neutral value only.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from switchboard import forced, vision
from switchboard.errors import RequestError
from switchboard.registry import unknown
from switchboard.sampler import Sampling
from switchboard.text import Text

IGNORED = frozenset(
    {"metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user"}
)
NEUTRAL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "best_of": (None, 1),
        "echo": (None, False),
        "frequency_penalty": (None, 0),
        "logprobs": (None, False),
        "n": (None, 1),
        "presence_penalty": (None, 0),
        "response_format": (None, {"type": "text"}),
        "tool_choice": (None, "none", "auto"),
        "tools": (None, []),
    }
)
Shape = TypeVar("Shape", bound=msgspec.Struct)


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Usage is sent at the end of every stream, whatever this says."""

    include_usage: bool = True


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """One turn of a conversation: text, or a list of parts that are text."""

    role: str
    content: str | list[dict[str, Any]]
    name: str | None = None


class Common(msgspec.Struct, kw_only=True):
    """Fields that both endpoints share."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: str | list[str] | None = None
    logit_bias: dict[str, float] | None = None
    forced_tokens: list[int] | None = None
    """A recorded answer that takes the place of what would be chosen; every pass is made all the same."""


class ChatBody(Common, kw_only=True):
    """Body of /v1/chat/completions."""

    messages: list[Message]


class CompletionBody(Common, kw_only=True):
    """Body of /v1/completions: text, or token ids."""

    prompt: str | list[int]


class TokenizeBody(msgspec.Struct, kw_only=True):
    """Body of /tokenize: a conversation, or text."""

    model: str | None = None
    messages: list[Message] | None = None
    prompt: str | None = None


@dataclass(frozen=True)
class Order:
    """One request, ready to be generated: ids, sampler, limits, and what was ignored."""

    prompt: list[int]
    sampling: Sampling
    count: int
    stops: list[str]
    stream: bool
    chat: bool
    ignored: list[str]


def read(raw: bytes, shape: type[Shape]) -> tuple[Shape, list[str]]:
    """The body in its shape, and the fields that were ignored."""
    try:
        body = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not JSON: {error}", "invalid_json") from error
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object", "invalid_json")
    fields = [one.name for one in msgspec.structs.fields(shape)]
    ignored = sorted(IGNORED & body.keys())
    for name in list(body):
        if name in fields:
            continue
        if name in NEUTRAL and body[name] in NEUTRAL[name]:
            ignored.append(name)
        elif name in NEUTRAL:
            raise RequestError(
                f"field '{name}' is supported at its neutral value only", "unsupported"
            )
        elif name not in IGNORED:
            raise RequestError(unknown("field", name, fields), "unknown_field")
        del body[name]
    try:
        return msgspec.convert(body, shape), ignored
    except msgspec.ValidationError as error:
        raise RequestError(str(error), "invalid_field") from error


def ids_of(body: ChatBody | CompletionBody | TokenizeBody, text: Text) -> list[int]:
    """The prompt's token ids; a conversation goes through the model's chat template."""
    messages = getattr(body, "messages", None)
    prompt = getattr(body, "prompt", None)
    if (messages is None) == (prompt is None):
        raise RequestError("give either messages or prompt", "invalid_field")
    if messages is not None:
        turns = [
            {"role": one.role, "content": written(one.content, f"messages[{place}]", text)}
            for place, one in enumerate(messages)
        ]
        return text.encode(text.chat(turns))
    if isinstance(prompt, list):
        wrong = [one for one in prompt if not 0 <= one < text.vocabulary]
        if wrong:
            raise RequestError(
                f"token id {wrong[0]} is outside the vocabulary of {text.vocabulary}",
                "invalid_field",
            )
        return prompt
    return text.encode(prompt or "")


def written(content: str | list[dict[str, Any]], where: str, text: Text) -> str:
    """The text of a message; a part that is none is an error that names it."""
    if isinstance(content, str):
        return content
    pieces: list[str] = []
    for place, part in enumerate(content):
        kind, words = part.get("type"), part.get("text")
        here = f"{where}.content[{place}]"
        if kind in vision.IMAGE_PARTS:
            raise RequestError(
                f"{here} is of type '{kind}' and cannot be read: {text.no_images}; send text only",
                "unsupported",
            )
        if kind != "text" or not isinstance(words, str):
            raise RequestError(f"{here} must be of type 'text' and hold a text", "invalid_field")
        pieces.append(words)
    return "".join(pieces)


def order(body: ChatBody | CompletionBody, ignored: list[str], text: Text, context: int) -> Order:
    """The request with its defaults, checked against the model's context."""
    prompt = ids_of(body, text)
    if not prompt:
        raise RequestError("the prompt has no tokens", "empty_prompt")
    if len(prompt) >= context:
        raise RequestError(
            f"the prompt has {len(prompt)} tokens and the context holds {context}: shorten it",
            "context_length_exceeded",
        )
    asked = body.max_completion_tokens if body.max_tokens is None else body.max_tokens
    if asked is not None and asked < 1:
        raise RequestError(f"max_tokens is {asked}; at least 1 is needed", "invalid_field")
    room = context - len(prompt)
    stops = [body.stop] if isinstance(body.stop, str) else list(body.stop or [])
    chat = isinstance(body, ChatBody)
    count, sampling = min(asked or room, room), _sampling(body, text)
    if body.forced_tokens is not None:
        lengths = (body.max_tokens, body.max_completion_tokens)
        given = forced.checked(body.forced_tokens, lengths, stops, text.vocabulary, room)
        count, sampling = len(given), replace(sampling, forced=given)
    return Order(prompt, sampling, count, stops, body.stream, chat, ignored)


def _sampling(body: Common, text: Text) -> Sampling:
    sampling = Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=body.top_k or 0,
        min_p=body.min_p or 0.0,
        seed=secrets.randbits(32) if body.seed is None else body.seed,
        min_tokens=body.min_tokens,
        ignore_eos=body.ignore_eos,
        logit_bias=_biases(body.logit_bias or {}, text),
    )
    for holds, rule in (
        (sampling.temperature >= 0, "temperature must be 0 or more"),
        (0 < sampling.top_p <= 1, "top_p must be above 0 and at most 1"),
        (sampling.top_k >= 0, "top_k must be 0 (off) or more"),
        (0 <= sampling.min_p <= 1, "min_p must be between 0 and 1"),
        (0 <= sampling.seed < 2**64, "seed must be between 0 and 2^64 - 1"),
        (sampling.min_tokens >= 0, "min_tokens must be 0 or more"),
    ):
        if not holds:
            raise RequestError(rule, "invalid_field")
    return sampling


def _biases(given: dict[str, float], text: Text) -> dict[int, float]:
    biases: dict[int, float] = {}
    for key, amount in given.items():
        if not key.isdigit() or int(key) >= text.vocabulary:
            raise RequestError(f"logit_bias: '{key}' is no token id of this model", "invalid_field")
        biases[int(key)] = amount
    return biases
