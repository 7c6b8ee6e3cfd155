"""Take what is private out of a record: secrets by their names, and the paths of this machine.

Receipts, headers and journals are made to be published. What a server printed, a command line and an
environment can hold keys and home folders; they pass through here first.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

HIDDEN = "<redacted>"
_SECRET_WORDS = {
    "key",
    "apikey",
    "token",
    "secret",
    "password",
    "passwd",
    "credential",
    "credentials",
    "authorization",
}
_SECRET_FLAG = re.compile(
    r"(--?[\w-]*(?:api-?key|token(?!s|iz)|secret|password|credential)[\w-]*)(=|\s+)(?!<)(\S+)",
    re.IGNORECASE,
)
_SECRET_WORD = re.compile(
    r"\b(sk-[A-Za-z0-9_-]{8,}|hf_[A-Za-z0-9]{8,}|Bearer\s+[A-Za-z0-9._~+/-]{8,}=*)"
)
_HOME = re.compile(r"(?:/root|/home/[^/\s\"':,]+|/Users/[^/\s\"':,]+)(?=/|\b)")


def is_secret(name: str) -> bool:
    """Whether a variable or flag of this name is taken to hold a secret."""
    return not _SECRET_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", name.lower()))


_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
"""Terminal codes (colours, titles, cursor) and other control characters, but tab and line ends."""


def text(words: str) -> str:
    """`words` without secrets and terminal codes; this machine's folders by what they are: <venv>, <tmp>, ., ~."""
    words = _CONTROL.sub("", words)
    for folder, name in _folders():
        words = words.replace(folder, name)
    words = _HOME.sub("~", words)
    words = _SECRET_FLAG.sub(rf"\1\2{HIDDEN}", words)
    return _SECRET_WORD.sub(HIDDEN, words)


def _folders() -> list[tuple[str, str]]:
    """Folders of this machine and what they are called in a record, the longest first."""
    known = {
        sys.prefix: "<venv>",
        sys.base_prefix: "<python>",
        str(Path.cwd()): ".",
        str(Path(__file__).parents[2]): "<checkout>",
        tempfile.gettempdir(): "<tmp>",
        str(Path.home()): "~",
    }
    return sorted(
        ((folder, name) for folder, name in known.items() if len(folder) > 3),
        key=lambda x: -len(x[0]),
    )


def deep(value: T) -> T:
    """The same for every text inside lists and tables; values of secret-looking keys are hidden whole."""
    return _deep(value)  # type: ignore[no-any-return]


def _deep(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {
            key: HIDDEN
            if isinstance(inner, str) and inner and is_secret(str(key))
            else _deep(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_deep(inner) for inner in value)
    return value


def command(words: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """A command line fit for a record: the word after a secret-looking flag is hidden, and every word scrubbed."""
    shown: list[str] = []
    hide = False
    for word in words:
        shown.append(HIDDEN if hide else text(word))
        hide = word.startswith("-") and "=" not in word and is_secret(word)
    return tuple(shown)
