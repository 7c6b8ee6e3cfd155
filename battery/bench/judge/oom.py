"""Whether a failure was for want of memory, by what allocators and kernels say in words.

Pure. An allocator's own words are evidence; a bare "oom" inside another word, a timeout, SIGKILL alone, advice on what
to do "if you are running out of memory", and words that the request or the model's own answer already held are not.
Each family has its real texts in tests/bench/test_oom.py.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

FAMILIES: dict[str, str] = {
    # Metal's command buffers; impacting interactivity (0000000e) and innocent victim (00000005) are other things
    "Metal": r"insufficient[ _]memory|ErrorOutOfMemory\b",
    "MLX": r"\[metal::malloc\]|\[malloc(?:_or_wait)?\] unable to allocate"
    r"|attempting to allocate \d+ bytes which is greater than the maximum",
    "CUDA": r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
    r"|CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED|ErrorOutOf(?:Device|Host)Memory",
    "C++": r"std::bad_alloc|memory allocation of \d+ bytes failed",
    # "cannot allocate memory in static TLS block" is a loader's complaint about a library's thread storage
    "libc": r"can(?:not|'t) allocate memory(?! in static TLS)|\bENOMEM\b",
    "Python": r"(?<![a-z])(?:_Array)?MemoryError\b"
    r"|unable to allocate [\d.,]+ ?(?:[KMGTP]?i?B\b|bytes)",
    # pinned host memory that cannot be had is done without
    "llama.cpp": r"(?:failed|unable) to allocate (?:[\w-]+ ){0,3}buffers?\b",
    "vLLM": r"no available memory for the cache blocks"
    r"|larger than the available KV cache memory",
    "kernel": r"\boom[-_ ]?kill(?:ed|er)\b"
    r"|killed [^\n]{0,120}due to (?:memory pressure|the node running low on memory)",
    # said by nearly all of them; "out of memory bounds" is a wrong index, "out of memory slots" a full table
    "any": r"(?<!running )out[-_ ]of[-_ ]memory(?![-_ ]*(?:bounds?|slots?|range|order)\b)"
    r"|OutOfMemory(?:Error|Exception)"
    r"|\bnot enough memory\b(?! slots)",
}
_SAYS = re.compile(
    "|".join(f"(?P<f{at}>{words})" for at, words in enumerate(FAMILIES.values())), re.IGNORECASE
)
_SENTENCE_ENDS = re.compile(r"[.!?;]\s|\n")
_ADVICE = re.compile(
    r"\bif\b|\b(?:may|might|can|could|would)\b(?! ?not\b|n't)|\bavoid|\bprevent|\bin case of\b|\brisk of\b|\bpotential",
    re.IGNORECASE,
)
AROUND = 80
ECHO = 24
"""So many characters around the words must agree with the request before they count as its echo."""


class Words(NamedTuple):
    """What was said, where, and whose way of saying it that is."""

    where: str
    family: str
    text: str


def words(texts: Mapping[str, str | None], echoes: Sequence[str] = ()) -> Words | None:
    """The first allocator's words in `texts` (place: text, the most telling place first); None where there are none.

    `echoes` are texts that the request carried or the model wrote: a server that repeats them in an error or a log
    says nothing about its memory.
    """
    for where, text in texts.items():
        for found in _SAYS.finditer(text or ""):
            assert text is not None  # an empty text has no match
            if _advice(text, found.start()) or any(_echo(text, found, said) for said in echoes):
                continue
            at = int((found.lastgroup or "f0")[1:])
            return Words(where, list(FAMILIES)[at], _around(text, found))
    return None


def killed(exit_status: int | None) -> bool:
    """Whether a process ended by SIGKILL: as its parent sees it (-9) or as a shell tells it (128 + 9)."""
    return exit_status in (-signal.SIGKILL, 128 + signal.SIGKILL)


def _around(text: str, found: re.Match[str]) -> str:
    """The words with what stands beside them on their line."""
    before = text[max(0, found.start() - AROUND) : found.start()].rpartition("\n")[2]
    behind = text[found.end() : found.end() + AROUND].partition("\n")[0]
    return f"{before}{found.group()}{behind}".strip()


def _advice(text: str, at: int) -> bool:
    """Whether the words at `at` stand in a sentence that only warns: "if …", "may …", "to avoid …"."""
    before = _SENTENCE_ENDS.split(text[max(0, at - 240) : at])[-1]
    return _ADVICE.search(before) is not None


def _echo(text: str, found: re.Match[str], said: str) -> bool:
    """Whether the words and what stands around them are `said` already, letter for letter."""
    left, right = _flat(text[: found.start()][-2000:]), _flat(text[found.end() :][:2000])
    said = _flat(said)
    for same in re.finditer(re.escape(_flat(found.group())), said, re.IGNORECASE):
        before, behind = said[: same.start()], said[same.end() :]
        agree_left = _agree(left[::-1], before[::-1])
        agree_right = _agree(right, behind)
        whole = agree_left == len(before) and agree_right == len(behind)
        if agree_left + agree_right >= ECHO or (whole and agree_left + agree_right > 3):
            return True
    return False


def _flat(text: str) -> str:
    """Text with JSON's escapes and any run of white space as single blanks."""
    return re.sub(r"(?:\\n|\\t|\s)+", " ", text.replace('\\"', '"'))


def _agree(one: str, other: str) -> int:
    """Length of the common beginning."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))
