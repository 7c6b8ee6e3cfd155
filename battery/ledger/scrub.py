"""Take what is private out of a record: secrets by their names, and the paths of this machine.

Receipts, headers and journals are made to be published. What a server printed, a command line and an
environment can hold keys and home folders; they pass through here first.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

HIDDEN = "<redacted>"
SECRET_LEAST = 8
"""Shorter words stand in too many places to be hidden wherever they stand."""
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
    r"(--?[\w-]*(?:api-?key|(?<!per-)token(?!s|iz)|secret|password|credential)[\w-]*)(=|\s+)(?!<)(\S+)",
    re.IGNORECASE,
)
_SECRET_FIELD = re.compile(
    r"""\b((?:[\w-]*(?:api[_-]?key|(?:access|auth|hf|bearer|refresh)[_-]?token|secret|passw(?:or)?d|credential)[\w-]*"""
    r"""|authorization)["']?\s*[:=]\s*\[?["']?)(?!<)(?:(?:basic|bearer|token)\s+)?([^\s"',;)}\]]+)""",
    re.IGNORECASE,
)
"""`OPENAI_API_KEY=…`, `api_key="…"`, `"x-api-key": "…"`, `Authorization: Basic …`, as logs and errors print them."""
_SECRET_WORD = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{8,}|hf_[A-Za-z0-9]{8,}|Bearer\s+[A-Za-z0-9._~+/-]{8,}=*"
    r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}\b|AIza[A-Za-z0-9_-]{30,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----|[\s\S]*)"
    r"|(?<=://)[^\s/:@\"'<>]+:[^\s/@\"'<>]+(?=@)"
)
"""Keys and tokens by their looks, private keys, and name and password in an address."""
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
    words = _SECRET_FIELD.sub(rf"\1{HIDDEN}", words)
    return _SECRET_WORD.sub(HIDDEN, words)


_OWN = ("~", ".", "<checkout>", "<venv>")


def private(words: str) -> Iterator[str]:
    """What of `words` is private, a kind for each: what looks like a secret, a home folder, a folder of this machine.

    A folder of this machine counts where its path has two parts or more: `/usr` and `/tmp` say nothing of anybody.
    """
    for pattern, kind in (
        (_SECRET_FLAG, "the value of a secret flag"),
        (_SECRET_FIELD, "the value of a secret field"),
        (_SECRET_WORD, "a key or token"),
        (_HOME, "a home folder"),
    ):
        if pattern.search(words):
            yield kind
    for folder, name in _folders():
        if name in _OWN and len(Path(folder).parts) > 2 and folder in words:
            yield "a folder of this machine"
            return


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
            key: HIDDEN if is_secret(str(key)) and _wordy(inner) else _deep(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_deep(inner) for inner in value)
    return value


def _wordy(value: Any) -> bool:
    """Whether a value may be a secret: a text, or a list of texts; numbers are counts."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(one, str) for one in value)
    return isinstance(value, str) and bool(value)


def record(value: T, secrets: Iterable[str] = ()) -> T:
    """A whole record without what is private, and without these very words wherever they stand."""
    known = {word for word in secrets if len(word) >= SECRET_LEAST}
    return msgspec.convert(without(deep(msgspec.to_builtins(value)), known), type(value))


def without(value: Any, words: Iterable[str]) -> Any:
    """Lists and tables without these very words, in whatever text they stand."""
    known = sorted(filter(None, words), key=len, reverse=True)
    if isinstance(value, str):
        for word in known:
            value = value.replace(word, HIDDEN)
        return value
    if isinstance(value, dict):
        return {key: without(one, known) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without(one, known) for one in value]
    return value


def hidden_in(environment: Mapping[str, str], words: Sequence[str] = ()) -> tuple[str, ...]:
    """The secrets that an environment and a command line hold, by the names of their variables and flags."""
    found = [value for name, value in environment.items() if is_secret(name)]
    for flag, value in pairwise(words):
        if flag.startswith("-") and "=" not in flag and is_secret(flag):
            found.append(value)
    for word in words:
        flag, equals, value = word.partition("=")
        if equals and flag.startswith("-") and is_secret(flag):
            found.append(value)
    return tuple(found)


def command(words: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """A command line fit for a record: the word after a secret-looking flag is hidden, and every word scrubbed."""
    shown: list[str] = []
    hide = False
    for word in words:
        shown.append(HIDDEN if hide else text(word))
        hide = word.startswith("-") and "=" not in word and is_secret(word)
    return tuple(shown)
