"""Do the receipts themselves hold? Seal, schema, the plan's cells, and that arms were sent the same requests.

Read from the files as they lie there: no index, no earlier analysis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from battery.ledger.errors import ReceiptError
from battery.ledger.loading import Loaded
from battery.ledger.receipt import SCHEMA, Receipt
from battery.ledger.store import (
    HEADER,
    PROMPTS,
    SEAL,
    Campaign,
    Header,
    Seal,
    check_pool,
    complete_blocks,
    pretty,
)
from battery.render.problem import Problem, limited

_RESTORE = "restore it from version control"
_APART = (
    "restore it, or measure the block again: arms that were sent other requests cannot be compared"
)
_SAMPLER = ("temperature", "top_p", "top_k", "max_tokens", "min_tokens")


class _Sized(msgspec.Struct, frozen=True):
    """What prompts.json says of one prompt, as far as it is held against receipts."""

    rung: int
    seed: int
    tokens: int
    digest: str


class _Prompts(msgspec.Struct, frozen=True):
    """The prompts of a campaign."""

    prompts: tuple[_Sized, ...]


def problems(store: Campaign, read: Loaded, blocks: int) -> Iterator[Problem]:
    """Everything about a campaign's own files that does not hold; its first `blocks` blocks must be whole.

    `read` are the files as they were just read, every byte of them.
    """
    header = store.header()
    where = f"receipts/{store.folder.name}"
    receipts, complaints = read.receipts, list(read.complaints.values())
    yield from _seal(store, read.chain)
    for complaint in complaints:
        # the folder may be a temporary one: a place is told from receipts/ on
        yield Problem(place=where, what=complaint.replace(f"{store.folder}/", ""), remedy=_RESTORE)
    if odd := [one.sequence for one in receipts if one.schema != SCHEMA]:
        yield Problem(
            place=where,
            what=f"{len(odd)} receipt(s), the first {odd[0]}, are of a schema that this battery does not read",
            remedy="read it with the battery that wrote it",
        )
    yield from _pooled(receipts, header, where)
    yield from _cells(receipts, header, blocks, where)
    named = {
        receipt.sequence: f"{where}/{path.name}"
        for path, receipt in _pairs(store, receipts, bool(complaints))
    }
    yield from limited(list(_parity(receipts, header, named, where)), where)
    yield from limited(list(_prompts(store, receipts, named)), where)


def _pairs(store: Campaign, receipts: list[Receipt], broken: bool) -> Iterable[tuple[Any, Receipt]]:
    """Receipts with their paths; by the number in the name where a file is missing among them."""
    paths = store.paths()
    if not broken:
        return zip(paths, receipts, strict=True)
    numbered = {int(path.name.split("-")[0]): path for path in paths}
    return [(numbered[one.sequence], one) for one in receipts if one.sequence in numbered]


def _seal(store: Campaign, now: Seal) -> Iterator[Problem]:
    """Files that are not what was sealed; `now` is the chain over them as they are."""
    where = f"receipts/{store.folder.name}"
    sealed = store.sealed()
    if sealed is None:
        yield Problem(
            place=f"{where}/{SEAL}",
            what="the campaign is not sealed",
            remedy="finish it; the last block seals it",
        )
        return
    for name, digest in sealed.files.items():
        if name not in now.files:
            yield Problem(
                place=f"{where}/{name}", what="sealed, but the file is missing", remedy=_RESTORE
            )
        elif now.files[name] != digest:
            what = f"its bytes changed since it was sealed (sha256 {now.files[name][:16]}…, not {digest[:16]}…)"
            yield Problem(place=f"{where}/{name}", what=what, remedy=_RESTORE)
    strays = {path.name for path in store.folder.iterdir() if path.suffix in (".json", ".jsonl")}
    for name in sorted(strays - set(sealed.files) - {SEAL}):
        yield Problem(
            place=f"{where}/{name}",
            what="this file is not in the seal",
            remedy="take it away, or seal the campaign it belongs to",
        )
    if now.files == sealed.files and (store.folder / SEAL).read_bytes() != pretty(now):
        ends = f"the chain ends in {now.seal[:16]}…, not in {sealed.seal[:16]}…"
        what = ends if now.seal != sealed.seal else "it is not the seal that these files give"
        yield Problem(place=f"{where}/{SEAL}", what=what, remedy=_RESTORE)


def fixed(store: Campaign) -> Iterator[Problem]:
    """What in a campaign's header does not hold: its schema, whose it is, and the digests of plan and arms."""
    header, where = store.header(), f"receipts/{store.folder.name}"
    if header.schema != SCHEMA:
        yield Problem(
            place=f"{where}/{HEADER} schema",
            what=f"is {header.schema}, this battery reads {SCHEMA}",
            remedy="read it with the battery that wrote it",
        )
    if header.campaign != where.removeprefix("receipts/"):
        yield Problem(
            place=f"{where}/{HEADER} campaign",
            what=f"is {header.campaign}, the folder's name is another",
            remedy="give the folder the name that its receipts have",
        )
    if header.plan_digest != header.plan.digest:
        digests = f"{header.plan.digest[:16]}…, not {header.plan_digest[:16]}…"
        yield Problem(
            place=f"{where}/{HEADER} plan_digest",
            what=f"the plan is not the one its digest names ({digests})",
            remedy=_RESTORE,
        )
    for arm in header.arms:
        told = header.arm_digests.get(arm.name)
        if told is None:
            yield Problem(
                place=f"{where}/{HEADER} arm_digests.{arm.name}",
                what="there is none",
                remedy=_RESTORE,
            )


def _pooled(receipts: list[Receipt], header: Header, where: str) -> Iterator[Problem]:
    """Receipts that may not be pooled."""
    if header.plan_digest != header.plan.digest:
        return
    try:
        check_pool(receipts, header)
    except ReceiptError as refused:
        yield Problem(place=where, what=str(refused), remedy="keep campaigns apart")


def _cells(receipts: list[Receipt], header: Header, blocks: int, where: str) -> Iterator[Problem]:
    """Blocks of the plan that are not whole, with the cells that are missing where a block has any."""
    whole = complete_blocks(receipts, header)
    missing = [block for block in range(1, blocks + 1) if block not in whole]
    if not missing:
        return
    told = ", ".join(map(str, missing))
    lacks = [words for block in missing if (words := _lacks(receipts, header, block))]
    yield Problem(
        place=where,
        what=f"block(s) {told} of the plan are not complete{': ' if lacks else ''}{'; '.join(lacks)}",
        remedy="run the campaign again: it goes on there",
    )


def _lacks(receipts: list[Receipt], header: Header, block: int) -> str:
    """What the last attempt at a block lacks, by arm and context; nothing where there was none."""
    own = [one for one in receipts if one.cell.block == block]
    attempt = max((one.attempt for one in own), default=0)
    own = [one for one in own if one.attempt == attempt]
    if not own:
        return ""
    found = []
    for arm in header.arms:
        for rung in header.plan.ladder:
            wanted = header.plan.seeds + int(header.plan.sentinel and rung == header.plan.ladder[0])
            have = sum((one.cell.arm, one.cell.rung) == (arm.name, rung) for one in own)
            if have != wanted:
                found.append(
                    f"{arm.name} at {rung:,} tokens has {have} of {wanted} cells in block {block}"
                )
    return ", ".join(found)


def _parity(
    receipts: list[Receipt], header: Header, named: Mapping[int, str], where: str
) -> Iterator[Problem]:
    """Requests that are not, but for the model's name, those of the other arms at the same place, or not the plan's."""
    first: dict[tuple[int, int, int, int], Receipt] = {}
    for receipt in receipts:
        cell, place = receipt.cell, named.get(receipt.sequence, where)
        other = first.setdefault((receipt.attempt, cell.block, cell.rung, cell.seed), receipt)
        for name in ("body_digest", "prompt_digest", "prompt_tokens", "workload", "sampler"):
            mine, theirs = (getattr(one.request, name) for one in (receipt, other))
            if mine != theirs:
                against = f"of arm {other.cell.arm} in receipt {other.sequence}"
                what = f"is {_short(mine)}, that {against} is {_short(theirs)}"
                yield Problem(place=f"{place} request.{name}", what=what, remedy=_APART)
                break
        yield from _asked(receipt, header, place)


def _asked(receipt: Receipt, header: Header, place: str) -> Iterator[Problem]:
    """A sampler or a workload that is not the plan's; a replay's length is that of the text it follows."""
    told, plan = receipt.request.sampler, msgspec.to_builtins(header.plan.sampler)
    for name in _SAMPLER:
        given = "forced_tokens" in told and name == "max_tokens"
        if name in told and told[name] != plan[name] and not given:
            what = f"is {told[name]}, the plan asks for {plan[name]}"
            yield Problem(place=f"{place} request.sampler.{name}", what=what, remedy=_APART)
    if "seed" in told and told["seed"] != receipt.cell.seed:
        what = f"is {told['seed']}, the cell's seed is {receipt.cell.seed}"
        yield Problem(place=f"{place} request.sampler.seed", what=what, remedy=_APART)


def _prompts(
    store: Campaign, receipts: list[Receipt], named: Mapping[int, str]
) -> Iterator[Problem]:
    """Requests whose prompt is not the one that was sized for their place; nothing where no sizes were kept."""
    where = f"receipts/{store.folder.name}"
    if not (store.folder / PROMPTS).is_file():
        return
    try:
        kept = store.prompts(_Prompts)
    except ReceiptError as broken:
        yield Problem(place=f"{where}/{PROMPTS}", what=str(broken), remedy=_RESTORE)
        return
    sized = {(one.rung, one.seed): one for one in kept.prompts}
    for receipt in receipts:
        place = named.get(receipt.sequence, where)
        wanted = sized.get((receipt.cell.rung, receipt.cell.seed))
        if wanted is None:
            what = (
                f"no prompt of {receipt.cell.rung:,} tokens and seed {receipt.cell.seed} was sized"
            )
            yield Problem(place=f"{place} cell", what=what, remedy=_RESTORE)
            continue
        pairs = (("prompt_digest", wanted.digest), ("prompt_tokens", wanted.tokens))
        for name, told in pairs:
            found = getattr(receipt.request, name)
            if found != told:
                what = f"is {_short(found)}, {PROMPTS} says {_short(told)}"
                yield Problem(place=f"{place} request.{name}", what=what, remedy=_RESTORE)


def _short(value: Any) -> str:
    """A value for a message; of a digest its beginning."""
    told = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return told if len(told) <= 24 else f"{told[:16]}…"
