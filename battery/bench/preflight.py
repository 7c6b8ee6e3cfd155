"""Before anything is measured: an idle machine, arms that start, prompts that fit.

Nothing is written until all of it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from battery.bench import gate, prompts, schedule, sensors
from battery.bench.client import Client, Unreachable
from battery.bench.launch import Server
from battery.bench.progress import Progress, Stopper
from battery.bench.prompts import Prompt
from battery.ledger import strict
from battery.ledger.arm import Arm
from battery.ledger.errors import GateRefused, LaunchError, PlanError, ReceiptError
from battery.ledger.plan import Plan
from battery.ledger.store import PROMPTS, Campaign, Header

SAME_MACHINE = ("cpu", "cores_logical", "machine", "gpu")
"""What of a machine must not change within a campaign."""


class PromptFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a campaign's prompts were sized: enough to compose each again."""

    workload: str
    """Of every prompt; of several kinds in the plan's order, which tells with its seed which one a prompt is."""
    corpus: str
    prompts: tuple[Prompt, ...]


def wait_quiet(plan: Plan, progress: Progress, stopper: Stopper, glances: sensors.Glances) -> None:
    """Wait until the machine is idle enough to take its baseline; GateRefused if it does not become so."""
    progress.phase(None, "gate", "an idle machine, to take its baseline")
    limits = msgspec.structs.replace(plan.gate, calibration=None, temp_band_c=None)
    clearance = gate.wait(limits, {}, glances.look, lambda: stopper.asked)
    stopper.check()
    if clearance.verdict == "refused":
        raise GateRefused(
            f"the machine is not idle ({'; '.join(clearance.reasons)}), so there is no baseline to compare with;"
            " stop what runs on it, or loosen [gate] in the plan"
        )


def check_same(
    folder: Path, header: Header, plan: Plan, arms: Sequence[Arm], machine: dict[str, Any]
) -> None:
    """ReceiptError if the campaign in `folder` is of another plan, other arms or another machine."""
    here = {key: machine.get(key) for key in SAME_MACHINE}
    there = {key: header.machine.get(key) for key in SAME_MACHINE}
    same_arms = header.arm_digests == {arm.name: arm.digest for arm in arms}
    what = None
    followed = [one.replayed.texts if one.replayed else None for one in (header.plan, plan)]
    if followed[0] != followed[1]:
        of = header.plan.replayed
        what = f"as a replay of {of.campaign} (seal {of.seal[:12]}…)" if of else "as no replay"
    elif header.plan_digest != plan.digest:
        what = "with another plan"
    elif not same_arms or [arm.name for arm in header.arms] != [arm.name for arm in arms]:
        what = "with other arms, or with another one as control"
    elif here != there:
        what = f"on another machine ({there}, here {here})"
    if what:
        raise ReceiptError(f"{folder}: was started {what}; give this one a new name (--campaign)")


def try_arms(
    servers: Iterable[Server], plan: Plan, campaign_seed: int, progress: Progress, stopper: Stopper
) -> PromptFile:
    """Start every arm once, the control first, and size every prompt with the control's own tokenizer."""
    sized: list[Prompt] = []
    for server in servers:
        progress.phase(None, "launch", f"{server.arm.name}, to see that it starts")
        with server, Client(server.url) as client:
            check_context(server, plan)
            if not sized:
                progress.phase(None, "sizing prompts", "")
                sized = _size(plan, campaign_seed, server, client, stopper)
    return PromptFile(workload=", ".join(plan.mix), corpus=_corpora(plan), prompts=tuple(sized))


def _corpora(plan: Plan) -> str:
    """Where the texts of a plan are from."""
    return "; ".join(dict.fromkeys(prompts.corpus(workload).source for workload in plan.mix))


def _size(
    plan: Plan, campaign_seed: int, server: Server, client: Client, stopper: Stopper
) -> list[Prompt]:
    """Every prompt of the campaign, sized on a running server."""
    path = server.backend.tokenize

    def count(messages: prompts.Messages) -> list[int]:
        stopper.check()
        try:
            status, answer = client.post_json(path, {"messages": messages})
        except Unreachable as broken:
            raise LaunchError(
                f"arm {server.arm.name}: the server was ready and then gone while prompts were sized ({broken});"
                f" exit status {server.ended()}; its last lines:\n{server.log_tail()}"
            ) from broken
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        if status != 200 or not isinstance(tokens, list):
            raise LaunchError(
                f"arm {server.arm.name}: {path} answered {status} {str(answer)[:120]};"
                " without it prompts cannot be sized exactly"
            )
        return tokens

    needed = [
        (schedule.workload_of(plan, seed), rung, seed)
        for rung, seed in schedule.prompts_needed(plan, campaign_seed)
    ]
    return prompts.size_all(needed, count, plan.limits.prompt_tolerance)


def load_prompts(campaign: Campaign) -> dict[tuple[int, int], Prompt]:
    """The sized prompts by (rung, seed); ReceiptError if the corpus no longer gives them."""
    sized, plan = campaign.prompts(PromptFile), campaign.header().plan
    for prompt in sized.prompts:
        workload = schedule.workload_of(plan, prompt.seed)
        messages = prompts.compose(workload, prompt.seed, prompt.rung, prompt.words, prompt.letters)
        if strict.digest(messages) != prompt.digest:
            raise ReceiptError(
                f"{campaign.folder / PROMPTS}: the prompt of seed {prompt.seed} can no longer be"
                f" composed: the corpus changed ({sized.corpus} then, {_corpora(plan)} now);"
                " start a new campaign"
            )
        if plan.replayed and not prompt.forced:
            raise ReceiptError(
                f"{campaign.folder / PROMPTS}: seed {prompt.seed} has no recorded answer to follow; restore the file"
            )
    return {(prompt.rung, prompt.seed): prompt for prompt in sized.prompts}


def check_context(server: Server, plan: Plan) -> None:
    """PlanError when the longest rung and its answer do not fit the model."""
    context = (server.ready.get("model") or {}).get("context")
    need = plan.ladder[-1] + plan.sampler.max_tokens
    if isinstance(context, int) and need > context:
        raise PlanError(
            f"plan {plan.name}: rung {plan.ladder[-1]:,} and {plan.sampler.max_tokens:,} new tokens need {need:,},"
            f" but {server.arm.model} holds {context:,}; shorten the ladder"
        )
