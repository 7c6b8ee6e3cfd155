"""Find projections that read the same input, join those that can be one matrix, and say what was left.

Works on structure, not on models: a layer is eligible where a module holds all the given siblings, whatever its
architecture and however deep it is nested. Siblings that agree in kind, quantisation, width, dtype and bias become
one product. Where they do not agree (mixed quantisation) those that do are joined and the rest stays separate: of a
4-bit q and k beside an 8-bit v, q and k are one product. Where a product turns out not to be bitwise the separate
ones, its last sibling is left out and it is tried again.

Layers are joined one at a time: make the joined matrix, check it, let the originals go, return their memory. So the
peak is one layer's copy above the model, which `afford` may refuse before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from switchboard import joined
from switchboard.errors import Declined
from switchboard.joined import Joint, Part, concatenate, cut, differ, routed, rows, traits
from switchboard.registry import Applied, Counter

Afford = Callable[[int, str], None]
"""Takes the bytes that joining needs beside the model and the layer that needs them; raises Declined."""


@dataclass(frozen=True)
class Owner:
    """A module that holds siblings side by side, and where it stands."""

    path: str
    module: Any
    names: tuple[str, ...]

    def parts(self) -> list[Any]:
        """The siblings as they are now."""
        return [self.module[name] for name in self.names]


@dataclass
class Joined:
    """What was joined and what was refused, with the layers of each class."""

    joints: list[tuple[Owner, tuple[str, ...], Joint]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    whole: int = 0
    partly: int = 0
    classes: dict[str, dict[str, int]] = field(default_factory=dict)

    def count(self, label: str, names: int, taken: int) -> None:
        """Enter one layer: `taken` of its siblings are read by a joint."""
        here = self.classes.setdefault(label, {"eligible": 0, "fused": 0, "partly": 0})
        here["eligible"] += 1
        if taken == names:
            self.whole += 1
            here["fused"] += 1
        elif taken:
            self.partly += 1
            here["partly"] += 1


def join(
    model: Any,
    siblings: Sequence[tuple[str, ...]],
    counter: Counter,
    keep_originals: bool,
    *,
    experts: bool = False,
    afford: Afford | None = None,
) -> Applied:
    """Join the siblings wherever they stand side by side; Declined when that is nowhere.

    `experts` picks routed projections instead of ordinary ones; the other kind does not count as eligible.
    """
    found = owners(model, siblings)
    eligible = [one for one in found if any(map(routed, one.parts())) == experts]
    if not eligible:
        raise Declined(_nowhere(siblings, experts, elsewhere=len(found)))
    if afford is not None:
        _ask(eligible, keep_originals, afford)
    tally = Joined()
    for owner in eligible:
        label = describe(owner)
        taken = _join_one(owner, label, tally, counter, keep_originals)
        tally.count(label, len(owner.names), taken)
        # The freed originals do not fit the next layer's matrix; kept for reuse they would add up.
        mx.clear_cache()
    if not tally.joints:
        raise Declined(tally.refused[0])
    note = None
    if tally.refused:
        short = len(eligible) - tally.whole
        note = f"{short} of {len(eligible)} layers are not joined whole; first: {tally.refused[0]}"

    def forget() -> None:
        """Drop what any joint has at hand."""
        for _, _, joint in tally.joints:
            joint.forget()

    return Applied(
        fused=tally.whole,
        eligible=len(eligible),
        layers=len(model.layers),
        undo=_way_back(tally.joints),
        note=note,
        forget=forget,
        partly=tally.partly,
        classes=tally.classes,
        unit="places",
        modules=sum(len(names) for _, names, _ in tally.joints),
    )


def owners(model: Any, siblings: Sequence[tuple[str, ...]]) -> list[Owner]:
    """Every module that holds one of the sets of siblings, from the first layer to the last."""
    # named_modules walks from the last layer to the first.
    return [
        Owner(path, module, names)
        for path, module in reversed(model.named_modules())
        for names in siblings
        if all(isinstance(module.get(name), Module) for name in names)
    ]


def describe(owner: Owner) -> str:
    """The class of a layer: its siblings with their formats, such as `q_proj+k_proj q4-g32, v_proj q8-g32`."""
    by_format: dict[str, list[str]] = {}
    for name, part in zip(owner.names, owner.parts(), strict=True):
        by_format.setdefault(_format(part), []).append(name)
    return ", ".join(f"{'+'.join(names)} {kind}" for kind, names in by_format.items())


def _format(part: Any) -> str:
    if not joined.projection(part):
        return type(part).__name__
    if "scales" in part:
        return f"q{part.bits}-g{part.group_size}"
    return str(part.weight.dtype).rpartition(".")[2]


def _join_one(
    owner: Owner, label: str, tally: Joined, counter: Counter, keep_originals: bool
) -> int:
    """Join what can be joined in one layer; the number of siblings that a joint reads now."""
    parts = owner.parts()
    reason = differ(owner.names, parts)
    taken = 0
    for places in _alike(parts):
        wide = label not in tally.classes
        places, joint, wrong = _proved(places, parts, counter, wide)
        reason = reason or wrong
        if joint is None:
            continue
        for place, there in enumerate(places):
            kept = parts[there] if keep_originals else None
            setattr(owner.module, owner.names[there], Part(joint, place, kept))
        tally.joints.append((owner, tuple(owner.names[there] for there in places), joint))
        taken += len(places)
    if reason is not None:
        tally.refused.append(f"{owner.path}: {reason}")
    return taken


def _alike(parts: list[Any]) -> list[list[int]]:
    """Places of the projections that could be one matrix, two or more each."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, part in enumerate(parts):
        if differ(("",), [part]) is None:
            groups.setdefault(tuple(traits(part).items()), []).append(place)
    return [places for places in groups.values() if len(places) > 1]


def _proved(
    places: list[int], parts: list[Any], counter: Counter, wide: bool
) -> tuple[list[int], Joint | None, str | None]:
    """The longest beginning of these siblings whose joint is bitwise the separate products, and the first failure."""
    failure = None
    while len(places) > 1:
        chosen = [parts[place] for place in places]
        joint = Joint(concatenate(chosen), [rows(part) for part in chosen], counter)
        wrong = joined.unlike(joint, chosen, wide=wide)
        if wrong is None:
            return places, joint, failure
        failure = failure or wrong
        places = places[:-1]
    return [], None, failure


def _nowhere(siblings: Sequence[tuple[str, ...]], experts: bool, elsewhere: int) -> str:
    names = " or ".join(", ".join(one) for one in siblings)
    if experts:
        return f"no layer routes its input to experts with {names}"
    routed_only = (
        f"; {elsewhere} layers hold them for routed experts, which fused_experts joins"
        if elsewhere
        else ""
    )
    return f"no layer has {names} side by side{routed_only}"


def _ask(eligible: list[Owner], keep_originals: bool, afford: Afford) -> None:
    """Ask for the largest copy that exists at a time: one layer's, or with originals kept all of them."""
    sizes = {
        owner.path: sum(
            part[name].nbytes
            for places in _alike(owner.parts())
            for part in (owner.parts()[place] for place in places)
            for name in joined.ARRAYS
            if part.get(name) is not None
        )
        for owner in eligible
    }
    largest = max(sizes, key=lambda path: sizes[path])
    afford(sum(sizes.values()) if keep_originals else sizes[largest], largest)


def _way_back(joints: list[tuple[Owner, tuple[str, ...], Joint]]) -> Callable[[], None]:
    def undo() -> None:
        """Cut the joined rows apart again; they are the originals' rows, bit by bit."""
        for owner, names, joint in joints:
            for place, name in enumerate(names):
                setattr(owner.module, name, cut(joint.product, joint.rows[place]))

    return undo
