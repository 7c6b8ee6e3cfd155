"""Prompts of an exact length in the model's own tokens, from natural text that does not repeat itself.

A prompt is a pure function of workload, seed, rung and a number of words; sizing finds that number
with the server's own tokenizer and chat template, before any window opens. Filler that repeats would
flatter speculation, and a prompt that shares its beginning with another would time the server's prefix
cache: so each starts with words of its own.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import os
import platform
import random
import re
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from battery.ledger import strict
from battery.ledger.errors import PlanError

Messages = list[dict[str, str]]
Count = Callable[[Messages], list[int]]

_NOT_CODE = {
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "encodings",
    "pydoc_data",
    "turtledemo",
}
"""Folders of the standard library that are tables, tests or demonstrations."""
_HOST = re.compile("pypi", re.IGNORECASE)
"""Files that name the package index are left out: a model repeats its address, and receipts keep what it wrote."""
_WORD = re.compile(r"\s*\S+")
_TASK = {
    "prose": "Continue the passage above with new sentences in the same style. Write only the continuation.",
    "code": "Continue the Python file above with further functions that fit it. Write only code.",
    "edit": "Repeat the Python file above exactly, but rename the first function to `renamed`. Write only code.",
}


class Corpus(msgspec.Struct, frozen=True):
    """A text in paragraphs, and where it is from."""

    source: str
    paragraphs: tuple[str, ...]


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """How one prompt was sized; with workload and seed it can be composed again."""

    rung: int
    seed: int
    words: int
    """Words taken from the corpus."""
    letters: int
    """Letters of one more word, to land on the exact token."""
    tokens: int
    """Counted by the server, after its chat template."""
    digest: str
    shared_prefix: int
    """Longest run of first tokens that it shares with any other prompt of the campaign: the template's own."""
    continuation: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    """Token ids of the recorded answer that every arm follows in a replay; not written in a free campaign."""

    @property
    def forced(self) -> tuple[int, ...]:
        """The recorded answer; nothing in a free campaign."""
        return self.continuation if isinstance(self.continuation, tuple) else ()


@functools.cache
def corpus(workload: str) -> Corpus:
    """The text that a workload draws from: packaged public-domain prose, or Python's own sources."""
    if workload == "prose":
        packed = resources.files("battery.bench").joinpath("corpus", "prose.txt.gz").read_bytes()
        text = gzip.decompress(packed).decode("utf-8")
        return Corpus(
            f"prose.txt.gz sha256 {strict.digest(packed)[:16]}", tuple(text.strip().split("\n\n"))
        )
    if workload == "edit":
        return corpus("code")
    files = sorted(_sources(Path(sysconfig.get_path("stdlib"))))
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in files)
    source = f"standard library of Python {platform.python_version()}"
    return Corpus(
        source, tuple(text for text in texts if len(text) > 4000 and not _HOST.search(text))
    )


def _sources(folder: Path) -> Iterator[Path]:
    """Python files below a folder; what is no code is not walked through: installed packages can be many."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_CODE]
        yield from (Path(where, name) for name in names if name.endswith(".py"))


def compose(workload: str, seed: int, rung: int, words: int, letters: int = 0) -> Messages:
    """The messages of one prompt: `words` words of natural text from a place that the seed picks, then the task."""
    rng = random.Random(f"{workload}/{seed}/{rung}")
    text, following = _passage(workload, rng.random(), words)
    text = (text + following[:letters]).strip()
    opening = f"{rng.getrandbits(40):010x} {rng.choice(_openings())}"
    system = f"{opening}: you are a careful assistant who answers in plain English."
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"{text}\n\n{_TASK[workload]}"},
    ]


LONGEST_FIRST = 40
"""Characters of the longest word that a passage may begin with."""


@functools.cache
def _openings() -> tuple[str, ...]:
    """Words that prompts open with, so that their first tokens differ."""
    words = {
        word
        for paragraph in corpus("prose").paragraphs
        for word in re.findall(r"[A-Z][a-z]{4,}", paragraph)
    }
    return tuple(sorted(words))


def _passage(workload: str, where: float, words: int) -> tuple[str, str]:
    """`words` words from the paragraph at the share `where` of the corpus on, and the word that follows them.

    A word carries the white space before it.
    """
    paragraphs = corpus(workload).paragraphs
    start, taken, parts = int(where * len(paragraphs)), 0, []
    # a ruler of 80 signs would be a short prompt's only word
    while len(paragraphs[start % len(paragraphs)].split(maxsplit=1)[0]) > LONGEST_FIRST:
        start += 1
    for step in range(len(paragraphs)):
        pieces = _WORD.findall(paragraphs[(start + step) % len(paragraphs)])
        room = words - taken
        if len(pieces) > room:
            parts.append("".join(pieces[:room]))
            return "\n\n".join(parts), pieces[room]
        parts.append("".join(pieces))
        taken += len(pieces)
    raise PlanError(
        f"the {workload} corpus has {taken:,} words; a longer prompt would repeat itself: choose a shorter rung"
    )


def size(
    workload: str, seed: int, rung: int, count: Count, tolerance: int
) -> tuple[Prompt, list[int]]:
    """The prompt whose token count is `rung` or as near below it as words allow, and its tokens.

    Bisects over words, then adds letters of the next word one by one. PlanError if even the bare task is longer than
    the rung, or the nearest length misses it by more than `tolerance`.
    """

    def tokens_at(words: int, letters: int = 0) -> list[int]:
        return count(compose(workload, seed, rung, words, letters))

    if len(tokens_at(1)) > rung:
        raise PlanError(
            f"ladder: {rung} tokens cannot hold the prompt's frame ({len(tokens_at(1))} tokens)"
        )
    low, high = 1, max(8, rung // 2)
    while len(tokens_at(high)) <= rung:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if len(tokens_at(middle)) <= rung:
            low = middle
        else:
            high = middle
    best, letters = tokens_at(low), 0
    where = random.Random(f"{workload}/{seed}/{rung}").random()
    following = _passage(workload, where, low)[1]
    for more in range(len(following) - len(following.lstrip()) + 1, len(following) + 1):
        if len(best) == rung:
            break
        trial = tokens_at(low, more)
        if len(best) < len(trial) <= rung:
            best, letters = trial, more
    if rung - len(best) > tolerance:
        raise PlanError(
            f"ladder: the nearest prompt to {rung} tokens has {len(best)}, beyond the tolerance {tolerance}"
        )
    digest = strict.digest(compose(workload, seed, rung, low, letters))
    prompt = Prompt(
        rung=rung,
        seed=seed,
        words=low,
        letters=letters,
        tokens=len(best),
        digest=digest,
        shared_prefix=0,
    )
    return prompt, best


def size_all(needed: Sequence[tuple[str, int, int]], count: Count, tolerance: int) -> list[Prompt]:
    """Every prompt (workload, rung, seed) of a campaign, with the longest beginning that it shares with another one."""
    sized = [size(workload, seed, rung, count, tolerance) for workload, rung, seed in needed]
    order = sorted(range(len(sized)), key=lambda i: sized[i][1])
    shared = [0] * len(sized)
    for left, right in itertools.pairwise(order):
        same = _common(sized[left][1], sized[right][1])
        shared[left], shared[right] = max(shared[left], same), max(shared[right], same)
    return [
        msgspec.structs.replace(prompt, shared_prefix=shared[i])
        for i, (prompt, _) in enumerate(sized)
    ]


def _common(one: list[int], other: list[int]) -> int:
    """Length of the common beginning."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))
