"""Recorded answers of a finished campaign, so that the arms of another can be timed along the same texts.

What a text does to speed is large: where drafts are accepted, and how long the answer is, follows from it. Two free
arms that round differently soon write different texts, and their ratio holds that difference. Made to follow one
recorded text they do the same steps, and the ratio holds the speed of the code alone.

The texts are those of the source's control arm, from the receipts that count there, sealed. A source that was itself a
replay is refused: its texts are another campaign's.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from battery.ledger import strict
from battery.ledger.claims import Stopping
from battery.ledger.errors import PlanError, ReceiptError
from battery.ledger.plan import Plan, Replay
from battery.ledger.receipt import MOST_IDS, Receipt
from battery.ledger.store import Campaign, Header, check_pool, complete_blocks, ended_by_rule


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded answer: the prompt it continues, and its token ids."""

    rung: int
    seed: int
    prompt: str
    """Digest of the prompt's messages."""
    ids: tuple[int, ...]


class Trajectories(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded answers of one campaign's control arm."""

    header: Header
    """Of the campaign that they come from."""
    replay: Replay
    """What a plan says of them."""
    blocks: int
    """Blocks that the source has."""
    answers: tuple[Trajectory, ...]
    lacking: dict[str, int]
    """Why cells of the control left no answer to follow, and how many."""

    def by_prompt(self) -> dict[tuple[int, int], Trajectory]:
        """The answers by rung and seed."""
        return {(one.rung, one.seed): one for one in self.answers}

    def plan(self) -> Plan:
        """The source's own plan with as many blocks as it has, fixed: where its rule ended it early is no rule here."""
        plan = self.header.plan
        if self.blocks == plan.blocks:
            return plan
        return msgspec.structs.replace(plan, blocks=self.blocks, stopping=Stopping())


def recorded(campaign: Campaign, block: int | None = None) -> Trajectories:
    """The answers that the control of a sealed campaign gave; ReceiptError or PlanError where they cannot be followed.

    With `block` those of this block and the sentinel's alone.
    """
    header, name = campaign.header(), campaign.folder.name
    if header.plan.replayed is not None:
        raise PlanError(
            f"{name} is itself a replay of {header.plan.replayed.campaign}: replay that campaign"
        )
    sealed = campaign.sealed()
    if sealed is None:
        raise ReceiptError(
            f"{name} is not sealed, so nothing fixes its texts: finish it first (the same command goes on)"
        )
    if campaign.chain().seal != sealed.seal:
        raise ReceiptError(
            f"{name}: its files are not those that were sealed; battery verify {name} names them"
        )
    receipts = campaign.receipts()
    check_pool(receipts, header)
    whole = complete_blocks(receipts, header)
    blocks = ended_by_rule(campaign) or len(whole)
    if block is not None and block not in whole:
        raise PlanError(
            f"{name} has no complete block {block}; it has {', '.join(map(str, whole))}"
        )
    answers, lacking = _answers([one for each in whole.values() for one in each], header, block)
    if not answers:
        told = "; ".join(f"{why} ({count} cells)" for why, count in lacking.items())
        raise PlanError(f"{name}: its control {header.control} left no text to follow: {told}")
    digest = strict.digest([msgspec.structs.astuple(one) for one in answers])
    replay = Replay(campaign=name, seal=sealed.seal, arm=header.control, block=block, digest=digest)
    return Trajectories(
        header=header, replay=replay, blocks=blocks, answers=answers, lacking=lacking
    )


def _answers(
    counted: Sequence[Receipt], header: Header, block: int | None
) -> tuple[tuple[Trajectory, ...], dict[str, int]]:
    """The control's answers, one per prompt, and why some of its cells left none."""
    found: dict[tuple[int, int], Trajectory] = {}
    lacking: dict[str, int] = {}
    for receipt in sorted(counted, key=lambda one: one.sequence):
        cell = receipt.cell
        if cell.arm != header.control or not (
            cell.sentinel or block is None or cell.block == block
        ):
            continue
        ids = _ids(receipt)
        if isinstance(ids, str):
            lacking[ids] = lacking.get(ids, 0) + 1
            continue
        one = Trajectory(
            rung=cell.rung, seed=cell.seed, prompt=receipt.request.prompt_digest, ids=ids
        )
        found.setdefault((cell.rung, cell.seed), one)
    return tuple(found.values()), lacking


def _ids(receipt: Receipt) -> tuple[int, ...] | str:
    """The token ids of an answer, or why they cannot be followed."""
    if receipt.outcome != "ok":
        return f"ended {receipt.outcome}"
    came, text = receipt.trace.completion_tokens, receipt.text
    if text is None or text.ids is None:
        if came is not None and came > MOST_IDS:
            return f"longer than {MOST_IDS:,} tokens, beyond which ids are not kept"
        return "its token ids were not kept, or its server sends none: measure it anew"
    if len(text.ids) != came:
        return f"{len(text.ids)} token ids came, but the server counts {came}"
    return text.ids
