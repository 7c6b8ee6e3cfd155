"""From the words of a command line to arms, plans and the folders of campaigns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from battery.bench.backends import load_backend
from battery.bench.preflight import SAME_MACHINE
from battery.ledger import derive, saved, store, strict
from battery.ledger.arm import Arm, known_arms, load_arm
from battery.ledger.claims import unknown_arm
from battery.ledger.errors import ArmError, InputError, ReceiptError
from battery.ledger.plan import Plan, load_plan
from battery.ledger.store import Campaign, Header, Screen, complete_blocks
from battery.ledger.trajectories import Trajectories, recorded


def load_arms(text: str, root: Path) -> list[Arm]:
    """The arms of a comma-separated list, each once, with backends that exist."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ArmError(
            f"no arm was named; known in {root / 'arms'}: {', '.join(known_arms(root / 'arms')) or 'none'}"
        )
    if len(set(names)) < len(names):
        raise ArmError(f"arms {text}: each arm once; to compare an arm with itself, copy its file")
    arms = [load_arm(name, root / "arms") for name in names]
    for arm in arms:
        load_backend(arm.backend).command(arm, "127.0.0.1", 1)
    return arms


def chosen_arms(
    arms: str | None, knockout: str | None, isolate: str | None, root: Path
) -> tuple[list[Arm], str]:
    """The arms of a command line, the control first, and the words that name their campaign.

    `knockout` and `isolate` are an arm, or an arm and some of its switches: `C` or `C:fused_qkv,prompt_lookup`.
    """
    given = {"--arms": arms, "--knockout": knockout, "--isolate": isolate}
    named = [name for name, words in given.items() if words is not None]
    if len(named) > 1:
        raise ArmError(f"{' and '.join(named)}: give one of them")
    if knockout is None and isolate is None:
        made = load_arms("A,C" if arms is None else arms, root)
        return made, "-".join(arm.name for arm in made)
    name, _, rest = (knockout or isolate or "").partition(":")
    arm = load_arms(name, root)[0]
    switches = tuple(word.strip() for word in rest.split(",") if word.strip())
    made = (derive.knockouts if knockout else derive.isolations)(arm, switches)
    return made, f"{'knockout' if knockout else 'isolate'}-{arm.name}"


def screen_of(knockout: str | None, isolate: str | None) -> Screen:
    """What a campaign of these words is: a screen of many switches at once, or a comparison of arms."""
    return "isolate" if isolate is not None else "knockout" if knockout is not None else ""


def plan_for(
    name: str | None, arms: Sequence[Arm], root: Path, texts: Trajectories | None = None
) -> Plan:
    """The plan of this name; ArmError if one of its bars is about an arm that is no candidate here.

    Without a name it is `quick`, or with recorded texts the plan of the campaign that they come from; whose texts every
    arm follows is a part of it.
    """
    own = texts.plan() if texts else None
    plan = own if own and name is None else load_plan(name or "quick", root / "plans")
    if wrong := unknown_arm(plan, [arm.name for arm in arms]):
        raise ArmError(f"plan {plan.name}: {wrong}")
    if texts is None or own is None:
        return plan
    given = msgspec.UNSET if plan.digest == own.digest else plan.name
    return msgspec.structs.replace(plan, replay=msgspec.structs.replace(texts.replay, plan=given))


def texts_of(replay: str | None, seed: int | None, root: Path) -> Trajectories | None:
    """The recorded texts that `--replay` names (`FROM`, or `FROM:BLOCK` for those of one block); None without it."""
    if replay is None:
        return None
    name, colon, block = replay.rpartition(":")
    one_block = bool(colon) and block.isdigit()
    texts = recorded(
        Campaign(folder_of(name if one_block else replay, root)), int(block) if one_block else None
    )
    if seed is not None and seed != texts.header.seed:
        raise InputError(
            f"--seed {seed}: a replay has the prompts of {texts.replay.campaign}, whose seed is {texts.header.seed};"
            " leave --seed out"
        )
    return texts


def folder_of(campaign: str, root: Path) -> Path:
    """The folder of a campaign given by name or by path."""
    path = Path(campaign)
    folder = path if (path / store.HEADER).is_file() else root / "receipts" / path.name
    if not (folder / store.HEADER).is_file():
        raise InputError(f"{folder}: no campaign{strict.nearest(path.name, known_campaigns(root))}")
    return folder


def known_campaigns(root: Path) -> list[str]:
    """Names of the campaigns in receipts/, sorted."""
    return sorted(path.parent.name for path in (root / "receipts").glob(f"*/{store.HEADER}"))


def chosen(campaigns: Sequence[str] | None, root: Path) -> list[Path]:
    """Folders of the named campaigns, or of all."""
    names = list(campaigns or known_campaigns(root))
    if not names:
        raise InputError(
            f"{root / 'receipts'}: no campaign yet; start one with: battery run --arms A,C"
        )
    return [folder_of(name, root) for name in names]


def campaign_folder(
    name: str, plan: Plan, arms: Sequence[Arm], words: str, root: Path, console: Console
) -> Path:
    """Where this campaign lives: as named, or the first of its kind that is not finished, or a new one."""
    receipts = root / "receipts"
    if name:
        return _named(name, root)
    stem = f"{plan.name}-{words}"
    number = 1
    while True:
        folder = receipts / (stem if number == 1 else f"{stem}-{number}")
        existing = Campaign(folder)
        if not existing.exists:
            return folder
        header = existing.header()
        # the page is written last
        pages = [root / "reports" / f"{folder.name}{end}" for end in (".json", ".html")]
        published = all(page.is_file() for page in pages)
        same = header.plan_digest == plan.digest and header.arm_digests == {
            arm.name: arm.digest for arm in arms
        }
        if same and (existing.sealed() is None or not published):
            what = "finished" if existing.sealed() is None else "reported"
            console.print(f"going on with {folder}, which is not {what}", markup=False)
            return folder
        number += 1


def _named(name: str, root: Path) -> Path:
    """The folder of a campaign of this name, which need not be there; InputError for what is no name."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if not plain.isalnum() or name.startswith("."):
        raise InputError(f"campaign name '{name}': use letters, digits, '.', '_' and '-'")
    return root / "receipts" / name


def asked_campaign(
    name: str, plan: str | None, arms: Sequence[Arm], root: Path
) -> tuple[Path, Plan]:
    """The campaign that these arms' quality belongs to, and its plan.

    As named; else the newest one whose speed was measured with these very arms (and with this plan, where one is
    given); else a new one. Where the campaign is there, its plan is the one it was measured with, and its arms must be
    these: quality of one configuration says nothing of another's speed.
    """
    given = None if plan is None else load_plan(plan, root / "plans")
    folder = _named(name, root) if name else _newest_of(arms, given, root)
    if folder is None:
        fresh = given or load_plan("quick", root / "plans")
        return root / "receipts" / f"{fresh.name}-{'-'.join(arm.name for arm in arms)}", fresh
    kept = Campaign(folder)
    if not kept.exists:
        return folder, given or load_plan("quick", root / "plans")
    header = kept.header()
    if given is not None and given.digest != header.plan_digest:
        raise InputError(f"{folder}: was measured with another plan; leave --plan out")
    for arm in arms:
        if header.arm_digests.get(arm.name) != arm.digest:
            raise ReceiptError(
                f"{folder}: its arm {arm.name} is another one than in arms/, or it has none; restore the file, or give"
                " a new name (--campaign)"
            )
    return folder, header.plan


def asked_folder(campaign: str, root: Path) -> Path:
    """The folder of a campaign, given by name or by path, that holds answers; its speed need not be measured."""
    path = Path(campaign)
    for folder in (path, root / "receipts" / path.name):
        if (folder / saved.FOLDER).is_dir():
            return folder
    asked = [one.parent.name for one in (root / "receipts").glob(f"*/{saved.FOLDER}")]
    raise InputError(
        f"{root / 'receipts' / path.name}: no answers to coding tasks{strict.nearest(path.name, asked)}; ask for some:"
        " battery quality"
    )


def _newest_of(arms: Sequence[Arm], plan: Plan | None, root: Path) -> Path | None:
    """The newest campaign that has all of these arms, unchanged, and this plan where one is given."""
    found: list[tuple[str, str]] = []
    for name in known_campaigns(root):
        try:
            header = Campaign(root / "receipts" / name).header()
        except ReceiptError:
            continue  # another campaign's damage is told where that campaign is asked for
        same = all(header.arm_digests.get(arm.name) == arm.digest for arm in arms)
        if same and (plan is None or plan.digest == header.plan_digest):
            found.append((header.created, name))
    return root / "receipts" / max(found)[1] if found else None


def expected_time(plan: Plan, arms: int, total: int, root: Path, machine: Mapping[str, Any]) -> str:
    """How long `total` cells of this plan should take, from an earlier campaign of it that ran undisturbed.

    The last of as many arms on this machine, else the last on this machine, else the last on any: receipts travel.
    """
    found: list[tuple[bool, bool, str, float]] = []
    for name in known_campaigns(root):
        kept = Campaign(root / "receipts" / name)
        try:
            header, journal = kept.header(), kept.journal()
        except ReceiptError:
            continue  # another campaign's damage is told where that campaign is asked for
        course = [event for event in journal if event["event"] != "look"]
        undisturbed = [event["event"] for event in course] == ["started", "finished"]
        if header.plan_digest == plan.digest and undisturbed:
            start, end = (datetime.fromisoformat(event["at"]) for event in course)
            each = (end - start).total_seconds() / max(1, len(kept.paths()))
            if each > 0:  # the wall clock may have been set back meanwhile
                here = not _other_machine(header, machine)
                found.append((here, len(header.arms) == arms, header.created, each))
    if not found:
        return "expected time: not known before its first campaign; the display tells it from the first cell on"
    here, as_many, when, each = max(found)
    most = "at most" if plan.stopping.rule != "fixed" else "about"
    of = "of this plan" if as_many else "of this plan with another number of arms"
    where = f"here on {when}" if here else f"on {when} on another machine"
    return f"expected time: {most} {each * total / 60:.0f} min, as a campaign {of} took {where}"


def _other_machine(header: Header, machine: Mapping[str, Any]) -> list[str]:
    """What of this machine is not as it was in a campaign."""
    return [key for key in SAME_MACHINE if header.machine.get(key) != machine.get(key)]


_PARTS = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
)


def seconds_of(text: str) -> float:
    """The seconds in `2h`, `90m`, `1h30m`, `5400s` or `5400`; InputError for anything else."""
    told = text.strip().lower().replace(" ", "")
    parts = _PARTS.fullmatch(f"{told}s" if re.fullmatch(r"\d+(\.\d+)?", told) else told)
    if not parts or not told:
        raise InputError(f"--budget {text}: give hours, minutes and seconds, as in 2h, 90m, 1h30m")
    h, m, s = (float(parts[unit] or 0) for unit in "hms")
    seconds = h * 3600 + m * 60 + s
    if not 0 < seconds < 1e9:
        raise InputError(f"--budget {text[:40]}: must be more than nothing, and less than 30 years")
    return seconds


class Basis(NamedTuple):
    """A campaign to plan from, why it was chosen, and what speaks against it."""

    folder: Path
    how: str
    warnings: tuple[str, ...]


def basis_for(
    named: str | None, arms: Sequence[Arm], machine: Mapping[str, Any], root: Path
) -> Basis:
    """The campaign to plan from: the one named, else the newest of these arms on this machine, else of their names.

    Only campaigns with two complete blocks are looked for. InputError where there is none.
    """
    if named is not None:
        folder = folder_of(named, root)
        return Basis(folder, "named", _unlike(Campaign(folder).header(), arms, machine))
    found: list[tuple[bool, str, Path, tuple[str, ...]]] = []
    for name in known_campaigns(root):
        folder = root / "receipts" / name
        try:
            header = Campaign(folder).header()
        except ReceiptError:
            continue  # another campaign's damage is told where that campaign is asked for
        if all(arm.name in header.arm_digests for arm in arms):
            unlike = _unlike(header, arms, machine)
            found.append((not unlike, header.created, folder, unlike))
    for same, _, folder, unlike in sorted(found, key=lambda one: one[:2], reverse=True):
        kept = Campaign(folder)
        if len(complete_blocks(kept.readable()[0], kept.header())) >= 2:
            how = "the newest of these arms on this machine"
            return Basis(folder, how if same else "the newest of arms with these names", unlike)
    raise InputError(
        f"{root / 'receipts'}: no campaign of these arms here with two complete blocks; run a pilot with them:"
        " battery run --plan quick, or a copy of the plan with blocks = 4; or name a campaign with --from"
    )


def _unlike(header: Header, arms: Sequence[Arm], machine: Mapping[str, Any]) -> tuple[str, ...]:
    """What of arms and machine is not as it was in a campaign."""
    changed = [
        arm.name
        for arm in arms
        if header.arm_digests.get(arm.name, arm.digest) != arm.digest
    ]  # fmt: skip
    replayed = header.plan.replayed
    found = (
        [f"it replayed texts of {replayed.campaign}: a free campaign spreads more"]
        if replayed
        else []
    )
    found += [f"arm {name} is not the arm of that name there" for name in changed]
    if other := _other_machine(header, machine):
        told = ", ".join(
            f"{key} {header.machine.get(key)} there, {machine.get(key)} here" for key in other
        )
        found.append(f"it ran on another machine ({told}): spread and time may differ here")
    return tuple(found)
