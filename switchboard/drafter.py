"""A model that guesses for another: its own cache, read as far as the text goes, and taken back where guesses fell.

Guesses come about in one of two ways. *Coupled*, the drafter chooses at every place with the key that the target will
use there: where both would draw the same token it stands, and the text is the plain loop's for the same seed, as with
any certain guess. *Drawn*, it draws with keys of its own and hands on the chances, for the laws that compare them. At
temperature 0 both are its most likely token.

A drafter may be the target's own first layers with its output matrix (`cut`): no weight is copied, and whatever
switches did to those layers holds for both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard.accept.ruling import Drawn
from switchboard.decode import forward
from switchboard.errors import Declined
from switchboard.registry import Counter
from switchboard.sampler import Sampler, Sampling
from switchboard.text import Text

CHUNK = 512
SAMPLE = "The 3 quick foxes, été & 東京.\n\tfor i in range(10): print(i)"


class Drafter:
    """The proposer that asks a model; it reads the prompt when a text begins."""

    def __init__(self, model: Any, layers: int, depth: int, draws: bool, counter: Counter) -> None:
        self._model = model
        self._layers = layers
        self._depth = depth
        self._draws = draws
        self._counter = counter
        self._sampler = Sampler(Sampling(temperature=0.0), ())
        self._cache: list[Any] = []
        self._text: list[int] = []
        self._start = 0
        self._read = 0
        """Tokens of the text that the cache holds; the guesses of the last draft come after them."""
        self._guessed: list[int] = []

    @property
    def draws(self) -> bool:
        """Whether the guesses come with their chances."""
        return self._draws

    def sample_with(self, sampler: Sampler) -> None:
        """Guess by the rules and the randomness of this request."""
        self._sampler = sampler

    def begin(self, prompt: list[int]) -> None:
        """Read all but the last token of the prompt."""
        self._cache = fresh(self._model, self._layers)
        self._text, self._start = list(prompt), len(prompt)
        self._read, self._guessed = len(prompt) - 1, []
        for place in range(0, self._read, CHUNK):
            piece = prompt[place : min(place + CHUNK, self._read)]
            forward(self._model, self._cache, mx.array(piece))
            mx.eval(kv.arrays(self._cache))

    def extend(self, tokens: list[int]) -> None:
        """Take what was really produced; what was guessed otherwise is taken back before the next guess."""
        self._text += tokens

    def propose(self, limit: int) -> list[int]:
        """A guess after the text, one after that, and so on; computed together, waited for once."""
        self._counter.runs += 1
        self._agree()
        made, depth = len(self._text) - self._start, min(limit, self._depth)

        def after(guess: mx.array | None) -> mx.array:
            feed = mx.array(self._text[self._read :]) if guess is None else guess
            return forward(self._model, self._cache, feed)[-1:]

        told = guessed(after, self._sampler, made, depth, self._draws)
        # The last guess was not read.
        self._read, self._guessed = len(self._text), told[:-1]
        return told

    def judged(self, proposed: int, accepted: int) -> None:
        """Count what came of the guesses."""
        self._counter.add("proposals")
        self._counter.add("proposed", proposed)
        self._counter.add("accepted", accepted)

    def _agree(self) -> None:
        """Take guesses back that did not stand, and the text's last token if it was read: its logits are wanted."""
        held = self._read + len(self._guessed)
        for guess, token in zip(self._guessed, self._text[self._read :], strict=False):
            if guess != token:
                break
            self._read += 1
        self._read, self._guessed = min(self._read, len(self._text) - 1), []
        kv.rewind(self._cache, held - self._read)


def guessed(
    after: Callable[[mx.array | None], mx.array],
    sampler: Sampler,
    made: int,
    depth: int,
    draws: bool,
) -> list[int]:
    """A guess after the text, one after that, and so on; computed together, waited for once.

    `after` gives the one row of logits after a guess, or after the text for None; `made` tokens of the text are new.
    """
    guesses: list[mx.array] = []
    chances: list[mx.array] = []
    for place in range(made, made + depth):
        logits = after(guesses[-1] if guesses else None)
        if draws:
            guess, row = sampler.draw(logits, place)
            chances.append(row)
        else:
            guess = sampler.choose(logits, place)
        guesses.append(guess)
    told: list[int] = mx.concatenate(guesses).tolist()  # type: ignore[assignment]
    return Drawn(told, mx.stack(chances)) if draws else told


def fresh(model: Any, layers: int) -> list[Any]:
    """A cache for the first layers of a model; a cut one may still make it for all that it was cut from."""
    return kv.make(model)[:layers]


def cut(model: Any, layers: int) -> Any:
    """The model with its first layers only; every weight is the model's own. Declined where it cannot be cut."""
    whole = len(model.layers)
    if not 1 <= layers < whole:
        raise Declined(f"layers={layers}: the model has {whole}; give 1 to {whole - 1}")
    path = _holder(model)
    top = shell = _shell(model)
    for name in filter(None, path.split(".")):
        inner = _shell(shell[name])
        shell[name] = inner
        shell = inner
    shell["layers"] = shell["layers"][:layers]
    return top


def _shell(module: Any) -> Any:
    """A module of its own with the same children, of the class that it had before a switch hooked its passes.

    A hook is a subclass of the same name that leads passes elsewhere, to graphs of the whole model say.
    """
    made = copy.copy(module)
    made.__class__ = plain_class(module)
    return made


def plain_class(module: Any) -> Any:
    """The class that a module had before a switch hooked its passes."""
    kind: Any = type(module)
    while (kind.__base__.__module__, kind.__base__.__name__) == (kind.__module__, kind.__name__):
        kind = kind.__base__
    return kind


def _holder(model: Any) -> str:
    """The path of the module that holds the list of layers."""
    for path, module in model.named_modules():
        if module.get("layers") is not None and len(module["layers"]) == len(model.layers):
            return str(path)
    raise Declined(f"{type(model).__name__} does not hold its layers as one list")


def differs(target: Text, other: Text) -> str | None:
    """Why the tokens of another model are not the target's, or None: every token's bytes, the ends, and a sample."""
    if target.vocabulary != other.vocabulary:
        return f"it has {other.vocabulary} tokens and the target {target.vocabulary}"
    for token in range(target.vocabulary):
        if target.token_bytes(token) != other.token_bytes(token):
            return f"token {token} is {other.token_bytes(token)!r} there and {target.token_bytes(token)!r} here"
    if set(target.eos) != set(other.eos):
        return f"its texts end with {list(other.eos)} and the target's with {list(target.eos)}"
    if target.encode(SAMPLE) != other.encode(SAMPLE):
        return "it cuts a text into other tokens"
    return None


def unfit(target: Any, model: Any, layers: int) -> str | None:
    """Why a model cannot guess for the target, found by running it, or None."""
    cache = fresh(model, layers)
    why = kv.cannot_step_back(cache)
    if why is not None:
        return f"the drafter's cache: {why}"
    try:
        rows = forward(model, cache, mx.array([1, 2, 3]))
        mx.eval(rows)
        kv.rewind(cache, 1)
        rows = forward(model, cache, mx.array([4]))
        wanted = forward(target, kv.make(target), mx.array([1]))
        mx.eval(rows, wanted)
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
        return f"the drafter does not run: {type(error).__name__}: {error}"
    if rows.shape[-1] != wanted.shape[-1]:
        return f"it scores {rows.shape[-1]} tokens and the target {wanted.shape[-1]}"
    return None if mx.isfinite(rows).all().item() else "its logits are not numbers"
