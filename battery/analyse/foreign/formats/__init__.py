"""One module per kind of file that other tools write. Its name, with hyphens, is the word for `--format`.

A module defines FORMAT: how such a file is told by its content, and what is taken out of it. Nothing else must know.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

import msgspec

from battery.analyse.foreign.reading.document import Document
from battery.analyse.foreign.reading.taken import Taken
from battery.ledger.errors import InputError
from battery.ledger.strict import nearest


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """How one kind of file is told and read."""

    title: str
    """What to ask the tool for, such as `llama-bench -o json`."""
    recognises: Callable[[Document], bool]
    """By what is in it, never by the name of the file."""
    read: Callable[[Document], Taken]
    """Its runs; InputError that names the place for whatever cannot be."""


@cache
def known_formats() -> tuple[str, ...]:
    """Names of the formats, sorted."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)))


def load_format(name: str) -> Format:
    """The format of that name; InputError with the nearest known one."""
    if name not in known_formats():
        raise InputError(f"no format '{name}'{nearest(name, (*known_formats(), 'csv'))}")
    found: Format = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").FORMAT
    return found
