"""Tests that are source: HumanEval's `check(candidate)`, and MBPP's asserts.

They run in the judge's process over a candidate that calls the program in its own. Names that a test uses besides are
those of the task's prompt (helpers such as `poly`) and of its imports; what neither has is looked for in the program.
"""

from __future__ import annotations

import builtins
from typing import Any

from battery.quality.sandbox.inside.foreign import Raised, Remote


class Names(dict[str, Any]):
    """Globals of tests; a name that they lack is the program's of that name."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(__name__="checks")
        self._remote = remote

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        try:
            return self._remote.ask("global", name)
        except Raised:
            raise KeyError(name) from None


class BrokenTests(BaseException):
    """The tests themselves do not run; the fault is the data's, never the program's."""


def _executed(source: str, where: str, names: Names) -> None:
    """Run a piece of the data that no answer can break."""
    try:
        exec(compile(source, where, "exec", dont_inherit=True), names)
    except Exception as wrong:
        raise BrokenTests(f"{where} of the task: {type(wrong).__name__}: {wrong}") from wrong


def _compiles(source: str) -> bool:
    try:
        compile(source, "<prompt>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def humaneval(job: dict[str, Any], remote: Remote, verdict: dict[str, Any]) -> None:
    """Run `check(candidate)` of the suite; one that the answer defines is nowhere near."""
    names = Names(remote)
    if _compiles(job["context"]):  # a prompt in prose adds no names
        _executed(job["context"], "<prompt>", names)
    _executed(job["test"], "<test>", names)
    check = names.get("check")
    if check is None:
        raise BrokenTests("the task's test defines no check")
    names[job["entry"]] = remote.call
    check(remote.call)


def assertions(job: dict[str, Any], remote: Remote, verdict: dict[str, Any]) -> None:
    """Run set-up and imports, then every assert."""
    names = Names(remote)
    names[job["entry"]] = remote.call
    exec(compile(job["setup"], "<setup>", "exec", dont_inherit=True), names)
    for line in job["imports"]:
        _executed(line, "<imports>", names)
    for line in job["asserts"]:
        exec(compile(line, "<assert>", "exec", dont_inherit=True), names)
