"""Receipts that are sealed and do not hold all the same: other requests, another schema, impossible values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from synthetic import World, build

from battery.ledger.loading import load
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign, pretty
from battery.render import verify_receipts
from battery.render.verify import verify

NAME = "2026-01-02-test"


def told(root: Path, change: Callable[[Receipt], Receipt | None], **world: object) -> str:
    """What is said of the receipts of a sealed campaign in which every receipt went through `change`."""
    return held(build(root, World(ladder=(128,), blocks=2, seeds=2, change=change, **world), NAME))  # type: ignore[arg-type]


def held(folder: Path) -> str:
    """What verify says of a campaign's own files, two blocks of which must be whole."""
    store = Campaign(folder)
    found = [*verify_receipts.fixed(store), *verify_receipts.problems(store, load(store), 2)]
    return "\n".join(map(str, found))


def request(receipt: Receipt, **changes: object) -> Receipt:
    return msgspec.structs.replace(
        receipt, request=msgspec.structs.replace(receipt.request, **changes)
    )


def at(receipt: Receipt) -> bool:
    """One cell: the second seed of C in block 1, which A opens."""
    cell = receipt.cell
    return (cell.arm, cell.block, cell.place) == ("C", 1, 2)


def test_a_sealed_campaign_holds(tmp_path: Path) -> None:
    assert told(tmp_path, lambda receipt: receipt) == ""


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"body_digest": "b" * 64}, f"request.body_digest: is {'b' * 16}…, that of arm"),
        ({"prompt_digest": "p" * 64}, f"request.prompt_digest: is {'p' * 16}…, that of arm"),
        ({"prompt_tokens": 129}, "request.prompt_tokens: is 129, that of arm"),
        ({"workload": "code"}, "request.workload: is code, that of arm"),
        ({"sampler": {"temperature": 0.6}}, 'request.sampler: is {"temperature":0.6}, that of arm'),
        (
            {"sampler": {"temperature": 0.6}},
            "request.sampler.temperature: is 0.6, the plan asks for 0.7",
        ),
        (
            {"sampler": {"temperature": 0.7, "seed": 5}},
            "request.sampler.seed: is 5, the cell's seed is",
        ),
    ],
)
def test_a_request_unlike_the_other_arms_is_named(
    tmp_path: Path, changes: dict[str, object], what: str
) -> None:
    """The seal is right: whoever made it sealed the wrong request."""
    said = told(tmp_path, lambda one: request(one, **changes) if at(one) else one)
    line = next(x for x in said.splitlines() if what in x)
    assert line.startswith(f"receipts/{NAME}/00") and "-b1-" in line and "-r128-s" in line


def test_what_all_arms_were_asked_otherwise_than_the_plan_says_is_named(tmp_path: Path) -> None:
    said = told(tmp_path, lambda one: request(one, sampler={"temperature": 0.7, "max_tokens": 99}))
    assert said.count("request.sampler.max_tokens: is 99, the plan asks for 48") == 10
    assert "2 more differences" in said


def prompts(root: Path, change: Callable[[dict[str, object]], dict[str, object] | None]) -> str:
    """What verify says where prompts.json tells of every prompt what `change` makes of it."""
    build(root, World(ladder=(128,), blocks=2, seeds=2, seal=False), NAME)
    store = Campaign(root / "receipts" / NAME)
    sized = {
        (one.cell.rung, one.cell.seed): {
            "rung": one.cell.rung,
            "seed": one.cell.seed,
            "tokens": one.request.prompt_tokens,
            "digest": one.request.prompt_digest,
            "words": 5,
        }
        for one in store.receipts()
    }
    kept = [told for one in sized.values() if (told := change(one)) is not None]
    (store.folder / "prompts.json").write_bytes(pretty({"workload": "prose", "prompts": kept}))
    store.seal()
    return held(store.folder)


def test_prompts_are_held_against_how_they_were_sized(tmp_path: Path) -> None:
    assert prompts(tmp_path / "same", lambda one: one) == ""
    seed = 110_202
    said = prompts(
        tmp_path / "other", lambda one: {**one, "digest": "0" * 64} if one["seed"] == seed else one
    )
    assert said.count("request.prompt_digest: is ") == 2 and f"-s{seed}.json" in said
    assert f"prompts.json says {'0' * 16}…" in said
    said = prompts(
        tmp_path / "longer", lambda one: {**one, "tokens": 130} if one["seed"] == seed else one
    )
    assert "request.prompt_tokens: is 128, prompts.json says 130" in said
    said = prompts(tmp_path / "none", lambda one: None if one["seed"] == seed else one)
    assert said.count(f"no prompt of 128 tokens and seed {seed} was sized") == 2
    said = prompts(tmp_path / "odd", lambda one: {**one, "tokens": "many"})
    assert "prompts.json: " in said and "of another shape" in said


def test_a_block_that_lacks_a_cell_is_told_by_arm_and_context(tmp_path: Path) -> None:
    said = told(tmp_path, lambda one: None if at(one) else one)
    assert (
        "block(s) 1 of the plan are not complete: C at 128 tokens has 2 of 3 cells in block 1"
        in said
    )


def test_another_schema_is_no_receipt_of_ours(tmp_path: Path) -> None:
    said = told(tmp_path, lambda one: msgspec.structs.replace(one, schema=2) if at(one) else one)
    assert "1 receipt(s), the first" in said and "a schema that this battery does not read" in said


def header(root: Path, **changes: object) -> str:
    """What all of verify says of a campaign whose header was changed and sealed anew."""
    build(root, World(ladder=(128,), blocks=2, seeds=2, seal=False), NAME)
    store = Campaign(root / "receipts" / NAME)
    path = store.folder / "campaign.json"
    path.chmod(0o600)
    path.write_bytes(pretty(msgspec.structs.replace(store.header(), **changes)))
    store.seal()
    return "\n".join(map(str, verify(root, NAME)))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema": 2}, "campaign.json schema: is 2, this battery reads 1"),
        (
            {"campaign": "../../x"},
            "campaign.json campaign: is ../../x, the folder's name is another",
        ),
        ({"arm_digests": {"A": "0" * 64}}, "campaign.json arm_digests.C: there is none"),
    ],
)
def test_a_header_that_is_not_this_campaigns_is_named(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    assert f"receipts/{NAME}/{told}" in header(tmp_path, **changes)


@pytest.mark.parametrize(
    "changes",
    [{"ladder": ()}, {"blocks": 0}, {"blocks": 10**9}, {"seeds": -1}, {"seeds": 10**9}],
    ids=["no rung", "no block", "endless blocks", "fewer than no seed", "endless seeds"],
)
def test_a_plan_that_cannot_be_is_told_and_not_worked_through(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    """Somebody's archive may hold any numbers; battery must neither fall over nor count to them."""
    plan = Campaign(build(tmp_path, World(ladder=(128,), blocks=2, seeds=2), "x")).header().plan
    changed = msgspec.structs.replace(plan, **changes)
    said = header(tmp_path, plan=changed, plan_digest=changed.digest)
    assert f"receipts/{NAME}: campaign.json plan: " in said and ("must " in said or "give " in said)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: msgspec.structs.replace(
            one, arm=msgspec.structs.replace(one.arm, name="$\\frac{")
        ),
        lambda one: msgspec.structs.replace(
            one, cell=msgspec.structs.replace(one.cell, rung=-(10**15))
        ),
        lambda one: msgspec.structs.replace(one, machine={"cores_logical": "x" * 1000}),
        lambda one: msgspec.structs.replace(one, started="never", ended=""),
        lambda one: msgspec.structs.replace(
            one, memory=msgspec.structs.replace(one.memory, peak=-1)
        ),
    ],
    ids=["an arm's name", "a context below nothing", "a machine", "no time", "less than no memory"],
)
def test_values_that_nobody_measured_do_not_fell_it(
    tmp_path: Path, change: Callable[[Receipt], Receipt]
) -> None:
    build(tmp_path, World(ladder=(128,), blocks=2, seeds=2, change=change), NAME)
    assert verify(tmp_path, NAME)


def test_nesting_without_end_does_not_fell_it(tmp_path: Path) -> None:
    build(tmp_path, World(ladder=(128,), blocks=2, seeds=2), NAME)
    victim = Campaign(tmp_path / "receipts" / NAME).paths()[3]
    victim.chmod(0o600)
    deep = b"[" * 100_000 + b"]" * 100_000
    victim.write_bytes(
        victim.read_bytes().replace(b'"evidence": {}', b'"evidence": {"a":' + deep + b"}")
    )
    said = "\n".join(map(str, verify(tmp_path, NAME)))
    assert NAME in said
