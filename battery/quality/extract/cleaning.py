"""An answer's text without what a server or a terminal added: line ends, escapes, leaked special tokens.

No other character is repaired. A no-break space that indents code stays, and Python refuses it.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|[@-Z\\-_])"
)
TOKEN = (
    r"(?:<\|(?!\w*(?:THINK|thought|channel|message))[^|<>\n]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|</?s>"
    r"|<(?:end_of_turn|start_of_turn|eos|bos|pad|end_of_text|EOT)>)"
)
_LAST = re.compile(rf"{TOKEN}\Z")
_DONE_AT_THE_END = re.compile(r"(?<=\s)\[DONE\]\s*\Z")
_BEGUN = re.compile(r"^[ \t]*\[BEGIN\]", re.MULTILINE)
_MARKER = re.compile(r"^[ \t]*\[BEGIN\]|^[ \t]*\[/?PYTHON\][ \t]*$|^[ \t]*\[DONE\]", re.MULTILINE)
_GLUED = re.compile(r"(?<![ \t])[ \t]*+(?:\[DONE\]|\[/PYTHON\])[ \t]*$", re.MULTILINE)
BREAK = "\x00"
"""A line that no program has: text on its two sides is never read as one piece of code."""


def clean(content: str) -> tuple[str, tuple[str, ...]]:
    """An answer with line feeds for line ends, without byte order mark, terminal escapes and final special tokens.

    Also says what was taken away. A special token (`<|im_end|>`, `</s>` …) is taken only from the very end, where
    a server that does not hide it leaves it; within the text it may be the program's own.
    """
    notes = []
    text = content.removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    shorter = _ESCAPES.sub("", text)
    if shorter != text:
        notes.append("terminal escapes removed")
    text = shorter.replace(BREAK, "\ufffd")  # either is a syntax error outside a string
    shorter = _without_last_tokens(text)
    if shorter != text:
        notes.append("special token at the end removed")
    if done := _DONE_AT_THE_END.search(shorter):
        shorter = shorter[: done.start()].rstrip(" \t")
    return shorter, tuple(notes)


def part_at_markers(text: str) -> str:
    """A text without fences in which the few-shot markers `[BEGIN]`, `[DONE]`, `[PYTHON]` are breaks.

    `[BEGIN]` alone would parse, as a list. `[DONE]` behind code on its line counts only where a `[BEGIN]` says that
    the format is spoken: `return state[DONE]` is a program of its own.
    """
    if _BEGUN.search(text):
        text = _GLUED.sub(f"\n{BREAK}", text)
    return _MARKER.sub(f"{BREAK}\n", text)


def _without_last_tokens(text: str) -> str:
    rest = text.rstrip()
    while last := _LAST.search(rest, max(0, len(rest) - 64)):
        text = rest[: last.start()]
        rest = text.rstrip()
    return text
