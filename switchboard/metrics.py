"""Counts for a monitoring system, in the text format of Prometheus (version 0.0.4).

Everything is read when it is asked for. Totals only grow while the process lives; a figure that is unknown is left
out, never told as 0. Times and tokens are those of the engine's own tally, so a rate of two totals, such as
`switchboard_completion_tokens_total` over time, includes waiting; the sums of seconds do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from switchboard.decode import Tally

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Outcome = Literal["finished", "cancelled", "failed"]


@dataclass
class Totals:
    """What the worker did since it started, summed over its requests."""

    outcomes: dict[Outcome, int] = field(
        default_factory=lambda: {"finished": 0, "cancelled": 0, "failed": 0}
    )
    prompt_tokens: int = 0
    computed_tokens: int = 0
    completion_tokens: int = 0
    prompt_s: float = 0.0
    decode_s: float = 0.0
    steps: int = 0
    proposed: int = 0
    accepted: int = 0

    def add(self, outcome: Outcome, prompt: int, completion: int, tally: Tally) -> None:
        """One request that has ended, however it did."""
        self.outcomes[outcome] += 1
        self.prompt_tokens += prompt
        self.computed_tokens += tally.prompt_tokens
        self.completion_tokens += completion
        self.prompt_s += tally.prompt_s or 0.0
        self.decode_s += tally.decode_s or 0.0
        self.steps += tally.steps
        self.proposed += tally.proposed
        self.accepted += tally.accepted


class Responses:
    """Passes requests through and counts the answers by their HTTP status."""

    def __init__(self, app: ASGIApp, counts: Counter[int]) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count when the answer begins: whoever has read it finds it counted."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._counts[message["status"]] += 1
            await send(message)

        await self._app(scope, receive, counted)


@dataclass(frozen=True)
class Family:
    """One metric: its samples are pairs of labels and a figure."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]

    def lines(self) -> Iterator[str]:
        """The metric as text; nothing where there is no sample."""
        if not self.samples:
            return
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, figure in self.samples:
            told = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
            yield f"{self.name}{'{' + told + '}' if told else ''} {figure!r}"


def escaped(value: str) -> str:
    """A label's value as it stands between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def text(families: list[Family]) -> str:
    """All metrics as one document."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


def single(name: str, kind: Literal["counter", "gauge"], told: str, figure: float | None) -> Family:
    """A metric without labels; an unknown figure leaves it out."""
    return Family(name, kind, told, [] if figure is None else [({}, figure)])


def of_totals(totals: Totals) -> list[Family]:
    """What the worker summed up."""
    outcomes = [({"outcome": outcome}, count) for outcome, count in totals.outcomes.items()]
    told: list[tuple[str, str, float]] = [
        ("prompt_tokens", "Tokens of prompts.", totals.prompt_tokens),
        ("prompt_tokens_computed", "Those that no cache held.", totals.computed_tokens),
        ("completion_tokens", "Tokens of answers.", totals.completion_tokens),
        ("prompt_seconds", "From start to first token.", totals.prompt_s),
        ("decode_seconds", "From first token to last.", totals.decode_s),
        ("decode_steps", "Passes behind the first token.", totals.steps),
        ("draft_tokens_proposed", "Guesses that were verified.", totals.proposed),
        ("draft_tokens_accepted", "Guesses that stood.", totals.accepted),
    ]
    return [
        Family("switchboard_requests_total", "counter", "Requests by how they ended.", outcomes),
        *(single(f"switchboard_{name}_total", "counter", what, one) for name, what, one in told),
    ]


def of_health(health: Mapping[str, Any]) -> list[Family]:
    """What /health tells, as figures and labels."""
    build, model, memory = health["build"], health["model"], health["memory"]
    identity = {
        "version": build["version"],
        "commit": build["commit"],
        "mlx": build["mlx"],
        "device": build["device"],
        "model": model["name"],
        "format": model["format"],
        "config_digest": health["config_digest"],
    }
    known = {name: str(value) for name, value in identity.items() if value is not None}
    kinds = ("active", "cache", "peak", "limit")
    sizes = [({"kind": kind}, memory[kind]) for kind in kinds if memory[kind] is not None]
    switches = health["switches"]
    states = [
        ({"switch": name, "state": one["state"], "exactness": one["exactness"]}, 1)
        for name, one in switches.items()
    ]
    runs = [({"switch": name}, one["counters"]["runs"]) for name, one in switches.items()]
    return [
        Family("switchboard_build_info", "gauge", "What runs, in its labels.", [(known, 1)]),
        single("switchboard_uptime_seconds", "gauge", "Since the load.", health["uptime_s"]),
        Family("switchboard_memory_bytes", "gauge", "Bytes as MLX counts them.", sizes),
        Family("switchboard_switch_state", "gauge", "The state of each switch.", states),
        Family("switchboard_switch_runs_total", "counter", "Where each switch ran.", runs),
    ]
