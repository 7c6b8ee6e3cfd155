"""Text to token ids and back, chat templates, and text that arrives in pieces.

A token is bytes, not text: one character may need several tokens. `Pieces` holds an incomplete character back, and
its token ids with it, so that every event carries text and exactly the ids that made it.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from switchboard.errors import RequestError

FALLBACK_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


@dataclass(frozen=True)
class Text:
    """What one model needs to read and write text."""

    encode: Callable[[str], list[int]]
    token_bytes: Callable[[int], bytes]
    eos: tuple[int, ...]
    template: str | None
    vocabulary: int
    no_images: str = "the model has no vision parts"
    """Why a request with an image is refused."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What a chat template may call the special tokens by: `bos_token`, `eos_token`."""

    def chat(self, messages: Sequence[dict[str, Any]]) -> str:
        """The text that the model's own chat template makes of a conversation, ready for the answer."""
        compiled = _compiled(self.template or FALLBACK_TEMPLATE)
        try:
            return compiled.render(
                messages=list(messages), add_generation_prompt=True, **self.names
            )
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            raise refused_by_template(str(error)) from error


def without_images(text: Text, reason: str) -> Text:
    """The same text side, with another reason for refusing images."""
    return replace(text, no_images=reason)


@lru_cache(maxsize=4)
def _compiled(template: str) -> Template:
    """A chat template ready to render; compiling one takes longer than rendering it.

    As the published templates expect it: loops may be left early, and `tojson` writes letters as they are.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = _raise
    return environment.from_string(template)


def _raise(message: str) -> None:
    raise refused_by_template(message)


def refused_by_template(message: str) -> RequestError:
    """A conversation that the model's chat template cannot take: a role, or an order, that it does not know."""
    return RequestError(f"messages: chat template: {message}", "chat_template", param="messages")


def byte_alphabet() -> dict[str, int]:
    """The byte behind each printable character of byte-level BPE (the mapping of GPT-2).

    Printable bytes stand for themselves; the other 68 are moved to U+0100 and up, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    moved = [byte for byte in range(256) if byte not in set(printable)]
    alphabet.update({chr(256 + place): byte for place, byte in enumerate(moved)})
    return alphabet


def from_byte_level_bpe(
    *,
    tokens: list[str],
    merges: list[str],
    special: list[str],
    digits: bool,
    eos: list[int],
    template: str | None,
    names: Mapping[str, str] | None = None,
) -> Text:
    """A byte-level BPE tokenizer from its tables; special tokens are recognised in text and write nothing."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    vocabulary = {token: place for place, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    if digits:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return from_tokenizer(tokenizer, tokens, set(special), tuple(eos), template, names)


def from_tokenizer(
    tokenizer: Any,
    tokens: Sequence[str],
    special: set[str],
    eos: tuple[int, ...],
    template: str | None,
    names: Mapping[str, str] | None = None,
) -> Text:
    """Wrap a tokenizer of the `tokenizers` package, with its tokens in the order of their ids."""
    alphabet = byte_alphabet()
    byte_level = "Ġ" in tokens or "Ċ" in tokens

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    def token_bytes(token: int) -> bytes:
        piece = tokens[token] if token < len(tokens) else ""
        if piece in special:
            return b""
        if byte_level:
            return b"".join(bytes([alphabet[c]]) if c in alphabet else c.encode() for c in piece)
        if len(piece) == 6 and piece.startswith("<0x"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("▁", " ").encode()

    return Text(encode, token_bytes, eos, template, len(tokens), names=names or {})


def bytes_only(vocabulary: int) -> Text:
    """A trivial tokenizer for synthetic models: an id below 256 is that byte, 256 ends, others are a letter."""

    def token_bytes(token: int) -> bytes:
        if token < 256:
            return bytes([token])
        return b"" if token == 256 else bytes([97 + token % 26])

    return Text(lambda text: list(text.encode()), token_bytes, (256,), None, vocabulary)


@dataclass(frozen=True)
class Piece:
    """Text that became certain, and the ids of the tokens behind it."""

    text: str
    ids: list[int]
    offsets: list[int]
    """Where in the answer's text that which each token adds begins, in characters."""
    entries: list[Any]
    """What is known of each token's probability (see logprobs), when that was asked for."""


def joined(pieces: Sequence[Piece]) -> Piece:
    """Several pieces as one."""
    return Piece(
        "".join(one.text for one in pieces),
        [token for one in pieces for token in one.ids],
        [offset for one in pieces for offset in one.offsets],
        [entry for one in pieces for entry in one.entries],
    )


class Pieces:
    """Collects tokens into pieces of whole characters, and watches for stop strings.

    Text that could be the start of a stop string is held back until it is certain that it is none. After a stop
    string nothing more comes out. A stop string counts where all of it lies behind the first `least` tokens.
    """

    def __init__(
        self, token_bytes: Callable[[int], bytes], stops: Sequence[str] = (), least: int = 0
    ) -> None:
        self._token_bytes = token_bytes
        self._stops = tuple(stops)
        self._least = least
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._free = 0
        """Characters at the start of what is held in which no stop string is looked for."""
        self._shown = 0
        self._ids: list[int] = []
        self._offsets: list[int] = []
        self._entries: list[Any] = []
        self.stopped = False
        self.taken = 0

    def push(self, tokens: Sequence[int], entries: Sequence[Any] = ()) -> Piece | None:
        """The next piece, or None while there is nothing certain to show."""
        for place, token in enumerate(tokens):
            if self.stopped:
                break
            self._ids.append(token)
            self._offsets.append(self._shown + len(self._held))
            self._entries.extend(entries[place : place + 1])
            self.taken += 1
            self._held += self._decoder.decode(self._token_bytes(token))
            if self.taken <= self._least:
                self._free = len(self._held)
            self._look_for_stop()
        keep = 0 if self.stopped else self._possible_stop()
        ready = len(self._held) - keep
        return self._release(ready) if ready else None

    def finish(self) -> Piece:
        """Whatever is left, with an incomplete character shown as U+FFFD; may be empty."""
        if not self.stopped:
            self._held += self._decoder.decode(b"", final=True)
        return self._release(len(self._held))

    def _release(self, ready: int) -> Piece:
        piece = Piece(self._held[:ready], self._ids, self._offsets, self._entries)
        self._held = self._held[ready:]
        self._free = max(0, self._free - ready)
        self._shown += ready
        self._ids, self._offsets, self._entries = [], [], []
        return piece

    def _look_for_stop(self) -> None:
        places = [self._held.find(stop, self._free) for stop in self._stops]
        found = [place for place in places if place >= 0]
        if found:
            self._held = self._held[: min(found)]
            self.stopped = True

    def _possible_stop(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._held) - self._free), longest, -1):
                if self._held.endswith(stop[:size]):
                    longest = size
                    break
        return longest
