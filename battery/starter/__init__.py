"""A project to start from: arms, a plan and a .gitignore, written where nothing stands yet.

What is written lies beside this module as files of its own, and every one of them is loaded by the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from battery.ledger.disk import write_once
from battery.ledger.errors import InputError

ENGINE = ("arms/A.toml", "arms/C.toml")
"""Arms of switchboard, which needs more than battery does."""
OWN = ("arms/mine.toml", "arms/mine-fast.toml")
"""An example of the backend `command`, to be filled in."""
REST = ("plans/first.toml", ".gitignore")
PLAN = "first"


class Written(NamedTuple):
    """One file of a new project, and whether it was written or was there and is kept."""

    name: str
    fresh: bool


def engine() -> bool:
    """Whether switchboard could start here: the package and the one it stands on are installed."""
    return all(find_spec(name) is not None for name in ("switchboard", "mlx"))


def write(folder: Path, with_engine: bool) -> Iterator[Written]:
    """Make the files of a project in `folder`; what is there already is never changed.

    InputError where a file stands in the place of a folder.
    """
    for name in (*(ENGINE if with_engine else ()), *OWN, *REST):
        path = folder / name
        above = next(each for each in path.parents if each.exists())
        if not above.is_dir():
            raise InputError(f"{above}: is no folder; name one that is, or that is to be made")
        if path.exists() or path.is_symlink():
            yield Written(name, False)
            continue
        write_once(path, text(name).encode(), mode=0o644)
        yield Written(name, True)


def text(name: str) -> str:
    """The text of one of the files."""
    packaged = resources.files("battery") / "starter" / name.replace(".gitignore", "gitignore")
    return packaged.read_text(encoding="utf-8")
