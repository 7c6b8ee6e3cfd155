"""The arguments of the plus tests as Python values.

JSON has no tuples, sets or complex numbers, so EvalPlus's files hold lists and strings in their place. Which argument
of which task of MBPP+ is what, is a fact about that data and stands here as a table; HumanEval+ needs nothing. The
table is that of EvalPlus 0.3.1, whose own loader must give the same values: an argument of another type would be
another test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Change = Callable[[Any], Any]


def _each(change: Change) -> Change:
    """A list of changed members."""
    return lambda values: [change(value) for value in values]


def _at(place: int, change: Change) -> Change:
    """All arguments, the one at `place` changed."""
    return lambda given: [change(v) if i == place else v for i, v in enumerate(given)]


def _set(value: Any) -> Any:
    """A set; an empty one is a dict in the data, as `{}` is in the source it was taken from."""
    if not isinstance(value, list):
        return {}
    return set(value) if value else {}


def _rows(value: Any) -> Any:
    """A tuple of tuples."""
    return tuple(tuple(row) for row in value)


def _mixed(value: Any) -> Any:
    """A tuple in which what is a list is a tuple too."""
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def _deep(value: Any) -> Any:
    """Tuples all the way down."""
    return tuple(_deep(item) for item in value) if isinstance(value, list) else value


def _angle(given: Sequence[Any]) -> Any:
    return [float(given[0]), complex(given[1])]


_CHANGES: tuple[tuple[Change, tuple[int, ...]], ...] = (
    (_each(tuple), (2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740,
                    744, 809)),
    (_each(_each(tuple)), (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780)),
    (_each(_rows), (259, 401, 445)),
    (_each(_mixed), (278,)),
    (_each(_deep), (580, 615, 791)),
    (_at(0, tuple), (250, 307, 405, 446, 617, 720, 763, 808)),
    (_at(1, tuple), (106, 750)),
    (_at(0, _each(tuple)), (75, 413, 444, 753)),
    (_at(0, lambda table: {key: tuple(value) for key, value in table.items()}), (722,)),
    (_at(0, _each(_set)), (115,)),
    (_at(0, complex), (252,)),
    (_angle, (124,)),
)  # fmt: skip
_BY_TASK = {f"Mbpp/{number}": change for change, numbers in _CHANGES for number in numbers}


def restored(task: str, inputs: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
    """The positional arguments of every call, from what a plus file holds for a task.

    Members are shared with `inputs`, not copied: whoever calls a program with them copies first.
    """
    change = _BY_TASK.get(task)
    return tuple(tuple(change(given) if change else given) for given in inputs)
