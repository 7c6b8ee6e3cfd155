"""Each switch on each model that was asked for, and the table of what was found.

Models are independent of each other, so on a CPU several are climbed at a time, each in a process of its own: MLX's
kernels there run on one thread.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass

import mlx.core as mx

from switchboard import blas
from switchboard.bisect.kept import Kept
from switchboard.bisect.ladder import climb
from switchboard.bisect.outcome import RUNGS, Climb
from switchboard.bisect.rungs import Plan, observe
from switchboard.bisect.subject import open_plain, put_on
from switchboard.config import Asked
from switchboard.errors import ConfigError, ModelError
from switchboard.registry import known, unknown
from switchboard.sources.tiny import FAMILIES, QUANTISATIONS

MARKS = {"passed": "ok", "failed": "FAIL", "not applicable": "–"}
DEFAULT_MODEL = "smollm2-135m"
DEFAULT_QUANTISATIONS = ("mixed",)
"""Mixed holds its lower layers in q4-g32 throughout and has 8 bits in the upper ones; others are asked for by name."""


@dataclass(frozen=True)
class Model:
    """A model by name, and the format that it is held in."""

    name: str
    format: str = "auto"

    @property
    def random(self) -> bool:
        """Whether its weights are."""
        return self.name.startswith("synthetic:")


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
    """Climb with each switch on each model; every model is read and observed once."""
    climbs: list[Climb] = []
    for model in models:
        plain = open_plain(model.name, model.format)
        kept, reference = Kept(plain.model), observe(plain, plan.of(model.random))
        for one in asked:
            climbs.append(climb(plain, reference, one, put_on))
            kept.put_back()
            tell(climbs[-1])
        mx.clear_cache()
    return climbs


@dataclass(frozen=True)
class Share:
    """What one process climbs: a model, and the places of the switches among those that were asked for."""

    model: Model
    places: tuple[int, ...]


def shares(models: Sequence[Model], switches: int, processes: int) -> list[Share]:
    """The work of so many processes: a tiny model is one share; of a real one two make half of the switches each.

    A second share of one model costs its memory and the observation of the plain model once more, so there are no more.
    """
    found: list[Share] = []
    for model in models:
        count = 2 if processes > 1 and switches > 2 and not model.random else 1
        found += [Share(model, tuple(range(part, switches, count))) for part in range(count)]
    return found


def climb_side_by_side(
    models: Sequence[Model],
    asked: Sequence[Asked],
    plan: Plan,
    tell: Callable[[Climb], None],
    processes: int,
) -> list[Climb]:
    """The same in so many processes; told as shares are done, returned in the order of models and switches."""
    work = shares(models, len(asked), processes)
    if processes < 2 or len(work) < 2:
        return climb_all(models, asked, plan, tell)
    # Not forked: a thread of MLX in this process would be missing there.
    context = multiprocessing.get_context("spawn")
    done: dict[tuple[Model, int], Climb] = {}
    with blas.handed_on(), ProcessPoolExecutor(processes, context, blas.keep) as pool:
        running = {
            pool.submit(_one, one.model, [asked[place] for place in one.places], plan): one
            for one in work
        }
        try:
            for future in as_completed(running):
                share = running[future]
                for place, made in zip(share.places, future.result(), strict=True):
                    done[share.model, place] = made
                    tell(made)
        except BrokenProcessPool as error:
            raise ModelError(
                f"a process ended while it climbed ({error}); where memory is short give --processes 1"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return [done[model, place] for model in models for place in range(len(asked))]


def _one(model: Model, asked: Sequence[Asked], plan: Plan) -> list[Climb]:
    return climb_all([model], asked, plan, lambda one: None)


def at_a_time() -> int:
    """How many models are climbed at once: on a CPU as many as there are cores, on a GPU one."""
    return (os.cpu_count() or 1) if mx.default_device() == mx.Device(mx.cpu) else 1


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
    plan: Plan,
    processes: int | None = None,
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

    climbs = climb_side_by_side(chosen, switches, plan, tell, processes or at_a_time())
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
