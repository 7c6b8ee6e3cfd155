"""From the words of a command line to arms, plans and the folders of campaigns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console

from battery.bench.backends import load_backend
from battery.ledger import derive, store, strict
from battery.ledger.arm import Arm, known_arms, load_arm
from battery.ledger.errors import ArmError, InputError, ReceiptError
from battery.ledger.plan import Plan
from battery.ledger.store import Campaign, Screen


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
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.startswith(
            "."
        ):
            raise InputError(f"campaign name '{name}': use letters, digits, '.', '_' and '-'")
        return receipts / name
    stem = f"{plan.name}-{words}"
    number = 1
    while True:
        folder = receipts / (stem if number == 1 else f"{stem}-{number}")
        existing = Campaign(folder)
        if not existing.exists:
            return folder
        header = existing.header()
        published = (root / "reports" / f"{folder.name}.json").is_file()
        same = header.plan_digest == plan.digest and header.arm_digests == {
            arm.name: arm.digest for arm in arms
        }
        if same and (existing.sealed() is None or not published):
            what = "finished" if existing.sealed() is None else "reported"
            console.print(f"going on with {folder}, which is not {what}", markup=False)
            return folder
        number += 1


def expected_time(plan: Plan, total: int, root: Path) -> str:
    """How long `total` cells of this plan should take, from the last campaign of it that ran here undisturbed."""
    last: tuple[str, float] | None = None
    for name in known_campaigns(root):
        kept = Campaign(root / "receipts" / name)
        try:
            header, journal = kept.header(), kept.journal()
        except ReceiptError:
            continue  # another campaign's damage is told where that campaign is asked for
        undisturbed = [event["event"] for event in journal] == ["started", "finished"]
        if header.plan_digest == plan.digest and undisturbed:
            start, end = (datetime.fromisoformat(event["at"]) for event in journal)
            each = (end - start).total_seconds() / max(1, len(kept.paths()))
            if each > 0:  # the wall clock may have been set back meanwhile
                last = max(last or ("", 0.0), (header.created, each))
    if last is None:
        return "expected time: not known before its first campaign; the display tells it from the first cell on"
    return f"expected time: about {last[1] * total / 60:.0f} min, as it took here on {last[0]}"
