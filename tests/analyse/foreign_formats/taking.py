"""Fixtures of other tools' results as tests take them: read, changed and written again, or planted with a fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from battery.analyse.foreign.reading.recognise import Found, recognise
from battery.analyse.foreign.reading.taken import Run, Taken, Value
from battery.ledger.errors import InputError

FOLDER = Path(__file__).parents[2] / "fixtures" / "foreign"


def found(path: Path, forced: str | None = None) -> Found:
    """A file of another tool, which it must be."""
    one = recognise(path, forced)
    assert one is not None
    return one


def taken(name: str) -> Taken:
    """What is taken out of a fixture."""
    return found(FOLDER / name).taken


def values(run: Run, metric: str) -> list[Value]:
    """The run's values of a metric, in its order."""
    return [value for value in run.values if value.metric == metric]


def loaded(name: str) -> Any:
    """A fixture's JSON: an object, or the list of its lines."""
    text = (FOLDER / name).read_text()
    if name.endswith("l"):
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def written(folder: Path, document: object, name: str = "given.json") -> Path:
    """A document as a file; a list under a name of lines is written as lines."""
    path = folder / name
    if name.endswith("l"):
        assert isinstance(document, Iterable)
        path.write_text("".join(json.dumps(one) + "\n" for one in document))
    else:
        path.write_text(json.dumps(document))
    return path


def changed(folder: Path, name: str, change: Callable[[Any], object]) -> Path:
    """A fixture after a change in place, as a file of the same kind."""
    document = loaded(name)
    change(document)
    return written(folder, document, "given.jsonl" if name.endswith("l") else "given.json")


def refused(path: Path, forced: str | None = None) -> str:
    """What is said where a file must be refused as wrong input; it names the file."""
    with pytest.raises(InputError) as wrong:
        recognise(path, forced)
    assert wrong.value.exit_code == 2 and str(path) in str(wrong.value)
    return str(wrong.value)
