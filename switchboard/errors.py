"""The error tree: what can go wrong, and the status each leaves with.

SwitchboardError
    ConfigError          a flag, switch or option that does not exist or does not parse
    ModelError           weights that are unknown, missing, corrupt or of a kind we cannot run
    SwitchRefused        a required switch that could not be put on
    PortInUse            somebody else listens there
    Declined             a switch says why it stays off; caught by the board, never by a user
    RequestError         a request that cannot be served; becomes an HTTP status
        OutOfMemory      the allocator, or the limit that was set, said no

Every message says what, where and what to do.
"""

from __future__ import annotations


class SwitchboardError(Exception):
    """Something the person who started the engine has to know, in one line."""

    exit_status = 2


class ConfigError(SwitchboardError):
    """A flag, switch or option that does not exist or does not parse."""


class ModelError(SwitchboardError):
    """Weights that are unknown, missing, corrupt or of a kind that cannot run here."""


class SwitchRefused(SwitchboardError):
    """A switch was required and could not be put on."""


class PortInUse(SwitchboardError):
    """Another process listens on the port that was asked for."""

    exit_status = 5


class Declined(SwitchboardError):
    """The reason for which a switch stays off; it does not stop the boot."""


class RequestError(SwitchboardError):
    """A request that cannot be served, with the HTTP status, the code and the field that say why."""

    def __init__(
        self,
        message: str,
        code: str = "invalid_request",
        status: int = 400,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.param = param


class OutOfMemory(RequestError):
    """The allocator, or the limit that was set at start, refused an allocation."""

    def __init__(self, message: str) -> None:
        super().__init__(f"out of memory: {message}", code="out_of_memory", status=507)


ALLOCATOR_WORDS = (
    "out of memory",
    "bad_alloc",
    "unable to allocate",
    "insufficient memory",
    "[malloc",
)


def says_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception from MLX or Python is an allocation that failed."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(word in text for word in ALLOCATOR_WORDS)
