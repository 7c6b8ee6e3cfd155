"""A request's prompt as token ids: text, ids, or a conversation through the model's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from switchboard import vision
from switchboard.errors import RequestError
from switchboard.text import Text


def of_text(prompt: str | Sequence[int], text: Text) -> list[int]:
    """The ids of a text, or ids that were given, once each is known to be in the vocabulary."""
    if isinstance(prompt, str):
        return text.encode(prompt)
    for place, token in enumerate(prompt):
        if token >= text.vocabulary:
            raise RequestError(
                f"prompt[{place}]: token id {token} is outside the vocabulary of {text.vocabulary}",
                "not_in_vocabulary",
                param="prompt",
            )
    return list(prompt)


def of_messages(messages: Sequence[Any], text: Text) -> list[int]:
    """The ids of what the model's own chat template makes of a conversation."""
    turns: list[dict[str, Any]] = []
    for place, one in enumerate(messages):
        turn = {"role": one.role, "content": written(one.content, f"messages[{place}]", text)}
        turns.append(turn if one.name is None else {**turn, "name": one.name})
    return text.encode(text.chat(turns))


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
                param="messages",
            )
        more = sorted(set(part) - {"type", "text"})
        if kind != "text" or not isinstance(words, str) or more:
            raise RequestError(
                f"{here} must be of type 'text' and hold a text, and nothing else",
                "invalid_field",
                param="messages",
            )
        pieces.append(words)
    return "".join(pieces)
