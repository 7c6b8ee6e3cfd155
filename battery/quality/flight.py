"""Requests in flight: a few threads that ask, and one reader that gets the answers as they come.

The reader is the main thread, which alone writes files and hears signals. It can let what is in flight come in and hand
out nothing more, or leave at once.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

from battery.bench.progress import at_once
from battery.ledger.answers import Answer
from battery.quality.tasks import Task

Item = tuple[Task, int]
"""A task and the number of the sample."""
LOOK_S = 0.1
"""How often the reader looks up while it waits."""


class Flight:
    """Asks every item once, `threads` at a time. Leaving it hands out nothing more and waits for nobody."""

    def __init__(
        self, ask: Callable[[Task, int], Answer | None], items: Iterable[Item], threads: int
    ) -> None:
        self._ask, self._items = ask, deque(items)
        self._came: queue.Queue[Answer | Exception | None] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._work, name=f"asking-{number}", daemon=True)
            for number in range(min(threads, len(self._items)))
        ]

    def __enter__(self) -> Flight:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hold()

    def hold(self) -> None:
        """Hand out nothing more; what is in flight still comes."""
        self._items.clear()

    def join(self, within_s: float) -> None:
        """Wait for threads whose requests were cut off."""
        for thread in self._threads:
            thread.join(within_s)

    def _work(self) -> None:
        """Ask until nothing is left; whatever goes wrong is told to the reader."""
        try:
            while True:
                try:
                    task, sample = self._items.popleft()
                except IndexError:
                    return
                answer = self._ask(task, sample)
                if answer is not None:
                    self._came.put(answer)
        except Exception as broken:  # raised again by the reader
            self._came.put(broken)
        finally:
            self._came.put(None)

    def answers(self, wish: Callable[[], bool]) -> Iterator[Answer]:
        """Every answer as it comes; once `wish` is true nothing more is handed out.

        What a thread raised is raised here, after the answers that came before it. A second press of Ctrl-C ends the
        wait at once.
        """
        working = len(self._threads)
        while working:
            if wish():
                self.hold()
            try:
                with at_once():
                    came = self._came.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if came is None:
                working -= 1
            elif isinstance(came, Exception):
                self.hold()
                raise came
            else:
                yield came
