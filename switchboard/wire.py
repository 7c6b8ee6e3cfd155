"""Requests of the OpenAI API: read strictly, with every default filled in.

An unknown field is an error that names it and the nearest known one, never a silent drop: a sampler that the server
ignored would void a measurement. A few fields of the API that change nothing here are listed, and told back as
ignored; a few others are accepted at their neutral value only. The bounds stand in the types, so that the document at
/openapi.json, which is made from them, cannot say anything else than what is enforced.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from switchboard import forced
from switchboard import prompt as prompts
from switchboard.errors import RequestError
from switchboard.registry import unknown
from switchboard.sampler import Sampling
from switchboard.text import Text

IGNORED = frozenset(
    {"metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user"}
)
NEUTRAL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "audio": (None,),
        "best_of": (None, 1),
        "echo": (None, False),
        "frequency_penalty": (None, 0),
        "modalities": (None, ["text"]),
        "n": (None, 1),
        "parallel_tool_calls": (None, True, False),
        "prediction": (None,),
        "presence_penalty": (None, 0),
        "response_format": (None, {"type": "text"}),
        "suffix": (None, ""),
        "tool_choice": (None, "none", "auto"),
        "tools": (None, []),
    }
)
"""What each of these may be."""
COLDEST = 1e-5
"""A temperature below this is 0, as logits over it leave the range of float32."""
NARROWEST = 1e-6
"""A top_p below this keeps the most likely token, as this does; float32 has no smaller share beside 1."""
Shape = TypeVar("Shape", bound=msgspec.Struct)
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Tokens = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Stop = Annotated[str, Meta(min_length=1, max_length=512)]
Likeliest = Annotated[int, Meta(ge=0, le=20)]
Share = Annotated[float, Meta(ge=0, le=1)]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Usage is sent at the end of every stream, whatever this says."""

    include_usage: bool | None = None


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """One turn of a conversation: text, or a list of parts that are text.

    The fields after `name` stand empty in the answers of this API, and may come back so.
    """

    role: str
    content: str | list[dict[str, Any]]
    name: str | None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    audio: None = None
    annotations: None = None


Messages = Annotated[list[Message], Meta(min_length=1)]


class Common(msgspec.Struct, kw_only=True):
    """Fields that both endpoints share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Tokens | None = None
    min_p: Share | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    min_tokens: Tokens = 0
    ignore_eos: bool = False
    stop: Stop | Annotated[list[Stop], Meta(max_length=16)] | None = None
    logit_bias: (
        dict[
            Annotated[str, Meta(pattern="^[0-9]{1,9}$")],
            Annotated[float, Meta(ge=-100, le=100)],
        ]
        | None
    ) = None
    forced_tokens: Annotated[list[Tokens], Meta(min_length=1)] | None = None
    """A recorded answer that takes the place of what would be chosen; every pass is made all the same."""


class ChatBody(Common, kw_only=True):
    """Body of /v1/chat/completions."""

    messages: Messages
    logprobs: bool | None = None
    top_logprobs: Likeliest | None = None


class CompletionBody(Common, kw_only=True):
    """Body of /v1/completions: text, or token ids."""

    logprobs: Likeliest | None = None
    prompt: Annotated[str, Meta(min_length=1)] | Annotated[list[Tokens], Meta(min_length=1)]


class TokenizeBody(msgspec.Struct, kw_only=True):
    """Body of /tokenize: a conversation, or text; one of them."""

    model: str | None = None
    messages: Messages | UnsetType = UNSET
    prompt: str | UnsetType = UNSET


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
    logprobs: int | None


def read(raw: bytes, shape: type[Shape]) -> tuple[Shape, list[str]]:
    """The body in its shape, and the fields that were ignored."""
    try:
        raw.decode()
        given = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise RequestError("the body must be a JSON object", "invalid_json") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not JSON: {error}", "invalid_json") from error
    except RecursionError as error:
        raise _too_deep() from error
    fields = [one.name for one in msgspec.structs.fields(shape)]
    ignored = sorted(IGNORED & given.keys())
    for name in given:
        if name in fields or name in IGNORED:
            continue
        if name not in NEUTRAL:
            raise RequestError(unknown("field", name, fields), "unknown_field", param=name)
        if not neutral(name, given[name]):
            told = f"field '{name}' is supported at its neutral value only"
            raise RequestError(told, "unsupported", param=name)
        ignored.append(name)
    try:
        return _shaped(raw, shape), ignored
    except msgspec.ValidationError as error:
        told = str(error)
        named = re.search(r"`\$\.(\w+)", told) or re.search(r"required field `(\w+)`", told)
        param = named[1] if named else None
        raise RequestError(told, "invalid_field", param=param) from error
    except RecursionError as error:
        raise _too_deep() from error


def _shaped(raw: bytes, shape: type[Shape]) -> Shape:
    """The body in its shape; 2.0 is a whole number, as JSON Schema has it and some clients write it."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        try:
            return msgspec.convert(LENIENT.decode(raw), shape)
        except msgspec.DecodeError:
            raise error from None


def _number(literal: str) -> float:
    value = float(literal)
    return int(value) if value.is_integer() else value


LENIENT = msgspec.json.Decoder(float_hook=_number)


def neutral(name: str, raw: msgspec.Raw) -> bool:
    """Whether a field has one of its neutral values; a truth value is no number."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return any(value == one and _kind(value) is _kind(one) for one in NEUTRAL[name])


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _too_deep() -> RequestError:
    return RequestError("the body is nested too deeply", "invalid_json")


def tokenized(body: TokenizeBody, text: Text) -> list[int]:
    """Token ids of a prompt as the completion endpoints would take it."""
    if isinstance(body.messages, list) and isinstance(body.prompt, UnsetType):
        return prompts.of_messages(body.messages, text)
    if isinstance(body.prompt, str) and isinstance(body.messages, UnsetType):
        return prompts.of_text(body.prompt, text)
    raise RequestError("give either messages or prompt", "invalid_field", param="prompt")


def order(body: ChatBody | CompletionBody, ignored: list[str], text: Text, context: int) -> Order:
    """The request with its defaults, checked against the model's context."""
    chat = isinstance(body, ChatBody)
    field = "messages" if chat else "prompt"
    ids = (
        prompts.of_messages(body.messages, text)
        if isinstance(body, ChatBody)
        else prompts.of_text(body.prompt, text)
    )
    if not ids:
        raise RequestError(f"{field}: the prompt has no tokens", "empty_prompt", param=field)
    if len(ids) >= context:
        raise RequestError(
            f"{field}: the prompt has {len(ids)} tokens and the context holds {context}: shorten it",
            "context_length_exceeded",
            param=field,
        )
    stops = [body.stop] if isinstance(body.stop, str) else list(body.stop or [])
    room = context - len(ids)
    count = min(body.max_tokens or room, body.max_completion_tokens or room, room)
    sampling = _sampling(body, text)
    if body.forced_tokens is not None:
        lengths = (body.max_tokens, body.max_completion_tokens)
        given = forced.checked(body.forced_tokens, lengths, stops, text.vocabulary, room)
        count, sampling = len(given), replace(sampling, forced=given)
    return Order(
        ids,
        sampling,
        count,
        stops,
        bool(body.stream),
        chat,
        ignored,
        _likeliest(body),
    )


def _likeliest(body: ChatBody | CompletionBody) -> int | None:
    """How many likeliest tokens to tell at each place, or None where no probabilities are asked for."""
    if isinstance(body, CompletionBody):
        return body.logprobs
    if body.top_logprobs is not None and not body.logprobs:
        told = "top_logprobs needs logprobs to be true"
        raise RequestError(told, "needs_logprobs", param="top_logprobs")
    return (body.top_logprobs or 0) if body.logprobs else None


def _sampling(body: Common, text: Text) -> Sampling:
    temperature = 1.0 if body.temperature is None else body.temperature
    return Sampling(
        temperature=0.0 if temperature < COLDEST else temperature,
        top_p=1.0 if body.top_p is None else max(body.top_p, NARROWEST),
        top_k=body.top_k or 0,
        min_p=body.min_p or 0.0,
        seed=secrets.randbits(32) if body.seed is None else body.seed,
        min_tokens=body.min_tokens,
        ignore_eos=body.ignore_eos,
        logit_bias=_biases(body.logit_bias or {}, text),
    )


def _biases(given: dict[str, float], text: Text) -> dict[int, float]:
    for key in given:
        if int(key) >= text.vocabulary:
            raise RequestError(
                f"logit_bias: token id {key} is outside the vocabulary of {text.vocabulary}",
                "not_in_vocabulary",
                param="logit_bias",
            )
    return {int(key): amount for key, amount in given.items()}
