"""A proposer that knows the text that will come, for tests of what guesses are worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Oracle:
    """Knows the text that will come, and guesses it, or always something else, or rightly in a part of it."""

    def __init__(self, text: Sequence[int], right: Callable[[int], bool]) -> None:
        self.text, self.right, self.made, self.asked = list(text), right, 0, 0

    def begin(self, prompt: list[int]) -> None:
        self.made = 0

    def extend(self, tokens: list[int]) -> None:
        self.made += len(tokens)

    def propose(self, limit: int) -> list[int]:
        self.asked += 1
        here = range(self.made, min(self.made + limit, len(self.text)))
        return [self.text[at] if self.right(at) else self.text[at] ^ 1 for at in here]

    def judged(self, proposed: int, accepted: int) -> None:
        pass
