"""What a switch says of itself, beside what was seen to run.

Its counters and its coverage are its own words. Seen from outside: which modules that were not there before were
called in one decode step, in how many places and layers; and which entries of a cache are of another class. They are
held against the coverage in the unit that the switch declares. A switch that says 30 layers and ran in 29, that ran in
half of a layer that it calls whole, or that says engaged and never ran, fails here.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from switchboard import cache as kv
from switchboard.bisect.calls import Known, layer_paths, watched
from switchboard.bisect.rungs import filled
from switchboard.bisect.subject import Subject
from switchboard.decode import forward
from switchboard.sampler import Sampling

PROMPT, ANSWER = 70, 3
"""Tokens of the request: more than a tile of masked_prefill, so that it has something to cut, and room for a draft."""


def hold(subject: Subject, before: Known) -> tuple[str | None, str]:
    """What is wrong with the account, or None; and what was held against it."""
    position = subject.position
    if position is None:
        return "no switch is on", ""
    runs = position.counter.runs
    subject.answer(subject.ids(PROMPT), Sampling(temperature=0.0, ignore_eos=True), ANSWER)
    moved, told = position.counter.runs - runs, position.told()
    if told["state"] != "engaged" or moved < 1:
        return f"/health says {told['state']} after a request, {moved} runs were counted", ""
    account = f"engaged, {moved} runs in a request of {PROMPT} + {ANSWER} tokens"
    coverage, stage = told["coverage"], position.switch.stage
    if coverage is None or stage == "draft":
        return None, account
    if stage == "cache":
        return _entries(subject, coverage["fused"], account)
    ran = seen(subject, before)
    if coverage["modules"] == ran.modules == 0:
        return None, f"{account}; it changes no module, so its coverage is its own word"
    unit, claimed = coverage["unit"], coverage["fused"] + coverage["partly"]
    if (claimed, coverage["modules"]) != (getattr(ran, unit), ran.modules):
        return (
            f"coverage says {claimed} {unit}, by {coverage['modules']} modules; in one step "
            f"{ran.modules} new modules ran, in {ran.places} places of {ran.layers} layers"
        ), ""
    told_by = f"{claimed} of {coverage['eligible']} {unit}, {ran.modules} modules"
    return None, f"{account}; {told_by} fused and seen to run"


def _entries(subject: Subject, claimed: int, account: str) -> tuple[str | None, str]:
    """A cache's entries that are of another class than the plain one's, beside those that the switch claims."""
    pairs = zip(kv.make(subject.model), subject.make_cache(), strict=True)
    other = sum(type(old) is not type(new) for old, new in pairs)
    if other != claimed:
        return f"coverage says {claimed} layers; {other} entries of the cache are other ones", ""
    return None, f"{account}; {other} entries of the cache are its own"


@dataclass(frozen=True)
class Ran:
    """New modules that were called in one decode step, outermost only; the places that hold them, and the layers."""

    modules: int
    places: int
    layers: int


def seen(subject: Subject, before: Known) -> Ran:
    """Where something that the plain model has not was called in one decode step."""
    ids = subject.ids(9)
    cache = filled(subject, ids[:-1])
    with watched(subject.model) as calls:
        mx.eval(forward(subject.model, cache, mx.array(ids[-1:])))
    layers = layer_paths(subject.model)
    paths = {
        call.path
        for call in calls
        if not before.same(call.path, call.module, call.calling)
        and any(call.path.startswith(f"{one}.") for one in layers)
    }
    outermost = {
        path
        for path in paths
        if not any(path.startswith(f"{other}.") for other in paths if other != path)
    }
    owners = {path.rpartition(".")[0] for path in outermost}
    within = {one for one in layers if any(path.startswith(f"{one}.") for path in outermost)}
    return Ran(len(outermost), len(owners), len(within))
