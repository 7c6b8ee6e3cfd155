"""The switches that exist, found by file name in `switchboard/switches/`.

To add one: write one file there with one function of the file's name, decorated with `@switch(stage=…,
exactness=…)`. Nothing else has to be touched. A stage fixes what the function takes and gives:

- load:    (weights, config, options, counter) -> Kept; what of a checkpoint is read at all;
- weights: (model, options, counter) -> Applied; changes the model in place, can be undone;
- step:    the same, for what changes the forward and not the weights; put on after every `weights` switch;
- cache:   (factory, options, counter) -> Recached; gives another factory of KV caches, the old one stays as it was;
- draft:   (options, counter, target) -> Proposer; guesses tokens for the verify loop;
- law:     (options, counter) -> Law; how much of a draft stands, instead of the exact law;
- start:   (session, options, counter) -> Started; once, when everything else is on.

A function that cannot do its work raises Declined with the reason. What its probe holds against each other goes
through `parity`, which compares bits and makes a reason of whatever breaks off.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import msgspec

from switchboard.errors import ConfigError

Stage = Literal["load", "weights", "step", "cache", "draft", "law", "start"]
Exactness = Literal["exact", "rounding", "redrawn", "lossy"]
"""The same bytes; the same but for rounding; other draws from the same distribution; another distribution."""
Unit = Literal["modules", "places", "layers"]
"""What one of a coverage's numbers is: a module that was changed, a place that holds changed ones, a layer of them."""


class NoOptions(msgspec.Struct, frozen=True):
    """The options of a switch that has none."""


LIVE: WeakValueDictionary[int, Counter] = WeakValueDictionary()
"""Every counter that is in use."""


@dataclass
class Counter:
    """What a switch counts where it runs; `runs` above zero is what `engaged` means."""

    runs: int = 0
    more: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Be among those that a compiled graph can count for: what it replays does not pass by the choke points."""
        LIVE[id(self)] = self

    def add(self, name: str, amount: int = 1) -> None:
        """Count something beside the runs."""
        self.more[name] = self.more.get(name, 0) + amount

    def told(self) -> dict[str, int]:
        """All counts under their names, for /health."""
        return {"runs": self.runs, **self.more}

    def clear(self) -> None:
        """Forget what the probes at load did, so that only requests count."""
        self.runs = 0
        self.more.clear()


@dataclass(frozen=True)
class Applied:
    """What a `weights` or `step` switch did: its coverage, what it left alone and why, and the way back.

    fused of eligible units are changed whole, partly more in part; classes tells the same by kind. The bisect's audit
    counts units and modules from outside, while a step runs, and holds both against what stands here.
    """

    fused: int
    eligible: int
    layers: int
    undo: Callable[[], None]
    note: str | None = None
    forget: Callable[[], None] | None = None
    """Called before every request; for what a forward keeps between its calls."""
    partly: int = 0
    classes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unit: Unit = "modules"
    """What fused, partly and eligible count."""
    modules: int | None = None
    """Modules within the layers that are other ones now, or that are called in another way; None: as many as fused."""

    def coverage(self) -> dict[str, Any]:
        """The coverage as /health and receipts tell it."""
        return {
            "fused": self.fused,
            "partly": self.partly,
            "eligible": self.eligible,
            "unit": self.unit,
            "modules": self.fused if self.modules is None else self.modules,
            "layers": self.layers,
            "classes": {name: dict(counts) for name, counts in self.classes.items()},
        }


@dataclass(frozen=True)
class Kept:
    """What a `load` switch left of a checkpoint: the weights to read, and in numbers what it left out."""

    weights: dict[str, Any]
    coverage: Mapping[str, int]


@dataclass(frozen=True)
class Room:
    """Tokens that a cache has to hold: those the prompt brings, and those that may be added to it."""

    prompt: int
    answer: int

    @property
    def whole(self) -> int:
        """All of them."""
        return self.prompt + self.answer


CacheFactory = Callable[[Room], list[Any]]
"""Makes the KV cache of one request, an entry a layer."""


@dataclass(frozen=True)
class Recached:
    """What a `cache` switch did: the factory to use instead, and how many layers have which class of cache.

    Layers of the class that it takes the place of are eligible, and all of them are changed.
    """

    factory: CacheFactory
    kind: str
    kinds: Mapping[str, int]
    note: str | None = None

    def coverage(self) -> dict[str, Any]:
        """The coverage in the form of Applied's."""
        changed = {name: count if name == self.kind else 0 for name, count in self.kinds.items()}
        return {
            "fused": changed[self.kind],
            "partly": 0,
            "eligible": changed[self.kind],
            "unit": "layers",
            "layers": sum(self.kinds.values()),
            "classes": {name: {"eligible": one, "fused": one} for name, one in changed.items()},
        }


@dataclass(frozen=True)
class Target:
    """What a draft may know of the model that it guesses for: the model with its switches on, and its text side."""

    model: Any
    text: Any
    place: Path | None = None
    """Where its checkpoint lies, of which not everything may have been read; None for random weights."""


@dataclass(frozen=True)
class Started:
    """What a `start` switch says of what it did."""

    note: str | None = None


class Proposer(Protocol):
    """Guesses the next tokens from those so far; it sees every token exactly once."""

    def begin(self, prompt: list[int]) -> None:
        """Start on a new text."""

    def extend(self, tokens: list[int]) -> None:
        """Take the tokens that were really produced."""

    def propose(self, limit: int) -> list[int]:
        """Up to `limit` guesses, or none."""

    def judged(self, proposed: int, accepted: int) -> None:
        """Learn how many of the last guesses were right."""


@runtime_checkable
class SamplingProposer(Proposer, Protocol):
    """A proposer that guesses with the sampler of the request."""

    @property
    def draws(self) -> bool:
        """Whether its guesses are `Drawn`, with the chances of each, or certain."""

    def sample_with(self, sampler: Any) -> None:
        """Take the request's sampler; told before every text begins."""


@runtime_checkable
class HopefulProposer(Proposer, Protocol):
    """A proposer that says whether it will guess without guessing: asked while a step runs ahead of its answer."""

    def hopes(self, limit: int) -> bool:
        """Whether it would guess, were it asked behind the next token."""


@runtime_checkable
class RestingProposer(Proposer, Protocol):
    """A proposer that stops guessing for a while where its guesses do not pay."""

    def never_rest(self) -> None:
        """Guess whenever asked: another decides from now on."""


@dataclass(frozen=True)
class Switch:
    """One optimisation that can be turned off on its own."""

    name: str
    stage: Stage
    exactness: Exactness
    options: type[msgspec.Struct]
    apply: Callable[..., Any]
    against: tuple[str, ...] = ()
    """Switches beside which it declines, as one of both would never run or run for nothing."""
    after: str | None = None
    """A switch of the same stage that it stands on: put on after that one, and only where that one is on."""

    @property
    def kill(self) -> str:
        """The environment variable that turns it off when it is 0."""
        return f"SWITCHBOARD_{self.name.upper()}"

    def parse(self, given: dict[str, str]) -> msgspec.Struct:
        """Typed options from text; an unknown key or a bad value is an error that names it."""
        names = [one.name for one in msgspec.structs.fields(self.options)]
        for key in given:
            if key not in names:
                raise ConfigError(unknown(f"switch {self.name}: option", key, names))
        try:
            return msgspec.convert(given, self.options, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(f"switch {self.name}: {error}") from error


def unknown(what: str, name: str, names: list[str]) -> str:
    """One sentence for a name that does not exist: the nearest known one, and all of them."""
    near = get_close_matches(name, names, 1)
    hint = f" did you mean '{near[0]}'?" if near else ""
    return f"{what} '{name}' is not known;{hint} known: {', '.join(sorted(names)) or 'none'}"


def switch(
    *,
    stage: Stage,
    exactness: Exactness,
    options: type[msgspec.Struct] = NoOptions,
    against: tuple[str, ...] = (),
    after: str | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the decorated function to be the switch of its own name."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        function.__dict__["switch"] = Switch(
            name, stage, exactness, options, function, against, after
        )
        return function

    return declare


@cache
def known() -> MappingProxyType[str, Switch]:
    """Every switch by name, in the order of the file names."""
    package = importlib.import_module("switchboard.switches")
    found: dict[str, Switch] = {}
    for entry in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"switchboard.switches.{entry.name}")
        declared = getattr(getattr(module, entry.name, None), "switch", None)
        if not isinstance(declared, Switch):
            raise ConfigError(f"switches/{entry.name}.py: no @switch function named {entry.name}")
        found[entry.name] = declared
    return MappingProxyType(found)
