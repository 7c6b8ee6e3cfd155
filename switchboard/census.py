"""The operations of one decode step by name, with and without each switch, reconciled: what disappeared, what came.

MLX builds the graph of a step before anything is computed, so the operations can be counted on any device, without
running them: the graph of the logits and of what the step writes into the cache, down to arrays that are there
already. Operations that only look at memory in another way (`VIEWS`) are told apart, as they start no kernel.

The graph is that of the device: on a GPU a norm, a rotation and an attention are one operation each, on a CPU they
stand there as what they are made of.

A count of operations is not one of kernel launches: MLX may start several kernels for one operation, or one for
several. Those are counted by the driver alone, where there is one that does (`cupti`); elsewhere `launches` is null and
says why.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter as Counts
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from switchboard import cupti
from switchboard.bisect.rungs import filled
from switchboard.bisect.subject import Subject, open_plain, put_on
from switchboard.config import Asked
from switchboard.decode import forward
from switchboard.registry import known

FILLED = 32
WARM, COUNTED = 4, 5
"""Steps before the launches of a step are counted, and steps that are counted."""
NODE = re.compile(r'\d+\s*\[label\s*=\s*"([^"]+)"')
VIEWS = frozenset(
    {
        "AsStrided",
        "Broadcast",
        "BroadcastAxes",
        "Depends",
        "ExpandDims",
        "Flatten",
        "NumberOfElements",
    }
    | {"Reshape", "Slice", "Split", "Squeeze", "StopGradient", "Transpose", "Unflatten", "View"}
)
"""Operations that share their input's buffer; Reshape copies only what cannot be reshaped in place."""


@dataclass(frozen=True)
class Change:
    """What one switch does to the step; `declined` says why there is nothing to count."""

    switch: str
    declined: str | None
    operations: dict[str, int]
    gone: dict[str, int]
    came: dict[str, int]
    layers: int
    """Layers that the switch says it changed."""
    launches: int | None = None
    """Kernels of one step, where they can be counted."""
    kernels: dict[str, int] = field(default_factory=dict)
    """The same by name."""

    def reconciles(self, plain: dict[str, int]) -> bool:
        """Whether the plain step, less what disappeared, and with what came, is the new one."""
        told = Counts(plain)
        told.subtract(self.gone)
        told.update(self.came)
        return {name: count for name, count in told.items() if count} == self.operations


@dataclass(frozen=True)
class Census:
    """The operations of one decode step of a model, plain and with each switch."""

    model: str
    device: str
    layers: int
    plain: dict[str, int]
    changes: list[Change]
    launches: int | None
    """Kernels of a plain step; null where the driver's records cannot be had, and the next field says why."""
    launches_unknown: str | None
    kernels: dict[str, int] = field(default_factory=dict)


def operations(outputs: Sequence[mx.array]) -> dict[str, int]:
    """How often each operation stands in the graph of these arrays, most frequent first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        mx.export_to_dot(str(path), *outputs)
        # Not by their numbers: all calls of one compiled function stand under the same one.
        counts = Counts(NODE.findall(path.read_text()))
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def step(subject: Subject) -> dict[str, int]:
    """The operations of one decode step over a filled cache: the logits, and what is written into the cache."""
    ids = subject.ids(FILLED + 1)
    cache = filled(subject, ids[:-1])
    mx.eval(subject.model.parameters())
    logits = forward(subject.model, cache, mx.array(ids[-1:]))
    written: Any = tree_flatten([entry.state for entry in cache])
    return operations([logits, *(array for _, array in written if isinstance(array, mx.array))])


def take(model: str, format: str, asked: Sequence[Asked]) -> Census:
    """Count the plain step, then the step with each switch alone."""
    # Opened before anything is prepared, so that no launch escapes it.
    cupti.library()
    plain: Subject | None = open_plain(model, format)
    counts, layers = step(plain), len(plain.model.layers)  # type: ignore[arg-type, union-attr]
    ran = launched(plain)  # type: ignore[arg-type]
    changes: list[Change] = []
    for one in asked:
        subject = plain or open_plain(model, format)
        changes.append(_change(subject, one, counts))
        plain = subject if changes[-1].declined is not None else None
    device = str(mx.default_device())
    if isinstance(ran, str):
        return Census(model, device, layers, counts, changes, None, ran)
    return Census(model, device, layers, counts, changes, sum(ran.values()), None, ran)


def _change(plain: Subject, asked: Asked, counts: dict[str, int]) -> Change:
    if known()[asked.name].stage == "draft":
        why = "a draft adds no operation to a step; it changes how many tokens a pass reads"
        return Change(asked.name, why, counts, {}, {}, 0)
    subject = put_on(plain, asked)
    if subject.off is not None:
        return Change(asked.name, subject.off, counts, {}, {}, 0)
    now, ran = step(subject), launched(subject)
    gone, came = Counts(counts) - Counts(now), Counts(now) - Counts(counts)
    coverage = subject.coverage or {}
    touched = coverage.get("fused", 0) + coverage.get("partly", 0)
    kernels = {} if isinstance(ran, str) else ran
    count = None if isinstance(ran, str) else sum(ran.values())
    return Change(asked.name, None, now, dict(gone), dict(came), touched, count, kernels)


def launched(subject: Subject) -> dict[str, int] | str:
    """Kernels of one decode step by name, or why they are not known.

    A step is what `step` counts: logits and the write into the cache. Of the counted steps that with the median number
    of kernels is told, so that one in which the cache grew or memory was tidied up does not stand for all.
    """
    counter = cupti.library()
    if isinstance(counter, str):
        return counter if mx.cuda.is_available() else launches()
    ids = subject.ids(FILLED + 1 + WARM + COUNTED)
    cache, coming = filled(subject, ids[:FILLED]), iter(ids[FILLED:])

    def run() -> None:
        """One step, to its end on the device."""
        mx.eval(forward(subject.model, cache, mx.array([next(coming)])))
        mx.eval([entry.state for entry in cache])
        mx.synchronize()

    for _ in range(WARM):
        run()
    seen = cupti.each(run, COUNTED)
    if isinstance(seen, str):
        return seen
    middle = sorted(seen, key=lambda one: one.kinds["kernels"])[COUNTED // 2]
    return dict(middle.names.most_common())


def launches() -> str:
    """Why the kernel launches of a step are not known."""
    if mx.default_device() == mx.Device(mx.cpu):
        return "on a CPU an operation is a function call: no kernels are launched"
    return "MLX does not count its launches; CUPTI counts them on an NVIDIA GPU, and here there is none"


def table(census: Census) -> list[str]:
    """The census as lines: the plain step, then for each switch what disappeared and what came."""
    total = sum(census.plain.values())
    views = sum(count for name, count in census.plain.items() if name in VIEWS)
    lines = [
        f"{census.model} on {census.device}: {total} operations a step in {census.layers} layers, "
        f"{views} of them views"
    ]
    lines += [f"  {count:>6}  {_shown(name)}" for name, count in census.plain.items()]
    for one in census.changes:
        lines.append(_headline(one, total))
        if one.declined is None:
            lines += [
                f"  {-count:>+6}  {_shown(name)}{_each(-count, one)}"
                for name, count in one.gone.items()
            ]
            lines += [
                f"  {count:>+6}  {_shown(name)}{_each(count, one)}"
                for name, count in one.came.items()
            ]
    return [*lines, *_launches(census)]


def _launches(census: Census) -> list[str]:
    """The kernel launches of a step, plain and with each switch, or why they are not known."""
    if census.launches is None:
        return [f"kernel launches: unknown, {census.launches_unknown}"]
    with_each = [
        f"; {one.switch} {one.launches} ({one.launches - census.launches:+d})"
        for one in census.changes
        if one.launches is not None
    ]
    return [f"kernel launches: {census.launches} a step{''.join(with_each)}"]


def run(model: str, format: str, asked: Sequence[Asked], as_json: bool) -> None:
    """Take the census of a model, with every switch when none is named, and print it."""
    taken = take(model, format, asked or [Asked(name) for name in known()])
    print(json.dumps(asdict(taken), indent=2) if as_json else "\n".join(table(taken)))


def _shown(name: str) -> str:
    return f"{name} (view)" if name in VIEWS else name


def _headline(one: Change, total: int) -> str:
    if one.declined is not None:
        return f"{one.switch}: not counted, {one.declined}"
    now = sum(one.operations.values())
    return f"{one.switch}: {now} operations, {now - total:+d}"


def _each(count: int, one: Change) -> str:
    """How many that is for each layer that the switch changed, where it is a whole number."""
    if not one.layers or count % one.layers:
        return ""
    return f", {count // one.layers:+d} in each of {one.layers} layers"
