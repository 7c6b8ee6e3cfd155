"""What a quality run tells while it works: a bar with the time that is left in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from typing_extensions import override

from battery.ledger.answers import Answer


class Telling:
    """Silent; what prints overrides these, tests listen."""

    def started(self, done: int, total: int) -> None:
        """The run begins or goes on, with `done` of `total` answers there."""

    def phase(self, arm: str, what: str) -> None:
        """Something takes a while: a launch, a suite."""

    def answer(self, arm: str, answer: Answer) -> None:
        """An answer came and is kept."""

    def note(self, text: str) -> None:
        """Something that the user should read."""


class Clock:
    """Time left, from how long the answers so far took."""

    def __init__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self._made, self._start = 0, time.monotonic()

    def count(self) -> None:
        """One more answer."""
        self.done, self._made = self.done + 1, self._made + 1

    def left(self) -> str:
        """Such as `about 4 min left`; empty before the first answer."""
        if not self._made:
            return ""
        seconds = (time.monotonic() - self._start) / self._made * (self.total - self.done)
        return (
            f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
        )


def line(arm: str, answer: Answer) -> str:
    """One answer in one line."""
    where = f"{arm} {answer.suite} {answer.task}"
    where += f" sample {answer.sample + 1}" if answer.sample else ""
    again = f" ({answer.attempts} attempts)" if answer.attempts > 1 else ""
    if answer.error is not None:
        return f"{where}: no answer{again}: {answer.error}"
    tokens = (
        "an unknown number of"
        if answer.completion_tokens is None
        else f"{answer.completion_tokens:,}"
    )
    ended = "cut off" if answer.truncated else answer.finish_reason
    return f"{where}: {ended}, {tokens} tokens{again}"


class Lines(Telling):
    """One plain line per event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console, self._clock = console, Clock(0, 0)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @override
    def started(self, done: int, total: int) -> None:
        self._clock = Clock(done, total)
        self._say(f"{total} answers to ask for" + (f", {done} are there" if done else ""))

    @override
    def phase(self, arm: str, what: str) -> None:
        self._say(f"{arm}: {what}")

    @override
    def answer(self, arm: str, answer: Answer) -> None:
        self._clock.count()
        left = self._clock.left()
        place = f"[{self._clock.done}/{self._clock.total}]"
        self._say(f"  {place} {line(arm, answer)}{f' · {left}' if left else ''}")

    @override
    def note(self, text: str) -> None:
        self._say(text)


class Bar(Telling):
    """One bar over all answers, with the time left, how answers ended, and the last one."""

    def __init__(self, console: Console) -> None:
        self._clock, self._ends = Clock(0, 0), Counter[str]()
        self._bar = Progress(
            TextColumn("{task.fields[what]}", markup=False), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[left]}  {task.fields[ends]}", markup=False), console=console,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None, what="starting", left="", ends="")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @override
    def started(self, done: int, total: int) -> None:
        self._clock = Clock(done, total)
        self._bar.update(self._task, total=total, completed=done)

    @override
    def phase(self, arm: str, what: str) -> None:
        self._bar.update(self._task, what=f"{arm}: {what}")

    @override
    def answer(self, arm: str, answer: Answer) -> None:
        self._clock.count()
        ended = "no answer" if answer.error is not None else answer.finish_reason or "?"
        self._ends["cut off" if answer.truncated else ended] += 1
        ends = ", ".join(f"{count} {name}" for name, count in self._ends.most_common())
        self._bar.update(self._task, advance=1, left=self._clock.left(), ends=ends)
        if answer.error is not None:
            self.note(line(arm, answer))

    @override
    def note(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


@contextlib.contextmanager
def shown(quiet: bool, console: Console) -> Iterator[Telling]:
    """What fits where we print: a bar in a terminal, plain lines elsewhere, nothing for machines."""
    if quiet:
        yield Telling()
    elif console.is_terminal:
        with Bar(console) as bar:
            yield bar
    else:
        yield Lines(console)
