"""A plan: which context lengths, how many blocks and seeds, which sampler, which gates, and what is claimed in advance.

Everything that decides how a campaign is measured or judged stands here, before the first window, and is in the digest.
"""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from battery.ledger import strict
from battery.ledger.claims import Bar, Stopping, bars, stops
from battery.ledger.errors import InputError, PlanError

Workload = Literal["prose", "code", "edit"]
PrimaryMetric = Literal["decode", "prefill", "ttft", "peak_memory"]


LATER: tuple[tuple[str, str], ...] = (
    ("gate", "max_pressure"),
    ("gate", "min_clock_share"),
    ("gate", "need_steady"),
    ("gate", "need_own_gpu"),
    ("gate", "baseline_s"),
    ("limits", "reruns"),
    ("limits", "memory_limit_gb"),
    ("", "warm_up_tokens"),
    ("", "stopping"),
    ("", "bars"),
)
"""Tables and keys that came after campaigns had been measured. A plan that leaves one at its default keeps the digest
it had, so these defaults never change; whether a limit was applied is told by the receipts."""


class Sampler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every request asks for. `top_k` 0 and `top_p` 1 mean: not cut."""

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    max_tokens: int = 64
    min_tokens: int = 64
    """Asked of the engine, and the bar: a cell that ends before it is `short` and not pooled."""


class Primary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one endpoint that is declared before measuring.

    It is corrected for nothing but the number of candidates (Holm), and in a screen together with all the others.
    """

    metric: PrimaryMetric = "decode"
    rung: int = 0
    """A rung of the ladder; 0 means the longest."""


class Gate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits that must hold before every cell. A reading that does not exist never counts as within them."""

    wait_s: float = 30.0
    """How long to wait for the machine before the cell is `refused`."""
    max_temp_c: float | None = 95.0
    """Hottest sensor, degrees Celsius; null: not limited."""
    temp_band_c: float | None = 10.0
    """How far any sensor may stand from the campaign's own baseline, above or below; null: not limited."""
    max_busy: float | None = 0.35
    """Share of all cores that others may be using while the engine idles, 0 to 1; null: not limited."""
    max_steal: float | None = 0.10
    """Share of time the hypervisor may have taken away, 0 to 1; null: not limited."""
    min_free_gb: float | None = 0.5
    """Memory that must be available, in 10^9 bytes; null: not limited."""
    calibration: float | None = 0.25
    """How far a fixed piece of work may be from its baseline, as a share of it; null: not run."""
    need_ac_power: bool = True
    """Whether the machine must run from mains and out of low-power mode."""
    max_pressure: float | None = 0.25
    """Share of time in which some task waits for a processor while the engine idles, 0 to 1; null: not limited."""
    min_clock_share: float | None = 0.75
    """Least share of the base clock that a core must reach under the fixed work; null: not limited."""
    need_steady: bool = True
    """Whether nothing may have been throttled, slowed down or swapped in within the last half minute."""
    need_own_gpu: bool = True
    """Whether no process but the server's may compute on the GPU."""
    baseline_s: float = 2.0
    """How long the idle machine is looked at for its baseline."""


class Margins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Practical margins as shares: inside them a difference does not matter. Declared before measuring."""

    decode: float = 0.02
    prefill: float = 0.02
    ttft: float = 0.05
    peak_memory: float = 0.02

    def of(self, metric: str) -> float:
        """The margin of a metric; those without one of their own use decode's."""
        return float(getattr(self, metric, self.decode))


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long things may take, and how much may fail."""

    launch_s: float = 120.0
    request_s: float = 600.0
    stop_s: float = 10.0
    failed_share: float = 0.05
    """Share of cells that may end in anything but `ok` before the campaign exits with an error."""
    reruns: int = 2
    """How often a block is measured again because the machine was disturbed in it; then it stands, and is flagged."""
    prompt_tolerance: int = 8
    """Tokens by which the server's count of a prompt may differ from the rung."""
    memory_cap_gb: float | None = None
    """Peak above which a cell counts as out of memory, in 10^9 bytes; null: no cap of ours."""
    memory_limit_gb: float | None = None
    """Memory that every arm's server may use, in 10^9 bytes, enforced by the kernel (a cgroup of its own, else
    RLIMIT_AS); null: not limited."""
    allow_declined: bool = False
    """Whether a window goes on, labelled, when the engine declined a switch and said why."""


class Replay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose recorded answers every arm is made to follow, token by token (ledger.trajectories).

    A campaign with it tells how fast arms are along these texts, and nothing of texts that they would write.
    """

    campaign: str
    seal: str
    """Of that campaign: what it recorded is fixed by it."""
    arm: str
    """Its control, which wrote the texts."""
    block: int | None = None
    """Every block follows the texts of this one, so that blocks differ by the machine alone; None: each its own."""
    digest: str
    """sha256 over the texts' token ids, each with its rung, seed and prompt."""
    plan: str | msgspec.UnsetType = msgspec.UNSET
    """The plan that was given in place of the source's own; not written where it was the source's own, which a file of
    that name need not be: a rule may have ended the source before its last block."""

    @property
    def texts(self) -> Replay:
        """Whose texts they are alone, under whichever plan."""
        return msgspec.structs.replace(self, plan=msgspec.UNSET)


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a campaign is measured and judged."""

    name: str = ""
    why: str = ""
    workload: Workload = "prose"
    workloads: tuple[Workload, ...] | msgspec.UnsetType = msgspec.UNSET
    """Several kinds of text in the same windows, in place of `workload`: each has an equal share of the seeds. Not
    written where it is not set, so the plan of one workload has the bytes and the digest that it had."""
    ladder: tuple[int, ...]
    """Context lengths in tokens of the model, after its chat template, ascending."""
    blocks: int
    """Windows per arm, at most where the rule looks. Six are the fewest that can carry a verdict.

    Drift cancels over whole squares of the order: an even number for two arms, a multiple of the arms for more, of
    twice them for an odd number.
    """
    seeds: int = 1
    """Fresh prompts per rung and block, shared by all arms of the block; with several workloads a multiple of them."""
    sentinel: bool = True
    """One prompt that returns in every window, for determinism and drift, never for the estimate."""
    warm_up_tokens: int = 0
    """Tokens of an untimed request before the first cell of each rung of a window: an engine that compiles kernels for
    new shapes does it there and not in the first seed. 0: none."""
    sampler: Sampler = Sampler()
    primary: Primary = Primary()
    margins: Margins = Margins()
    gate: Gate = Gate()
    limits: Limits = Limits()
    stopping: Stopping = Stopping()
    bars: tuple[Bar, ...] = ()
    replay: Replay | msgspec.UnsetType = msgspec.UNSET
    """Not written where it is not set, so the plan of a free campaign has the bytes and the digest that it had."""

    @property
    def replayed(self) -> Replay | None:
        """Whose texts every arm follows; None in a free campaign."""
        return self.replay if isinstance(self.replay, Replay) else None

    @property
    def mix(self) -> tuple[Workload, ...]:
        """The kinds of text that are measured; one, but where `workloads` names several."""
        return self.workloads if isinstance(self.workloads, tuple) else (self.workload,)

    def workload_of(self, place: int) -> Workload:
        """The kind of text of the seed at `place` of a block (from 1); the sentinel's, at 0, is the first kind."""
        return self.mix[max(place - 1, 0) % len(self.mix)]

    @property
    def digest(self) -> str:
        """sha256 over everything but the prose in `why`."""
        # through JSON's types once: a plan written with 20 is the plan written with 20.0
        same = msgspec.to_builtins(msgspec.convert(msgspec.to_builtins(self), Plan))
        for table, key in LATER:
            if not table:
                if getattr(self, key) == _TOP[key]:
                    del same[key]
            elif getattr(getattr(self, table), key) == getattr(_DEFAULTS[table], key):
                del same[table][key]
        # in the order of the fields, as the plan itself would be encoded
        return strict.digest(msgspec.json.encode({**same, "why": ""}))

    @property
    def anchor(self) -> int:
        """The rung of the primary endpoint."""
        return self.primary.rung or self.ladder[-1]


_DEFAULTS: dict[str, Gate | Limits] = {"gate": Gate(), "limits": Limits()}
_TOP: dict[str, object] = {"warm_up_tokens": 0, "stopping": Stopping(), "bars": ()}


def known_plans(folder: Path) -> list[str]:
    """Names of the packaged plans and of those in `folder`, sorted."""
    packaged = {
        path.name.removesuffix(".toml")
        for path in _packaged().iterdir()
        if path.name.endswith(".toml")
    }
    return sorted(packaged | {path.stem for path in folder.glob("*.toml")})


def load_plan(name: str, folder: Path = Path("plans")) -> Plan:
    """A plan by name (`folder`, then the packaged ones) or by the path of its TOML file."""
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    if not path.is_file() and not name.endswith(".toml"):
        with resources.as_file(_packaged() / f"{name}.toml") as packaged:
            if not packaged.is_file():
                raise PlanError(f"no plan '{name}'{strict.nearest(name, known_plans(folder))}")
            return _read(packaged, name)
    return _read(path, path.stem)


def _packaged() -> resources.abc.Traversable:
    """The folder of plans that ship with battery."""
    return resources.files("battery") / "plans"


def _read(path: Path, name: str) -> Plan:
    """A checked plan from one file."""
    try:
        plan = strict.shape({**strict.read_toml(path), "name": name}, Plan, str(path), PlanError)
    except PlanError:
        raise
    except InputError as broken:
        raise PlanError(str(broken)) from broken
    if plan.replayed is not None:
        raise PlanError(
            f"{path}: replay: cannot stand in a file; `battery run --replay CAMPAIGN` takes down what is sealed there"
        )
    check(plan, str(path))
    if plan.stopping.rule == "fixed" or plan.stopping.level is not None:
        return plan
    stopping = msgspec.structs.replace(plan.stopping, level=plan.stopping.most)
    return msgspec.structs.replace(plan, stopping=stopping)


def check(plan: Plan, where: str) -> None:
    """PlanError for the first value of `plan` that cannot be measured or judged."""
    for holds, complaint in (*_asked(plan), *_bounded(plan), *stops(plan), *bars(plan)):
        if not holds:
            raise PlanError(f"{where}: {complaint}")


def _asked(plan: Plan) -> list[tuple[bool, str]]:
    """What must hold of what is measured: (whether it does, what to do where not)."""
    sampler, ladder = plan.sampler, plan.ladder
    return [
        (
            bool(ladder) and all(rung >= 32 for rung in ladder),
            "ladder: give context lengths of at least 32 tokens",
        ),
        (
            list(ladder) == sorted(set(ladder)),
            "ladder: must ascend without repeats (a process's peak memory only grows)",
        ),
        (1 <= plan.blocks <= 99, "blocks: must be between 1 and 99"),
        (1 <= plan.seeds <= 99, "seeds: must be between 1 and 99"),
        (sampler.temperature >= 0, "sampler.temperature: must be 0 or more"),
        (0 < sampler.top_p <= 1, "sampler.top_p: must be above 0 and at most 1"),
        (sampler.top_k >= 0, "sampler.top_k: must be 0 (not cut) or more"),
        (
            sampler.max_tokens >= 2,
            "sampler.max_tokens: must be at least 2, or there is no decode to time",
        ),
        (
            0 <= sampler.min_tokens <= sampler.max_tokens,
            "sampler.min_tokens: must be between 0 and max_tokens",
        ),
        *_mixed(plan),
        (
            plan.primary.rung in (0, *ladder),
            f"primary.rung: {plan.primary.rung} is not on the ladder",
        ),
        (
            0 <= plan.warm_up_tokens <= sampler.max_tokens,
            "warm_up_tokens: must be between 0 (none) and sampler.max_tokens",
        ),
    ]


def _mixed(plan: Plan) -> list[tuple[bool, str]]:
    """What must hold of several workloads; nothing of one."""
    mix = plan.workloads
    if not isinstance(mix, tuple):
        return []
    return [
        (len(mix) >= 2, "workloads: name at least two; one alone is `workload`"),
        (len(set(mix)) == len(mix), "workloads: each once"),
        (plan.workload == "prose", "workload: leave it out where `workloads` names several"),
        (
            plan.seeds % max(len(mix), 1) == 0,
            f"seeds: must be a multiple of the {len(mix)} workloads, which share them equally",
        ),
    ]


def _bounded(plan: Plan) -> list[tuple[bool, str]]:
    """What must hold of margins, gates and limits."""
    return [
        (0 <= plan.limits.failed_share <= 1, "limits.failed_share: must be between 0 and 1"),
        *(
            (value is None or value > 0, f"{room}.{name}: must be above 0")
            for room, table, names in (
                ("margins", plan.margins, ("decode", "prefill", "ttft", "peak_memory")),
                ("limits", plan.limits, ("launch_s", "request_s", "stop_s")),
                ("limits", plan.limits, ("memory_cap_gb", "memory_limit_gb")),
            )
            for name in names
            for value in (getattr(table, name),)
        ),
        *(
            (math.isfinite(value), f"{room}.{name}: must be a number")
            for room, table in (
                ("gate", plan.gate),
                ("margins", plan.margins),
                ("limits", plan.limits),
            )
            for name in table.__struct_fields__
            if isinstance(value := getattr(table, name), float)
        ),
        (plan.gate.wait_s >= 0, "gate.wait_s: must be 0 or more"),
        (0 <= plan.gate.baseline_s <= 600, "gate.baseline_s: must be between 0 and 600"),
        (0 <= plan.limits.reruns <= 9, "limits.reruns: must be between 0 and 9"),
    ]
