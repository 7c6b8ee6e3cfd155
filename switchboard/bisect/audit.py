"""What a switch says of itself, beside what was seen to run.

Its counters and its coverage are its own words. Seen from outside: which modules that were not there before were
called in one decode step. A switch that says 30 layers and ran in 29, or that says engaged and never ran, fails here.
"""

from __future__ import annotations

import mlx.core as mx

from switchboard.bisect.calls import Known, layer_paths, watched
from switchboard.bisect.rungs import filled
from switchboard.bisect.subject import Subject
from switchboard.decode import forward
from switchboard.sampler import Sampling

PROMPT, ANSWER = 40, 4


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
    coverage = told["coverage"]
    if coverage is None or position.switch.stage in ("cache", "draft"):
        return None, account
    owners, modules, layers = seen(subject, before)
    if not modules:
        return None, f"{account}; it adds no module, so its coverage is its own word"
    claimed = coverage["fused"] + coverage.get("partly", 0)
    if claimed not in (owners, modules, layers):
        return (
            f"coverage says {claimed} fused; in one step {modules} new modules ran, "
            f"in {owners} places of {layers} layers"
        ), ""
    return None, f"{account}; {claimed} of {coverage['eligible']} fused and seen to run"


def seen(subject: Subject, before: Known) -> tuple[int, int, int]:
    """Places, modules and layers where something that the plain model has not was called in one decode step."""
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
    return len(owners), len(outermost), len(within)
