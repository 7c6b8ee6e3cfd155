"""What each rung looks at: every function observes one subject, plain or with the switch on, and judges nothing."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from switchboard.bisect.calls import Call, capture, layer_paths, repeat, within
from switchboard.bisect.compare import Observation
from switchboard.bisect.subject import ROOM, Subject, contents
from switchboard.decode import Tally, forward, plain, prefill
from switchboard.registry import Proposer
from switchboard.sampler import Sampler, Sampling
from switchboard.session import CHUNK_CPU
from switchboard.speculate import verified

MAGNITUDES = (1.0, 0.01, 30.0)
LENGTHS = (1, 37, 130)
STEPS = 20
LOOPED = 12
FILLED = ROOM.prompt
"""mlx-lm's cache grows at 256, where the room ends too: the twenty steps cross that place."""
WIDTHS = (2, 4, 8)
PROMPTS = (
    "List the days of the week, twice. Monday, Tuesday, Wednesday, Thursday, Friday, Saturday; Monday, Tuesday,",
    "What is gravity?",
    "Repeat after me: the quick brown fox jumps over the lazy dog. The quick brown fox jumps over",
    "Write a Python function that adds two numbers.",
    "Tell a short story about a lighthouse.",
    "Why is the sky blue?",
    "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a",
    "Name three rivers and where they flow.",
    "Count from one to twenty in words: one, two, three, four,",
    "Explain how bread is made.",
)
TEMPERATURES = (0.0, 0.8)


@dataclass(frozen=True)
class Plan:
    """How much the last rung does: prompts × tokens, once greedy and once drawn with a seed.

    The usual numbers are small, as `make bisect` is meant to take about a minute on two cores and most of it goes here;
    longer texts are a matter of patience (`--tokens 256`).
    """

    prompts: int = 1
    tokens: int = 12
    of_random: tuple[int, int] = (1, 8)
    """Both for a model of random weights, whose texts say less."""
    seed: int = 11

    def of(self, random: bool) -> Plan:
        """The plan for a model whose weights are random, or are not."""
        if not random:
            return self
        prompts, tokens = self.of_random
        return replace(self, prompts=prompts, tokens=tokens)

    def battery(self) -> list[tuple[str, Sampling]]:
        """Every prompt with every sampling; the texts go on past their end tokens."""
        return [
            (prompt, Sampling(temperature=temperature, seed=self.seed, ignore_eos=True))
            for temperature in TEMPERATURES
            for prompt in PROMPTS[: self.prompts]
        ]


@dataclass(frozen=True)
class Inputs:
    """Calls of the plain model that rungs 1 and 2 make again: the parts at length 1, the large parts by length."""

    parts: list[Call]
    large: dict[int, list[Call]]


def inputs(subject: Subject) -> Inputs:
    """Note what the plain model calls."""
    layers = layer_paths(subject.model)
    by_length = {
        length: capture(subject.model, subject.ids(length), subject.make_cache)
        for length in LENGTHS[:2]
    }
    parts = within(by_length[1], layers, deepest=True)
    large = {length: within(calls, layers, deepest=False) for length, calls in by_length.items()}
    return Inputs(parts, large)


def modules(subject: Subject, parts: list[Call]) -> Observation:
    """Rung 1: each part on its own, at length 1 and several magnitudes."""
    seen: Observation = {}
    for magnitude in MAGNITUDES:
        seen |= repeat(parts, subject.model, subject.make_cache, magnitude)
    return seen


def path_of(name: str) -> str:
    """The module that an entry of rung 1 belongs to."""
    return name.partition(" ×")[0]


def blocks(subject: Subject, large: dict[int, list[Call]]) -> Observation:
    """Rung 2: attention and MLP of every layer with the plain model's input, over an empty cache."""
    seen: Observation = {}
    now = dict(subject.model.named_modules())
    for length, calls in large.items():
        there = [call for call in calls if call.path in now]
        for name, array in repeat(there, subject.model, subject.make_cache, 1.0).items():
            seen[f"{name.replace(' ×1', '')} of {length} tokens"] = array
    return seen


def whole(subject: Subject) -> Observation:
    """Rung 3: logits of whole prefills, and the cache after each."""
    seen: Observation = {}
    for length in LENGTHS:
        cache = subject.make_cache()
        logits = forward(subject.model, cache, mx.array(subject.ids(length)))
        seen[f"logits of {length} tokens"] = logits
        for name, array in contents(cache).items():
            seen[f"{name} after {length} tokens"] = array
        mx.eval(list(seen.values()))
    return seen


def widths(subject: Subject) -> tuple[Observation, Observation]:
    """Rung 3 of a draft: the logits of passes of one row, and those of passes of several rows."""
    start = LENGTHS[1]
    ids = subject.ids(start + WIDTHS[-1])
    cache = filled(subject, ids[:start])

    def passes(width: int, count: int) -> mx.array:
        """Logits of the first `count` rows after the start, so many at a time."""
        own, places = deepcopy(cache), range(start, start + count, width)
        rows = [
            forward(subject.model, own, mx.array(ids[place : place + width])) for place in places
        ]
        return mx.concatenate(rows)

    single = passes(1, WIDTHS[-1])
    mx.eval(single)
    alone = {f"logits of {width} rows": single[:width] for width in WIDTHS}
    wide = {f"logits of {width} rows": passes(width, width) for width in WIDTHS}
    mx.eval(list(wide.values()))
    return alone, wide


def filled(subject: Subject, ids: list[int]) -> list[Any]:
    """A cache that holds these tokens, filled as the session fills it."""
    cache = subject.make_cache()
    # The engine leaves the last prompt token to the first step; here all of them go in.
    prefill(subject.model, cache, [*ids, ids[-1]], CHUNK_CPU, Tally(), lambda: None)
    return cache


def walk(subject: Subject) -> Observation:
    """Rung 4: twenty steps along a text over a filled cache: logits of each, the cache after the first and last."""
    ids = subject.ids(FILLED + STEPS)
    cache, seen = filled(subject, ids[:FILLED]), Observation()
    for step, token in enumerate(ids[FILLED:]):
        seen[f"logits of step {step}"] = forward(subject.model, cache, mx.array([token]))
        if step in (0, STEPS - 1):
            held = contents(cache).items()
            seen |= {f"{name} after step {step}": array for name, array in held}
        # The cache is written in place; what it held now is kept by being computed now.
        mx.eval(list(seen.values()))
    return seen


def resumed(subject: Subject) -> tuple[Observation, Observation, int]:
    """Rung 3 of a pool: logits after a cold prompt and three steps, the same after taking it up; tokens taken."""
    pool, ids = subject.session.pool, subject.ids(FILLED + 3)
    if pool is None:
        raise ValueError(f"{subject.name}: no pool is on")
    for prompt in (ids[: FILLED - 60], ids[:FILLED]):
        turn = pool.begin(prompt, subject.make_cache())
        pool.read(subject.model, turn, Tally(), lambda: None)
        pool.keep(turn, [])
    seen: list[Observation] = []
    for cache in (filled(subject, ids[: FILLED - 1]), turn.cache):
        steps = enumerate(ids[FILLED - 1 :])
        seen.append(
            {f"step {at}": forward(subject.model, cache, mx.array([token])) for at, token in steps}
        )
        mx.eval(list(seen[-1].values()))
    pool.clear()
    return seen[0], seen[1], turn.reused


@dataclass(frozen=True)
class Loop:
    """Rung 4 of a draft: the tokens of one loop, the cache that it left, and how its guesses fared."""

    tokens: list[int]
    cache: Observation
    proposed: int
    accepted: int


class Scripted:
    """Guesses the tokens that are known to come, with a wrong one at places that are written down.

    So that guesses stand whole, in part and not at all within a few passes, whatever the switch's own proposer finds.
    """

    script = ((3, 1), (4, None), (2, 0), (5, 3), (1, 0))
    """How many to guess, and which of them is wrong."""

    def __init__(self, coming: list[int], vocabulary: int) -> None:
        self._coming = coming
        self._vocabulary = vocabulary
        self._made = 0
        self._asked = 0

    def begin(self, prompt: list[int]) -> None:
        """Start at the first token after the prompt."""
        self._made = 0

    def extend(self, tokens: list[int]) -> None:
        """Go on."""
        self._made += len(tokens)

    def propose(self, limit: int) -> list[int]:
        """The next line of the script."""
        width, place = self.script[self._asked % len(self.script)]
        self._asked += 1
        guesses = self._coming[self._made : self._made + min(limit, width)]
        if place is not None and place < len(guesses):
            guesses[place] = (guesses[place] + 1) % self._vocabulary
        return guesses

    def judged(self, proposed: int, accepted: int) -> None:
        """Nothing is learnt."""


def loop(subject: Subject, cache: list[Any], sampling: Sampling, proposer: Proposer | None) -> Loop:
    """Twelve tokens after the prompt of rung 4, by the plain loop or through the verify loop."""
    prompt, tally, made = subject.ids(FILLED + 1), Tally(), list[int]()
    model, sampler = subject.model, Sampler(sampling, ())
    if proposer is None:
        loops = plain(model, cache, prompt[-1], sampler, LOOPED)
    else:
        proposer.begin(list(prompt))
        loops = verified(model, cache, prompt[-1], sampler, proposer, LOOPED, tally)
    for tokens in loops:
        made += tokens
    # The last token was not fed, so every loop leaves the same rows behind.
    return Loop(made, contents(cache), tally.proposed, tally.accepted)


def answers(subject: Subject, plan: Plan) -> list[list[int]]:
    """Rung 5: the ids of every answer of the battery."""
    encode = subject.loaded.text.encode
    return [
        subject.answer(encode(prompt), sampling, plan.tokens) for prompt, sampling in plan.battery()
    ]


@dataclass(frozen=True)
class Reference:
    """What the plain model does; observed once and held against every switch."""

    plan: Plan
    inputs: Inputs
    modules: Observation
    blocks: Observation
    whole: Observation
    walk: Observation
    answers: list[list[int]]


def observe(subject: Subject, plan: Plan) -> Reference:
    """Everything that the rungs compare with; the subject must be plain."""
    if subject.position is not None:
        raise ValueError(f"{subject.name}: a switch is on, so it cannot be the reference")
    noted = inputs(subject)
    return Reference(
        plan=plan,
        inputs=noted,
        modules=modules(subject, noted.parts),
        blocks=blocks(subject, noted.large),
        whole=whole(subject),
        walk=walk(subject),
        answers=answers(subject, plan),
    )
