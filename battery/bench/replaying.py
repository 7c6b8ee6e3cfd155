"""A replay before its first window: that every prompt has a recorded answer, and that it is the same prompt.

Nothing is launched for a campaign that lacks one, and nothing is written for one whose prompts came out otherwise: a
text after another prompt is no continuation of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from battery.bench.preflight import PromptFile
from battery.bench.prompts import Prompt
from battery.ledger.errors import PlanError, ReceiptError
from battery.ledger.plan import Plan
from battery.ledger.store import PROMPTS
from battery.ledger.trajectories import Trajectories, Trajectory

_SHOWN = 3


def check(plan: Plan, recorded: Trajectories | None, needed: Sequence[tuple[int, int]]) -> None:
    """PlanError unless each of the `needed` prompts (rung, seed) has an answer as long as the plan asks for."""
    asked = plan.replayed
    if asked is None and recorded is None:
        return
    if asked is None or recorded is None or asked.texts != recorded.replay:
        raise PlanError(
            f"plan {plan.name}: what it replays is not what was read: start it with battery run --replay CAMPAIGN"
        )
    name, source = asked.campaign, recorded.header.plan
    if source.mix != plan.mix:
        raise PlanError(
            f"plan {plan.name}: its workload is {', '.join(plan.mix)}, that of {name} is {', '.join(source.mix)}: its"
            " texts continue other prompts; give a plan of the same workload"
        )
    known = recorded.by_prompt()
    missing = [one for one in needed if one not in known]
    if missing:
        raise PlanError(_missing(plan, recorded, missing))
    least = plan.sampler.min_tokens
    short = [(one, len(known[one].ids)) for one in needed if len(known[one].ids) < least]
    if short:
        (rung, seed), length = short[0]
        raise PlanError(
            f"plan {plan.name}: it asks for at least {least} tokens, but {len(short)} of {len(needed)} texts of {name}"
            f" are shorter (seed {seed} at {rung:,} tokens: {length}); lower sampler.min_tokens"
        )


def _missing(plan: Plan, recorded: Trajectories, missing: list[tuple[int, int]]) -> str:
    """Which prompts have no answer to follow, and what the source has."""
    named = ", ".join(f"seed {seed} at {rung:,} tokens" for rung, seed in missing[:_SHOWN])
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    source, has = recorded.replay, recorded.header.plan
    lacking = "; ".join(f"{count} cells: {why}" for why, count in recorded.lacking.items())
    rungs = ", ".join(f"{rung:,}" for rung in has.ladder)
    return (
        f"plan {plan.name}: {source.campaign} has no recorded continuation of arm {source.arm} for {named}{more}; it"
        f" has {recorded.blocks} blocks, rungs {rungs}, {has.seeds} seeds a rung,"
        f" {'a' if has.sentinel else 'no'} sentinel"
        f"{f' ({lacking})' if lacking else ''}: ask for no more than that"
    )


def continued(sized: PromptFile, recorded: Trajectories | None, most: int) -> PromptFile:
    """The sized prompts, each with the first `most` tokens of its recorded answer; PlanError for another prompt."""
    if recorded is None:
        return sized
    known = recorded.by_prompt()
    prompts = tuple(
        _continued(one, known.get((one.rung, one.seed)), recorded, most) for one in sized.prompts
    )
    return msgspec.structs.replace(sized, prompts=prompts)


def held(
    folder: Path, sized: Mapping[tuple[int, int], Prompt], recorded: Trajectories | None, plan: Plan
) -> None:
    """ReceiptError where a prompt's kept answer is not the recorded one any more: the file was altered since."""
    if recorded is None:
        return
    known = recorded.by_prompt()
    for place, prompt in sized.items():
        answer = known.get(place)
        if answer is None or prompt.forced != tuple(answer.ids[: plan.sampler.max_tokens]):
            raise ReceiptError(
                f"{folder / PROMPTS}: the answer kept for seed {prompt.seed} at {prompt.rung:,} tokens is not what"
                f" {recorded.replay.campaign} recorded; restore the file, or start a new campaign"
            )


def _continued(
    prompt: Prompt, answer: Trajectory | None, recorded: Trajectories, most: int
) -> Prompt:
    """One prompt with its answer."""
    if answer is None or answer.prompt != prompt.digest:
        raise PlanError(
            f"the prompt of seed {prompt.seed} at {prompt.rung:,} tokens is not the one that {recorded.replay.campaign}"
            " measured: the corpus, the tokenizer or the chat template changed, so its text continues another prompt;"
            " measure that campaign anew"
        )
    return msgspec.structs.replace(prompt, continuation=answer.ids[:most])
