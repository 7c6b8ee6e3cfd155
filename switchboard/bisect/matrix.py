"""Every switch on every model that was asked for, and the table of what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from switchboard.bisect.ladder import climb
from switchboard.bisect.outcome import RUNGS, Climb
from switchboard.bisect.rungs import Plan, observe
from switchboard.bisect.subject import Subject, open_plain, put_on
from switchboard.config import Asked
from switchboard.errors import ConfigError
from switchboard.registry import known, unknown
from switchboard.sources.tiny import FAMILIES, QUANTISATIONS

MARKS = {"passed": "ok", "failed": "FAIL", "not applicable": "–"}
DEFAULT_MODEL = "smollm2-135m"
DEFAULT_QUANTISATIONS = ("none", "q4-g32", "mixed")
UNCHANGING = ("draft", "cache", "start")
"""Stages that leave the model as it was, so that it need not be read again."""


@dataclass(frozen=True)
class Model:
    """A model by name, and the format that it is held in."""

    name: str
    format: str = "auto"


def tiny(families: Sequence[str], quantisations: Sequence[str]) -> list[Model]:
    """The tiny models of these families: as stored where they are quantised, fp32 where they are not."""
    return [
        Model(f"synthetic:tiny-{family}-{one}", "auto" if one == "none" else "quantized")
        for family in families
        for one in quantisations
    ]


def climb_all(
    models: Sequence[Model],
    asked: Sequence[Asked],
    plan: Plan,
    tell: Callable[[Climb], None],
) -> list[Climb]:
    """Climb with each switch on each model; every model is observed once."""
    climbs: list[Climb] = []
    for model in models:
        plain: Subject | None = open_plain(model.name, model.format)
        reference = observe(plain, plan)  # type: ignore[arg-type]
        for one in asked:
            subject = plain or open_plain(model.name, model.format)
            made = climb(subject, reference, one, put_on)
            untouched = made.declined is not None or known()[one.name].stage in UNCHANGING
            plain = subject if untouched else None
            climbs.append(made)
            tell(made)
    return climbs


def summary(climbs: Sequence[Climb]) -> dict[str, int]:
    """Switches and families that were climbed with, rungs that were judged, and those that failed."""
    climbed = [one for one in climbs if one.declined is None]
    failed = sum(one.count("failed") for one in climbs)
    return {
        "switches": len({one.switch for one in climbed}),
        "families": len({one.family for one in climbed}),
        "rungs": sum(one.count("passed") for one in climbs) + failed,
        "failed": failed,
    }


def run(
    *,
    asked: Sequence[Asked],
    models: Sequence[tuple[str, str]],
    families: Sequence[str],
    quantisations: Sequence[str],
    plan: tuple[int, int],
    verbose: bool,
    as_json: bool,
) -> int:
    """Climb and print; the status to leave with: 1 when a rung failed, 3 when no switch could be put on."""
    chosen = [Model(*one) for one in models]
    if families or quantisations:
        chosen += tiny(
            _named("family", families or ["all"], FAMILIES),
            _named("quantisation", quantisations or DEFAULT_QUANTISATIONS, QUANTISATIONS),
        )
    chosen = chosen or [Model(DEFAULT_MODEL)]
    switches = list(asked) or [Asked(name) for name in known()]
    everything = verbose or len(chosen) * len(switches) == 1
    if not as_json:
        print(head())

    def tell(one: Climb) -> None:
        if not as_json:
            print("\n".join([row(one), *details(one, everything)]), flush=True)

    climbs = climb_all(chosen, switches, Plan(*plan), tell)
    found = summary(climbs)
    if as_json:
        print(json.dumps({"climbs": [asdict(one) for one in climbs], **found}, indent=2))
    else:
        print(json.dumps(found))
    if found["failed"]:
        return 1
    return 0 if found["switches"] else 3


def _named(what: str, given: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that were given, all of them for `all`; an unknown one is an error with the nearest."""
    for one in given:
        if one not in (*names, "all"):
            raise ConfigError(unknown(what, one, [*names, "all"]))
    return list(names) if "all" in given else list(given)


def head() -> str:
    """The head of the table."""
    columns = "  ".join(f"{rung:>8}" for rung in RUNGS)
    return f"{'model':<34}{'switch':<17}{columns}"


def row(one: Climb) -> str:
    """One climb as a line, with the reason where the switch stayed off."""
    name = one.model.removeprefix("synthetic:")
    if one.declined is not None and not one.failed:
        return f"{name:<34}{one.switch:<17}declined: {one.declined}"
    marks = "  ".join(f"{MARKS[outcome.verdict]:>8}" for outcome in one.outcomes)
    return f"{name:<34}{one.switch:<17}{marks}"


def details(one: Climb, everything: bool) -> list[str]:
    """What the rungs said: all of them, or those that failed."""
    return [
        f"    {outcome.rung}: {outcome.verdict}, {outcome.told}"
        + (f" ({outcome.seconds:.1f} s)" if everything else "")
        for outcome in one.outcomes
        if outcome.verdict == "failed" or (everything and one.declined is None)
    ]
