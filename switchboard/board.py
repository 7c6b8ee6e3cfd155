"""Which switches are on, and what each of them did.

The board is made from what was asked and from the kill switches of the environment, read at start. It puts switches
on when their stage comes, keeps the reason of each that stayed off, and says after every request which of them ran
in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from switchboard.accept.ruling import Law
from switchboard.config import Asked
from switchboard.errors import ConfigError, Declined, SwitchRefused
from switchboard.registry import (
    Applied,
    CacheFactory,
    Counter,
    Exactness,
    Kept,
    Proposer,
    Recached,
    SamplingProposer,
    Stage,
    Started,
    Switch,
    Target,
    known,
    unknown,
)


@dataclass
class Position:
    """One switch on the board: asked for or not, on or not, and what it counted."""

    switch: Switch
    options: msgspec.Struct
    asked: bool = False
    required: bool = False
    reason: str | None = None
    killed: bool = False
    on: bool = False
    coverage: dict[str, Any] | None = None
    counter: Counter = field(default_factory=Counter)
    ran_last: bool = False
    mark: int = 0
    forget: Callable[[], None] | None = None
    """Drops what an interrupted forward may have left behind."""

    @property
    def state(self) -> str:
        """Off, declined, armed (on, but it did not run in the latest request) or engaged (it did)."""
        if not self.asked or self.killed:
            return "off"
        if not self.on:
            return "declined"
        return "engaged" if self.ran_last else "armed"

    @property
    def exactness(self) -> Exactness:
        """The switch's, or what its options make of it."""
        made: Exactness = getattr(self.options, "exactness", self.switch.exactness)
        return made

    def decline(self, reason: str) -> None:
        """Stay off for a reason, or refuse the start when the switch was required."""
        self.on = False
        self.reason = reason
        if self.required:
            raise SwitchRefused(
                f"switch {self.switch.name} is required and was declined: {reason}; "
                "use --switch instead of --require to start without it"
            )

    def stand(self, done: Applied | Recached) -> None:
        """Be on, with the coverage and the note of what was done."""
        self.on = True
        self.reason = done.note
        self.coverage = done.coverage()

    def told(self) -> dict[str, Any]:
        """The entry of /health."""
        return {
            "asked": self.asked,
            "state": self.state,
            "reason": self.reason,
            "exactness": self.exactness,
            "options": msgspec.to_builtins(self.options),
            "coverage": self.coverage,
            "counters": self.counter.told(),
            "kill": self.switch.kill,
        }


class Board:
    """All switches with their states; the one place that turns them on."""

    def __init__(self, asked: tuple[Asked, ...], environ: Mapping[str, str]) -> None:
        """Check every name and option now, so that a typing error ends the start at once."""
        switches = known()
        for one in asked:
            if one.name not in switches:
                raise ConfigError(unknown("switch", one.name, list(switches)))
        wanted = {one.name: one for one in asked}
        self.positions: dict[str, Position] = {}
        for name, switch in switches.items():
            mine = wanted.get(name)
            options = switch.parse(dict(mine.options) if mine else {})
            position = Position(switch, options, mine is not None, bool(mine and mine.required))
            if environ.get(switch.kill) == "0":
                position.killed = True
                position.decline(f"killed by {switch.kill}=0")
            self.positions[name] = position
        drafts = [p.switch.name for p in self._asked("draft")]
        if len(drafts) > 1:
            raise ConfigError(f"at most one draft switch can be on, not {' and '.join(drafts)}")
        laws = [p.switch.name for p in self._asked("law")]
        if len(laws) > 1:
            raise ConfigError(
                f"at most one acceptance law can be on, not {' and '.join(laws)}: each of them decides alone which "
                "guesses stand; keep one"
            )

    def _asked(self, stage: Stage) -> Iterator[Position]:
        for position in self.positions.values():
            if position.asked and not position.killed and position.switch.stage == stage:
                yield position

    def asks(self, *stages: Stage) -> bool:
        """Whether a switch of one of these stages was asked for and not killed."""
        return any(True for stage in stages for _ in self._asked(stage))

    def apply_load(self, weights: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """The weights that the `load` switches leave of a checkpoint; nothing has been read from the disk yet."""
        for position in self._asked("load"):
            try:
                kept: Kept = position.switch.apply(
                    weights, config, position.options, position.counter
                )
            except Declined as declined:
                position.decline(str(declined))
                continue
            position.on = True
            position.coverage = dict(kept.coverage)
            weights = kept.weights
        return weights

    def apply_weights(self, model: Any, check: Callable[[Exactness], str | None]) -> None:
        """Put on every `weights` switch, then every `step` switch; `check` says what is wrong afterwards, or None."""
        for position in [*self._asked("weights"), *self._asked("step")]:
            try:
                self._apart(position)
                done: Applied = position.switch.apply(model, position.options, position.counter)
            except Declined as declined:
                position.decline(str(declined))
                continue
            wrong = check(position.switch.exactness)
            if wrong:
                done.undo()
                position.decline(f"parity probe failed: {wrong}")
                continue
            position.stand(done)
            position.forget = done.forget

    def _apart(self, position: Position) -> None:
        """Declined beside a switch that it does not go together with."""
        others = [self.positions[name] for name in position.switch.against]
        named = [one.switch.name for one in others if one.asked and not one.killed]
        if named:
            raise Declined(f"does not go together with {' and '.join(named)}, asked for as well")

    def apply_cache(
        self, factory: CacheFactory, check: Callable[[CacheFactory, Exactness], str | None]
    ) -> CacheFactory:
        """The factory with every `cache` switch put on; `check` says what is wrong with a new one, or None."""
        for position in self._asked("cache"):
            try:
                done: Recached = position.switch.apply(factory, position.options, position.counter)
                # What does not fit shows where rows are written first, so a cache may decline in the probe.
                wrong = check(done.factory, position.switch.exactness)
            except Declined as declined:
                position.decline(str(declined))
                continue
            if wrong:
                position.decline(f"parity probe failed: {wrong}")
                continue
            position.stand(done)
            factory = done.factory
        return factory

    def proposer(self, can_rewind: str | None, target: Target) -> Proposer | None:
        """The proposer that was asked for; `can_rewind` is why the target's cache cannot step back, or None."""
        for position in self._asked("draft"):
            if can_rewind is not None:
                position.decline(can_rewind)
                continue
            try:
                made: Proposer = position.switch.apply(position.options, position.counter, target)
            except Declined as declined:
                position.decline(str(declined))
                continue
            position.on = True
            return made
        return None

    def apply_start(self, session: Any) -> None:
        """Put on the `start` switches; one that stands on another after that one."""
        for position in sorted(self._asked("start"), key=lambda one: one.switch.after is not None):
            needed = position.switch.after
            if needed is not None and not self.positions[needed].on:
                position.decline(f"it stands on {needed}, which is {self.positions[needed].state}")
                continue
            try:
                done: Started = position.switch.apply(session, position.options, position.counter)
            except Declined as declined:
                position.decline(str(declined))
                continue
            position.on, position.reason = True, done.note

    def law(self, proposer: Proposer | None) -> Law | None:
        """The acceptance law that was asked for, if it can judge what this proposer guesses; None is the exact one."""
        for position in self._asked("law"):
            if proposer is None:
                position.decline("no draft switch is on, so there is nothing to accept")
                continue
            try:
                made: Law = position.switch.apply(position.options, position.counter)
            except Declined as declined:
                position.decline(str(declined))
                continue
            drawn = isinstance(proposer, SamplingProposer) and proposer.draws
            if made.needs_chances and not drawn:
                position.decline(
                    "the guesses of this draft are certain: the law compares the chances that they were drawn with"
                )
                continue
            position.on = True
            return made
        return None

    def acceptance(self) -> dict[str, Any]:
        """Which law decides, for /health: `exact` unless another is on, null where nothing is drafted."""
        on = [one for one in self.positions.values() if one.on]
        laws = [one for one in on if one.switch.stage == "law"]
        if laws:
            return {"law": laws[0].switch.name, "options": msgspec.to_builtins(laws[0].options)}
        drafted = any(one.switch.stage == "draft" for one in on)
        return {"law": "exact" if drafted else None, "options": {}}

    def begin(self) -> None:
        """Remember the counts before a request, and let no earlier one leave anything behind.

        A `load` switch runs in every request, as what it left out is missing from all of it.
        """
        for position in self.positions.values():
            position.mark = position.counter.runs
            if position.on and position.switch.stage == "load":
                position.counter.runs += 1
            if position.forget is not None:
                position.forget()

    def end(self) -> None:
        """See which switches ran in the request that just finished."""
        for position in self.positions.values():
            position.ran_last = position.counter.runs > position.mark

    def clear(self) -> None:
        """Forget the counts of the load, so that only requests count."""
        for position in self.positions.values():
            position.counter.clear()
