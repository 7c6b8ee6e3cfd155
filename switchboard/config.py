"""What the engine was asked to be, frozen before anything is loaded.

The command line and the kill switches of the environment meet here and nowhere else. Whether a switch or an option
exists is the board's business (it knows them); whether the words parse is this module's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from switchboard.errors import ConfigError

FORMATS = ("auto", "float32", "quantized")
LAYOUTS = ("auto", "rows")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Asked:
    """One switch as the command line spelled it: options are still text."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    required: bool = False


@dataclass(frozen=True)
class Config:
    """Everything that decides what runs; host and port only decide where."""

    model: str
    host: str = "127.0.0.1"
    port: int = 8080
    asked: tuple[Asked, ...] = ()
    format: str = "auto"
    layout: str = "auto"
    threads: int = 1
    memory_limit: int | None = None
    api_key_env: str | None = None

    def __post_init__(self) -> None:
        """Refuse combinations that would start something nobody wants."""
        if self.format not in FORMATS:
            raise ConfigError(f"--format {self.format}: known formats are {', '.join(FORMATS)}")
        if self.layout not in LAYOUTS:
            raise ConfigError(f"--layout {self.layout}: known layouts are {', '.join(LAYOUTS)}")
        if self.threads < 1:
            raise ConfigError(f"--threads {self.threads}: at least one thread is needed")
        if self.memory_limit is not None and self.memory_limit <= 0:
            raise ConfigError(f"--memory-limit {self.memory_limit}: give a number of bytes above 0")
        if self.host not in LOOPBACK and not self.api_key_env:
            raise ConfigError(
                f"--host {self.host} is reachable from outside: give --api-key-env NAME, "
                "the environment variable that holds the key"
            )

    def digest(self) -> str:
        """Sha256 of what decides the behaviour, so that two servers can be called the same."""
        told = {
            "model": self.model,
            "switches": [[a.name, dict(sorted(a.options.items())), a.required] for a in self.asked],
            "format": self.format,
            "layout": self.layout,
            "threads": self.threads,
            "memory_limit": self.memory_limit,
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def parse_asked(switches: list[str], required: list[str]) -> tuple[Asked, ...]:
    """Switches from `NAME` or `NAME:key=value,key=value`; the same name twice is an error."""
    asked = [_parse_one(text, False) for text in switches]
    asked += [_parse_one(text, True) for text in required]
    names = [one.name for one in asked]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"switch {twice[0]} is given more than once: keep one --switch or --require"
        )
    return tuple(asked)


def _parse_one(text: str, required: bool) -> Asked:
    name, _, rest = text.partition(":")
    options: dict[str, str] = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise ConfigError(f"switch {name}: '{pair}' is not key=value")
        if key in options:
            raise ConfigError(f"switch {name}: option {key} is given more than once")
        options[key] = value
    if not name:
        raise ConfigError(f"'{text}' names no switch; write NAME or NAME:key=value,key=value")
    return Asked(name, options, required)
