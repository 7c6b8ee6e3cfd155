"""One file per backend: how to start it and where it answers. The file's name is the word in an arm's `backend`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import msgspec

from battery.ledger import strict
from battery.ledger.arm import Arm, Scalar
from battery.ledger.errors import ArmError


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """What the launcher and the client need to know of a kind of server."""

    command: Callable[[Arm, str, int], list[str]]
    """Arm, host and port to a command line; ArmError for what the backend cannot do."""
    health: str = "/health"
    """Answers 200 with {status, pid, model: {name, digest, context}, switches, memory} once it is ready."""
    chat: str = "/v1/chat/completions"
    tokenize: str = "/tokenize"
    reset_peak: str | None = None
    """POST resets the engine's own peak-memory counter; None: it has none."""


def switch_words(arm: Arm) -> list[str]:
    """The arm's switches as switchboard spells them: --switch NAME or --switch NAME:key=value,key=value."""
    words: list[str] = []
    for name, options in arm.asked.items():
        settings = ",".join(f"{key}={spelled(value)}" for key, value in sorted(options.items()))
        words += ["--switch", f"{name}:{settings}" if settings else name]
    return words


def spelled(value: Scalar) -> str:
    """A value as a command line spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def known_backends() -> list[str]:
    """Names of the backends, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load_backend(name: str) -> Backend:
    """The backend of that name; ArmError with the nearest known one."""
    if name not in known_backends():
        raise ArmError(f"no backend '{name}'{strict.nearest(name, known_backends())}")
    backend: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return backend
