"""Read the beginning that all prompts share at boot, from a file, into a slot of prompt_cache that goes last.

`file` holds text as the model gets it: with the tags of the chat template in it, which nothing is added to. It has to
be a strict prefix of prompts, in tokens. So it is refused

- when it ends with a closing tag (an end token of the model, <|im_end|>, </s>, </think> …): what comes after is the
  template's, line break and next role; up to the tag that opens the next turn it belongs into the file;
- when its last tokens become others as text follows (`Hello` before `world`, a line break before a second one). Safe is
  an end right behind a tag such as <|im_start|>, as no token goes across one. The reason says what to cut.

Needs prompt_cache, and is as exact as that: with `exact=true` only whole chunks of the file are taken. `runs` and
`hits` count the requests that went on from it, `reused` their tokens. `POST /admin/cache/clear` drops it too, as
what comes then is to be cold, and so does a memory limit that nothing else keeps; `given_up` counts that. Turned off
by not asking for it, or by SWITCHBOARD_PREWARM=0.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from switchboard.errors import Declined
from switchboard.registry import Counter, Started, switch
from switchboard.text import Text

CLOSING = re.compile(r"(</[\w-]+>|<\|/?[\w-]*(?:end|eot|eos|eom)[\w-]*\|>|<end_of_\w+>)$")
FOLLOWING = (*string.printable, "The", " the", "\n\n", "  ", " 1", "..", "'s", "é", "中")
"""What may come behind the file: letters, words, white space, digits, marks; and whatever ends a token there."""
TAIL = 64
"""Characters at the end of the file that are looked at; no token goes back further."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    file: str = ""


@switch(stage="start", exactness="rounding", options=Options, after="prompt_cache")
def prewarm(session: Any, options: Options, counter: Counter) -> Started:
    """Fill the slot."""
    if not options.file:
        raise Declined("no file is given: ask for prewarm:file=PATH")
    try:
        written = Path(options.file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Declined(f"file {options.file}: {error}") from error
    text, pool = session.loaded.text, session.pool
    ids = prefix(written, text, options.file)
    taken = len(ids) // pool.chunk * pool.chunk if pool.exact else len(ids)
    if taken < pool.least:
        unit = f"whole chunks of {pool.chunk} ({taken} tokens of it)" if pool.exact else "no less"
        raise Declined(
            f"file {options.file}: it has {len(ids)} tokens, and prompt_cache takes {pool.least} or more, {unit}"
        )
    if len(ids) >= session.loaded.context:
        raise Declined(
            f"file {options.file}: {len(ids)} tokens; the context has {session.loaded.context}"
        )
    session.read_ahead(ids)
    if not pool.told()["pinned"]:
        raise Declined(
            f"file {options.file}: its rows are more than prompt_cache's {pool.limit} bytes"
        )
    pool.pinned_counter = counter
    return Started(f"{taken} tokens of {options.file}")


def prefix(written: str, text: Text, name: str) -> list[int]:
    """The tokens of a text that goes on; Declined with the reason where they are no strict prefix of what follows."""
    ids = text.encode(written)
    if not ids:
        raise Declined(f"file {name}: it holds no token")
    tag = CLOSING.search(written.rstrip())
    if tag or text.encode(written.rstrip())[-1:] in [[one] for one in text.eos]:
        ends = f"the closing tag {tag[0]}" if tag else "an end token of the model"
        raise Declined(
            f"file {name}: it ends with {ends}; what follows one is the template's, so go on to the "
            "tag that opens the next turn, or end inside the turn"
        )
    end = written[-TAIL:]
    tail = text.encode(end)
    following = {*FOLLOWING, *_spanning(end.encode(), text)}
    stable, _, behind = min(
        (_stable(tail, text.encode(end + one)), len(one), one) for one in following
    )
    if stable < len(tail):
        changed = b"".join(text.token_bytes(one) for one in tail[stable:]).decode(errors="replace")
        raise Declined(
            f"file {name}: {len(tail) - stable} of its {len(ids)} tokens ({changed!r} at the end) become others when "
            f"{behind!r} follows; end it before them, best right behind a tag that opens a turn"
        )
    return ids


def _spanning(end: bytes, text: Text) -> Iterator[str]:
    """What completes a token of the vocabulary that begins within the text."""
    for token in range(text.vocabulary):
        piece = text.token_bytes(token)
        for size in range(1, len(piece)):
            if end.endswith(piece[:size]):
                with suppress(UnicodeDecodeError):
                    yield piece[size:].decode()


def _stable(ids: list[int], longer: list[int]) -> int:
    """How many tokens stay when something follows."""
    pairs = zip(ids, longer, strict=False)
    return next(
        (at for at, (one, other) in enumerate(pairs) if one != other), min(len(ids), len(longer))
    )
