"""An arm: a backend, a model, switches and flags, read from `arms/<name>.toml`.

The file's name is the arm's name. `base = "A"` starts from another arm; tables are merged key by
key and the child wins.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from battery.ledger import scrub, strict
from battery.ledger.errors import ArmError, InputError

Scalar = bool | int | float | str
Switch = bool | dict[str, Scalar]

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_+.-]{0,40}$")


class ArmFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an arm's TOML may say. See Arm for the meaning of each key."""

    why: str = ""
    base: str | None = None
    backend: str | None = None
    model: str | None = None
    switches: dict[str, Switch] = {}
    flags: dict[str, Scalar] = {}
    env: dict[str, str] = {}
    command: list[str] = []
    engaged: dict[str, Scalar] = {}


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration under test, with everything inherited already written in."""

    name: str
    backend: str
    model: str
    why: str = ""
    switches: dict[str, Switch] = {}
    """Optimisations asked for: true, or a table of options. false turns off what a base asks for."""
    flags: dict[str, Scalar] = {}
    """Further command-line flags of the backend, without their dashes."""
    env: dict[str, str] = {}
    command: list[str] = []
    """For the backend `command`: the program and its arguments; {port}, {host}, {model}, {python} and
    {switches} are filled in."""
    engaged: dict[str, Scalar] = {}
    """Rules beyond the backend's own: a path into the health document, and the value it must have after a request."""

    @property
    def asked(self) -> dict[str, dict[str, Scalar]]:
        """Switches that are on, each with its options (empty where it was just `true`)."""
        return {
            name: {} if isinstance(value, bool) else dict(value)
            for name, value in sorted(self.switches.items())
            if value is not False
        }

    @property
    def digest(self) -> str:
        """sha256 over everything that can change what runs; the prose in `why` is left out."""
        return strict.digest(msgspec.structs.replace(self, why=""))

    @property
    def kind(self) -> str:
        """The digest without the name: equal for arms that run the same thing, whatever they are called."""
        return strict.digest(msgspec.structs.replace(self, why="", name=""))

    def public(self) -> Arm:
        """The same arm without secrets and paths of this machine, fit for a receipt."""
        return msgspec.structs.replace(
            self,
            model=scrub.text(self.model),
            env=scrub.deep(self.env),
            flags=scrub.deep(self.flags),
            command=list(scrub.command(self.command)),
        )


def known_arms(folder: Path) -> list[str]:
    """Names of the arms in `folder`, sorted."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def load_arm(name: str, folder: Path) -> Arm:
    """The arm `name` from `folder`, with its bases merged in; ArmError for anything unknown or circular."""
    table = _merged(name, folder, ())
    where = str(folder / f"{name}.toml")
    table.pop("base", None)
    for need in ("backend", "model"):
        if not table.get(need):
            raise ArmError(f"{where}: no '{need}', here or in a base; add {need} = \"…\"")
    return msgspec.convert({**table, "name": name}, Arm)


def _merged(name: str, folder: Path, seen: tuple[str, ...]) -> dict[str, Any]:
    """The arm's table over its base's table."""
    if not _NAME.match(name):
        raise ArmError(f"arm name '{name}': use letters, digits, '.', '_', '+' and '-'")
    if name in seen:
        raise ArmError(
            f"{folder / name}.toml: its bases form a circle: {' -> '.join((*seen, name))}"
        )
    path = folder / f"{name}.toml"
    if not path.is_file():
        raise ArmError(f"{folder}: no arm '{name}'{strict.nearest(name, known_arms(folder))}")
    try:
        table = strict.read_toml(path)
    except InputError as broken:
        raise ArmError(str(broken)) from broken
    strict.shape(table, ArmFile, str(path), ArmError)
    base = table.get("base")
    if base is None:
        return table
    below = _merged(base, folder, (*seen, name))
    for key, value in table.items():
        below[key] = {**below.get(key, {}), **value} if isinstance(value, dict) else value
    return below


def difference(one: Arm, other: Arm) -> list[tuple[str, object, object]]:
    """Every path at which two arms differ, with both values (None where absent); names and prose are left out."""
    left, right = (_flat(msgspec.to_builtins(arm)) for arm in (one, other))
    paths = sorted({*left, *right})
    return [
        (path, left.get(path), right.get(path))
        for path in paths
        if left.get(path) != right.get(path)
    ]


def _flat(value: object, at: str = "") -> dict[str, object]:
    """Nested tables as dotted paths."""
    if not isinstance(value, dict):
        return {at: value}
    flat: dict[str, object] = {}
    for key, inner in value.items():
        if not at and key in ("name", "why"):
            continue
        flat.update(_flat(inner, f"{at}.{key}" if at else str(key)))
    return flat
