"""What a cell came to, judged from evidence alone: engagement, cold prefill, sampler, sense.

Pure. Each function takes what the server said and what the client saw; silence is recorded as such and
never read as agreement. Memory: oom.py.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from battery.ledger.arm import Arm
from battery.ledger.receipt import Cold, Engagement, SwitchSeen
from battery.ledger.trace import Trace, prompt_processed

Health = dict[str, Any]
SYNTHETIC = "synthetic:"
"""How the name of a model with random weights begins."""


def engagement(arm: Arm, before: Health, after: Health) -> Engagement:
    """Whether every switch the arm asks for ran between two health documents, and no other did.

    A server that tells of no switches, or did not answer, is `unobservable`, also for an arm that asks for none.
    """
    told = after.get("switches")
    asked = arm.asked
    if not isinstance(told, dict) or not before:
        seen = [
            SwitchSeen(name=name, asked=True, state=None, verdict="unobservable") for name in asked
        ]
    else:
        earlier = before.get("switches") or {}
        names = sorted({*told, *asked})
        seen = [
            _switch(name, name in asked, earlier.get(name) or {}, told.get(name)) for name in names
        ]
    rules, broken = _rules(arm, after) if after else ({}, [])
    wrong = [f"{switch.name}: {switch.reason}" for switch in seen if switch.verdict == "disengaged"]
    declined = [
        f"{switch.name}: {switch.reason}" for switch in seen if switch.verdict == "declined"
    ]
    verdict: Literal["engaged", "disengaged", "declined", "unobservable"] = "engaged"
    if wrong or broken:
        verdict = "disengaged"
    elif declined:
        verdict = "declined"
    elif not before or not after or not isinstance(told, dict):
        verdict = "unobservable"
    gap = "health tells of no switches" if before and after else "health did not answer"
    silence = [gap] if verdict == "unobservable" else []
    reason = "; ".join([*wrong, *broken, *declined, *silence])
    return Engagement(verdict=verdict, reason=reason, switches=tuple(seen), rules=rules)


def _switch(name: str, asked: bool, before: Health, after: Health | None) -> SwitchSeen:
    """One switch: its state after the request against whether the arm asks for it."""
    if after is None:
        return SwitchSeen(
            name=name,
            asked=asked,
            state=None,
            verdict="disengaged",
            reason="the server does not know it",
        )
    state, counters = after.get("state"), after.get("counters") or {}
    ran = _delta(before.get("counters") or {}, counters)
    reason = after.get("reason")
    verdict: Literal["engaged", "disengaged", "declined", "unobservable", "off"]
    if asked and state == "declined":
        verdict = "declined"
    elif asked and (state != "engaged" or ran == 0):
        verdict = "disengaged"
        why = f"asked for, but its state after the request is '{state}'"
        reason = why if state != "engaged" else "says engaged, but its counter of runs did not move"
    elif asked:
        verdict = "engaged"
    elif state in ("engaged", "armed") or (ran or 0) > 0:
        verdict, reason = "disengaged", f"not asked for, but its state is '{state}'"
    else:
        verdict = "off"
    return SwitchSeen(
        name=name,
        asked=asked,
        before=before.get("state"),
        state=state,
        verdict=verdict,
        reason=reason,
        exactness=after.get("exactness"),
        coverage=after.get("coverage"),
        counters=counters,
        kill=after.get("kill"),
    )


def _delta(before: Health, after: Health) -> int | None:
    """How often a switch ran between two looks; None where it is not counted."""
    one, two = before.get("runs"), after.get("runs")
    return two - one if isinstance(one, int) and isinstance(two, int) else None


def _rules(arm: Arm, health: Health) -> tuple[dict[str, Any], list[str]]:
    """Every rule of the arm as {path: {want, found}}, and a complaint per broken one."""
    rules, broken = {}, []
    for path, want in sorted(arm.engaged.items()):
        found: Any = health
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        rules[path] = {"want": want, "found": found}
        if found != want:
            broken.append(f"{path} is {found!r}, must be {want!r}")
    return rules, broken


def cold(trace: Trace, probe: str, doubt: str | None = None) -> Cold:
    """Whether the server says that it processed every prompt token; `probe` is the window's cache probe in words.

    `doubt` is what that probe showed against the server's word: then `cold` is no more than what it says.

    The server's own figures decide. The client's prompt length is never put in for a missing one: that
    check could not fail.
    """
    whole, cached, worked = trace.prompt_tokens, trace.cached_tokens, prompt_processed(trace)
    facts = f"prompt {whole}, cached {cached}, processed {worked}, as the server told"
    if (cached or 0) > 0 or (worked is not None and whole is not None and worked < whole):
        return Cold(value="warm", evidence=facts)
    if cached == 0 or (worked is not None and worked == whole):
        if doubt is not None:
            return Cold(value="unverified", evidence=f"{facts}; but {doubt}", doubt=doubt)
        return Cold(value="cold", evidence=facts)
    return Cold(value="unverified", evidence=f"the server does not say; {probe}")


def honoured(
    asked: dict[str, Any], told: dict[str, Any] | None, seen: Trace | None = None
) -> tuple[Literal["honoured", "changed", "unknown"], str]:
    """Whether the sampler that the server says it applied is the one asked for, and what differs.

    `seen` is what came: a length that contradicts max_tokens needs no word of the server.
    """
    length = None if seen is None else _length(asked.get("max_tokens"), seen)
    if length is not None:
        return "changed", length
    if told is None:
        return "unknown", "the server does not say which sampler it applied"
    changed = [
        f"{key}: asked {value}, applied {told[key]}"
        for key, value in asked.items()
        if key in told and told[key] != value
    ]
    # what was not asked for must be neutral: a server's own default top-k cuts the distribution all the same
    changed += [
        f"{key}: not asked for, applied {told[key]}"
        for key, neutral in (
            ("top_k", (None, 0, -1)),
            ("min_p", (None, 0)),
            ("forced_tokens", (None, 0)),
        )
        if key not in asked and key in told and told[key] not in neutral
    ]
    silent = [key for key in asked if key not in told]
    if changed:
        return "changed", "; ".join(changed)
    return ("unknown", f"no word on {', '.join(silent)}") if silent else ("honoured", "")


def _length(asked: int | None, seen: Trace) -> str | None:
    """How the tokens that came contradict max_tokens, by the server's own count; None where they do not."""
    came = seen.completion_tokens
    if asked is None or came is None or not seen.comparable:
        return None
    if came > asked:
        return f"max_tokens: asked {asked}, but {came} tokens came"
    if came < asked and seen.finish_reason == "length":
        return f"max_tokens: asked {asked}, but the server stopped for length after {came}"
    return None


def random_weights(model: str, health: Health) -> bool:
    """Whether an arm runs weights that mean nothing, so that its answers cannot be asked for sense.

    Only when the arm declares it by its model's name, before anything is measured and in every receipt, and the
    server says so too (`model.synthetic` in its health): neither can wave the question aside alone.
    """
    told = health.get("model")
    return model.startswith(SYNTHETIC) and isinstance(told, dict) and told.get("synthetic") is True


def incoherent(answer: str, words: tuple[str, ...]) -> str | None:
    """Why an answer to a fixed question is not sense; None when it is.

    A broken fusion answers "Paris!!!!!!!!": so the known word must be there, and no piece may repeat on and on.
    """
    if not answer.strip():
        return "the answer is empty"
    if not any(word.lower() in answer.lower() for word in words):
        return f"the answer {answer[:60]!r} holds none of {', '.join(words)}"
    if re.search(r"(\S)\1{7,}", answer) or re.search(r"(\b\S+\b)(?:\W+\1\b){4,}", answer):
        return f"the answer repeats itself: {answer[-60:]!r}"
    return None
