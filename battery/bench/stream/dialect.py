"""What servers call things: text, reasoning, tool calls, errors, usage and timings, out of one decoded chunk. Pure.

Every OpenAI-like server has words of its own for the same thing; this file alone knows them. Null, missing and empty
are three cases, and none of them is an error or a zero.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from battery.ledger.trace import Kind

EVIDENCE_BYTES = 400
FAILED_FINISH = (
    "abort", "aborted", "cancelled", "canceled", "error", "failed", "insufficient_system_resource", "timeout",
)  # fmt: skip
KEEP_ALIVE = ("heartbeat", "keep-alive", "keepalive", "ping")
"""Names of events that only say that the connection lives."""
UNSHOWN = 12
"""Tokens that may come without text: end marks, channel marks, the frame of a template."""

_LLAMA_CPP = {
    "prompt_n": ("prompt_tokens", 1),
    "prompt_ms": ("prompt_s", 1e-3),
    "predicted_n": ("decode_tokens", 1),
    "predicted_ms": ("decode_s", 1e-3),
    "cache_n": ("cached_tokens", 1),
    "draft_n": ("proposed", 1),
    "draft_n_accepted": ("accepted", 1),
}
_CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def document(text: str) -> Any:
    """A chunk's JSON; ValueError (or RecursionError) where it is none.

    An escape that is half of a surrogate pair is kept: some servers cut a character over two chunks.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        if not _HALF.search(text):
            raise
    chunk = json.loads(text, parse_constant=_no_number)
    if not isinstance(chunk, dict):
        return mended(chunk)
    # only in text can the other half still come
    return {mended(name): value if name == "choices" else mended(value) for name, value in chunk.items()}  # fmt: skip


def mended(value: Any) -> Any:
    """The same without halves of characters, which no receipt can hold; each becomes a question mark."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [mended(one) for one in value]
    if isinstance(value, dict):
        return {mended(name): mended(one) for name, one in value.items()}
    return value


def _no_number(word: str) -> None:
    """Refuse NaN and Infinity, which are no JSON."""
    raise ValueError(f"{word} is no JSON")


def joined(pieces: list[str]) -> tuple[str, bool]:
    """(the text, whether a character in it is broken): halves of a surrogate pair in neighbouring pieces are one."""
    text = "".join(pieces)
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text, False
    raw = text.encode("utf-16-le", "surrogatepass")
    try:
        return raw.decode("utf-16-le"), False
    except UnicodeDecodeError:
        return raw.decode("utf-16-le", "replace"), True


def texts_in(choice: dict[str, Any]) -> dict[Kind, str]:
    """The text that one choice adds, by kind; kinds without text are left out."""
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    content, thought = _parts(delta.get("content"))
    plain = choice.get("text")
    refusal = delta.get("refusal")
    said: dict[Kind, object] = {
        # Some servers send both spellings with the same text; taking both would count it twice.
        "reasoning": delta.get("reasoning_content") or delta.get("reasoning") or thought,
        "content": content or refusal or plain,
        "tool": _calls(delta),
    }
    return {kind: text for kind, text in said.items() if isinstance(text, str) and text}


def _parts(content: object) -> tuple[str, str]:
    """(text, reasoning) of a delta's content: a string, or a list of typed parts."""
    if isinstance(content, str):
        return content, ""
    text: list[str] = []
    thought: list[str] = []
    for part in content if isinstance(content, list) else []:
        kind, words = "text", part
        if isinstance(part, dict):
            kind = str(part.get("type") or "text")
            words = part.get("text") or part.get("thinking") or part.get("refusal")
        words = "".join(_parts(words)) if isinstance(words, list) else words
        if isinstance(words, str):
            (thought if kind in ("thinking", "reasoning") else text).append(words)
    return "".join(text), "".join(thought)


def _calls(delta: dict[str, Any]) -> str:
    """Names and arguments of the tool calls in a delta, joined."""
    calls = delta.get("tool_calls")
    found = [
        call.get("function")
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, dict)
    ]
    found.append(delta.get("function_call"))
    return "".join(
        part
        for function in found
        if isinstance(function, dict)
        for part in (function.get("name"), function.get("arguments"))
        if isinstance(part, str)
    )


def message_in(whole: object) -> dict[str, Any] | None:
    """The first choice of an answer that was not streamed, its message as a delta; None where it is none."""
    choices = whole.get("choices") if isinstance(whole, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return None
    return {**choice, "delta": choice.get("message")}


def finish_in(choice: dict[str, Any]) -> str | None:
    """The finish reason of one choice; an empty one is none, one in a table of its own is its type."""
    said = choice.get("finish_reason")
    if isinstance(said, dict):
        said = said.get("type")
    return mended(said) if isinstance(said, str) and said else None


def failed(finish_reason: str | None) -> bool:
    """Whether a finish reason says that the server failed."""
    return (finish_reason or "").lower() in FAILED_FINISH


def error_in(chunk: object) -> str | None:
    """The words of an error document, None where it is none (`"error": null` is none)."""
    if not isinstance(chunk, dict):
        return None
    error = chunk.get("error")
    if error is None and "error" in (chunk.get("object"), chunk.get("type")):
        error = chunk
    if error is None or error is False or error == "":
        return None
    words = error.get("message") if isinstance(error, dict) else error
    return str(words or error)[:EVIDENCE_BYTES]


def error_words(body: bytes) -> str:
    """The message in an error body, or its first characters."""
    try:
        said = error_in(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        said = None
    return said or body[:200].decode("utf-8", "replace").strip() or "an empty body"


def usage_in(chunk: dict[str, Any], choice: dict[str, Any] | None) -> dict[str, Any] | None:
    """The usage of a chunk, which some servers put into the choice."""
    for place in (chunk, choice or {}):
        if isinstance(place.get("usage"), dict):
            return mended(dict(place["usage"]))  # type: ignore[no-any-return]
    return None


def grown(before: dict[str, Any] | None, said: dict[str, Any]) -> dict[str, Any]:
    """Usage with what a later chunk says; a null does not take back a figure."""
    known = before or {}
    told = {key: value for key, value in said.items() if value is not None or key not in known}
    return {**known, **told}


def unshown(usage: dict[str, Any], reasoning_came: bool) -> int:
    """Tokens that usage counts and says were never sent as text: hidden reasoning, refused predictions, sound."""
    details = usage.get("completion_tokens_details")
    details = details if isinstance(details, dict) else {}
    names = ["rejected_prediction_tokens", "audio_tokens"]
    names += [] if reasoning_came else ["reasoning_tokens"]
    return sum(count(details.get(name)) or 0 for name in names)


def cached_in(usage: dict[str, Any], timings: dict[str, Any] | None) -> int | None:
    """Prompt tokens that the server says came from a cache, None where it says nothing.

    The most that it says anywhere: a nought in one place does not take back what another place admits.
    """
    details = usage.get("prompt_tokens_details")
    places = [details if isinstance(details, dict) else {}, usage, timings or {}]
    said = [count(place.get(name)) for place in places for name in _CACHED]
    return max((number for number in said if number is not None), default=None)


def normal_timings(sent: dict[str, Any] | None) -> dict[str, Any] | None:
    """The server's timings as sent, with llama.cpp's figures also under our names and in seconds."""
    if sent is None:
        return None
    named: dict[str, Any] = {}
    for theirs, (ours, scale) in _LLAMA_CPP.items():
        value = sent.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool) and ours not in sent:
            named[ours] = value if scale == 1 else value * scale
    return {**sent, **named}


def count(value: object) -> int | None:
    """A number of tokens; None for anything else, null and true included."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None
