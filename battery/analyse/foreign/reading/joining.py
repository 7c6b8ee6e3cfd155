"""Files of other tools as one Sheet: which arm each measured, which runs are rounds, and what may stand side by side.

Several files of one arm are its rounds, numbered by their own stamps where all have one, else as they were named; runs
of one file that measured the same context again are rounds, too. Runs under different loads are not compared: the
lowest load that every arm has is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from battery.analyse.foreign.reading import levelling
from battery.analyse.foreign.reading.recognise import Found
from battery.analyse.foreign.reading.settings import differences
from battery.analyse.foreign.reading.taken import UNTOLD, Load, Run, Value
from battery.analyse.foreign.rows import Row, Sheet, Source, Unmeasured
from battery.analyse.rows import MEASURES
from battery.ledger.errors import InputError

_MOST_IN_ORDER = 16
"""Runs whose order is spelled out."""


class Placed(msgspec.Struct, frozen=True):
    """A run with its arm, and the place of its file among those that were named."""

    arm: str
    file: int
    run: Run
    round: int = 1

    @property
    def stamp(self) -> float:
        """When it began, in seconds since 1970; 0 where nothing tells."""
        return self.run.started.timestamp() if self.run.started else 0.0


def join(found: Sequence[Found], arms: Sequence[str] = ()) -> Sheet:
    """The sheet of all files; `arms`: one name a file, else what tells them apart. InputError for one arm alone."""
    _one_tool(found)
    placed = [one for one in _placed(found, arms) if one.run.values]
    names = list(dict.fromkeys(one.arm for one in placed))
    if len(names) < 2:
        raise InputError(
            f"{_files(found)}: only arm '{names[0]}'; a comparison needs a second one: name a file of it, too, and say"
            " what each measured: --arm A --arm C"
        )
    placed, left_out = _one_load(placed)
    placed, levelled = _levelled(placed)
    placed = _rounds(placed)
    rows = [row for one in placed for row in _rows(one)]
    kept = {one.file for one in placed}
    return Sheet(
        sources=tuple(_source(place, one, placed) for place, one in enumerate(found) if place in kept),
        columns=(),
        rows=tuple(rows),
        order=order(placed),
        unmeasured=tuple(_unmeasured(found, rows, placed)),
        notes=tuple(
            dict.fromkeys([
                *(note for one in found for note in one.taken.notes),
                *(f"arm {one.arm}: {note}" for one in placed for note in one.run.notes),
                *_versions(found),
                *differences([(one.arm, one.run.settings) for one in placed]),
                *left_out, *levelled, *_lengths(placed), *_shorter(placed), *_failed(placed),
            ])
        ),
    )  # fmt: skip


def _files(found: Sequence[Found]) -> str:
    """The names of the files."""
    return ", ".join(one.document.name for one in found)


def _one_tool(found: Sequence[Found]) -> None:
    """InputError where files are of different tools: each means something else by the same words."""
    formats = {one.format: one.document.name for one in found}
    if len(formats) > 1:
        told = ", ".join(f"{name} is of {format}" for format, name in formats.items())
        raise InputError(
            f"{told}: tools mean different things by a first token, a rate and its end; measure all arms with one of"
            " them, or put the values in one CSV on your own word"
        )


def _versions(found: Sequence[Found]) -> Iterator[str]:
    """That files were written by several versions of the tool."""
    versions = sorted({one.taken.version for one in found})
    if len(versions) > 1:
        told = ", ".join(version or "one that is not told" for version in versions)
        yield f"the files were written by several versions of {found[0].format} ({told})"


def _placed(found: Sequence[Found], arms: Sequence[str]) -> Iterator[Placed]:
    """Every run with its arm."""
    if arms and len(arms) != len(found):
        raise InputError(
            f"--arm is given {len(arms)} times for {len(found)} files; name each file's arm once, in the order of the"
            " files"
        )
    stems = [Path(one.document.name).stem for one in found]
    for name in arms or stems:
        if not name.strip() or not name.isprintable():
            raise InputError(
                f"{name!r} is no name of an arm that can be printed; give another with --arm"
            )
    for place, one in enumerate(found):
        several = len({run.label for run in one.taken.runs}) > 1
        name = arms[place] if arms else stems[place]
        if not arms and stems.count(name) > 1 and not several:
            raise InputError(
                f"{one.document.name}: two files of this name; say what each measured: --arm A --arm C"
            )
        for run in one.taken.runs:
            if not several:
                yield Placed(name, place, run)
            else:
                alone = len(found) == 1 and not arms
                yield Placed(run.label if alone else f"{name}: {run.label}", place, run)


def _one_load(placed: Sequence[Placed]) -> tuple[list[Placed], list[str]]:
    """The runs under the lowest load that every arm has, and what is said of the others."""
    loads: dict[str, set[Load]] = {}
    for one in placed:
        loads.setdefault(one.arm, set())
        if one.run.load is not None:
            loads[one.arm].add(one.run.load)
    told = [own for own in loads.values() if own]
    if not told:
        return list(placed), []
    common = set.intersection(*told)
    if not common:
        each = "; ".join(
            f"{arm}: {', '.join(load.words for load in sorted(own))}"
            for arm, own in loads.items()
            if own
        )
        raise InputError(
            f"the arms were measured under different loads ({each}): requests that share the engine are not those that"
            " have it alone; name files of one load"
        )
    least = min(common)
    kept = [one for one in placed if one.run.load in (None, least)]
    others = len(placed) - len(kept)
    if not others:
        return kept, []
    return kept, [f"{others} runs under other loads are left out; kept: {least.words}"]


def _levelled(placed: Sequence[Placed]) -> tuple[list[Placed], list[str]]:
    """The runs with near contexts taken for one, and what was taken for what."""
    contexts = [
        {value.context for value in one.run.values if value.context is not None} for one in placed
    ]
    found = levelling.levels(contexts)

    def at(value: Value) -> Value:
        level = found.get(value.context, value.context) if value.context is not None else None
        return msgspec.structs.replace(value, context=level)

    runs = [
        msgspec.structs.replace(one.run, values=tuple(map(at, one.run.values))) for one in placed
    ]
    changed = [msgspec.structs.replace(one, run=run) for one, run in zip(placed, runs, strict=True)]
    return changed, levelling.notes(found)


def _rounds(placed: Sequence[Placed]) -> list[Placed]:
    """The runs with their rounds: the n-th time that an arm measured one of a run's contexts."""
    numbered: dict[int, int] = {}
    for arm in dict.fromkeys(one.arm for one in placed):
        own = [place for place, one in enumerate(placed) if one.arm == arm]
        if all(placed[place].run.started for place in own):
            own.sort(key=lambda place: placed[place].stamp)
        seen: dict[tuple[str, int | None], int] = {}
        for place in own:
            keys = {(value.metric, value.context) for value in placed[place].run.values}
            number = 1 + max((seen.get(key, 0) for key in keys), default=0)
            seen |= dict.fromkeys(keys, number)
            numbered[place] = number
    return [msgspec.structs.replace(one, round=numbered[place]) for place, one in enumerate(placed)]


def _rows(one: Placed) -> Iterator[Row]:
    """The rows of a run, one for each metric, context and prompt."""
    groups: dict[tuple[str, int | None, str | None], list[Value]] = {}
    for value in one.run.values:
        groups.setdefault((value.metric, value.context, value.seed), []).append(value)
    for (metric, context, seed), values in groups.items():
        kept = _longest(values)
        n = sum(value.n for value in kept)
        lows = [value.low if value.low is not None else value.value for value in kept]
        highs = [value.high if value.high is not None else value.value for value in kept]
        single = n > 1 and (len(kept) > 1 or kept[0].low is not None)
        lengths = {value.tokens for value in kept}
        yield Row(
            line=one.file + 1, arm=one.arm, context=context, seed=seed, round=f"run {one.round}", metric=metric,
            value=sum(value.value * value.n for value in kept) / n,
            tokens=lengths.pop() if len(lengths) == 1 else None,
            n=n, low=min(lows) if single else None, high=max(highs) if single else None,
        )  # fmt: skip


def _longest(values: Sequence[Value]) -> list[Value]:
    """The values of the longest answers, where a test was made with several lengths."""
    most = max(map(_wanted, values))
    return [value for value in values if _wanted(value) == most]


def _wanted(value: Value) -> int:
    """Tokens that a test of no single prompt was made with; 0 where that tells no tests apart."""
    return value.asked or (value.tokens if value.seed is None else None) or 0


def _shorter(placed: Sequence[Placed]) -> Iterator[str]:
    """That tests of shorter answers are in no figure."""
    for one in placed:
        lengths: dict[tuple[str, int | None], set[int]] = {}
        for value in one.run.values:
            lengths.setdefault((value.metric, value.context), set()).add(_wanted(value))
        for (metric, context), own in lengths.items():
            if len(own) > 1:
                told = ", ".join(f"{length:,}" for length in sorted(own))
                at = "an untold context" if context is None else f"{context:,} tokens"
                yield (
                    f"arm {one.arm}: {MEASURES[metric].title} at {at} was measured over answers of {told} tokens; those"
                    " of the longest are kept"
                )


def order(placed: Sequence[Placed]) -> str:
    """In which order the arms ran by the files' own stamps; empty where one of them has none, or two the same."""
    stamps = [one.run.started for one in placed if one.run.started]
    zones = {stamp.tzinfo is UNTOLD for stamp in stamps}
    if len(stamps) < len(placed) or len(set(stamps)) < len(stamps) or len(zones) > 1:
        return ""
    arms = [one.arm for one in sorted(placed, key=lambda one: one.stamp)]
    turns = [arm for place, arm in enumerate(arms) if place == 0 or arms[place - 1] != arm]
    told = ", ".join(arms[:_MOST_IN_ORDER]) + (", …" if len(arms) > _MOST_IN_ORDER else "")
    if len(arms) == len(set(arms)):
        why = "each ran once, so whatever changed between the runs stands in the difference"
    elif len(turns) == len(set(arms)):
        why = "each arm had all of its runs together, so whatever changed between them stands in the difference"
    else:
        why = "they took turns, so a slow change is shared in part"
    clock = " (without a zone, so taken to be of one clock)" if True in zones else ""
    return f"by the files' own stamps{clock} the arms ran in the order {told}: {why}"


def _shown(stamp: datetime) -> str:
    """A stamp to the second, with a zone only where its file told one."""
    known = stamp if stamp.tzinfo is not UNTOLD else stamp.replace(tzinfo=None)
    return known.isoformat(sep=" ", timespec="seconds")


def _source(place: int, one: Found, placed: Sequence[Placed]) -> Source:
    """What is told of a file."""
    own = [each for each in placed if each.file == place]
    stamps = [each.run.started for each in own if each.run.started]
    loads = [each.run.load for each in own if each.run.load]
    return Source(
        name=one.document.name, sha256=one.document.sha256, format=one.format, version=one.taken.version,
        arms=tuple(dict.fromkeys(each.arm for each in own)),
        started=_shown(min(stamps)) if stamps else "",
        load=min(loads).words if loads else "",
        requests=_sum([each.run.requests for each in own]), failed=_sum([each.run.failed for each in own]),
    )  # fmt: skip


def _sum(counts: Sequence[int | None]) -> int | None:
    """The sum where all are told."""
    told = [count for count in counts if count is not None]
    return sum(told) if told and len(told) == len(counts) else None


def _unmeasured(
    found: Sequence[Found], rows: Sequence[Row], placed: Sequence[Placed]
) -> Iterator[Unmeasured]:
    """Every metric that the files of a format have no value of, and why."""
    for name in dict.fromkeys(one.format for one in found):
        own = [place for place, one in enumerate(found) if one.format == name]
        arms = {one.arm for one in placed if one.file in own}
        have = {row.metric for row in rows if row.arm in arms}
        why = {key: text for place in own for key, text in found[place].taken.absent.items()}
        for metric in MEASURES:
            if metric not in have:
                yield Unmeasured(
                    metric=metric, format=name, why=why.get(metric, f"{name} does not tell it")
                )


def _lengths(placed: Sequence[Placed]) -> Iterator[str]:
    """That prompts of different lengths were taken for one context."""
    for one in placed:
        lengths = one.run.lengths
        if lengths and max(lengths) > 1.1 * max(min(lengths), 1):
            yield (
                f"arm {one.arm}: its prompts have {min(lengths):,} to {max(lengths):,} tokens, and are taken for one"
                " context, their mean"
            )


def _failed(placed: Sequence[Placed]) -> Iterator[str]:
    """How many requests are in no figure."""
    for arm in dict.fromkeys(one.arm for one in placed):
        own = [one.run for one in placed if one.arm == arm]
        failed, well = _sum([run.failed for run in own]), _sum([run.requests for run in own])
        if failed and well is not None:
            yield (
                f"arm {arm}: {failed} of {failed + well} requests failed and are in no figure; what failed may be what"
                " was slow"
            )
