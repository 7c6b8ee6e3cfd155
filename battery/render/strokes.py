"""Paths of an SVG in whole hundredths of a point: read, moved, measured, and written as short as they go.

Whole numbers, so that relative steps add up to exactly the rounded places.
"""

from __future__ import annotations

from collections.abc import Sequence

Point = tuple[int, int]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""
Command = tuple[str, tuple[Point, ...]]
Path = tuple[Command, ...]
"""Letters of SVG with absolute places: M, L, Q, C, and z with none."""

_PLACES = {"M": 1, "L": 1, "Q": 2, "C": 3, "z": 0}


def number(hundredths: int) -> str:
    """Hundredths as a decimal number, without zeros that say nothing."""
    whole, rest = divmod(abs(hundredths), 100)
    digits = f"{whole or ''}.{rest:02d}".rstrip("0").rstrip(".") or "0"
    return f"-{digits}" if hundredths < 0 else digits


def parsed(told: str) -> Path:
    """The path of a `d` attribute with absolute letters; ValueError for any other letter."""
    found: list[Command] = []
    words = told.split()
    at = 0
    while at < len(words):
        letter = words[at]
        if letter not in _PLACES:
            raise ValueError(f"a path with {letter!r}, which is none of {', '.join(_PLACES)}")
        end = at + 1 + 2 * _PLACES[letter]
        values = [round(100 * float(word)) for word in words[at + 1 : end]]
        found.append((letter, tuple(zip(values[::2], values[1::2], strict=True))))
        at = end
    return tuple(found)


def shifted(path: Path, by: Point) -> Path:
    """The path somewhere else."""
    x, y = by
    return tuple((letter, tuple((px + x, py + y) for px, py in points)) for letter, points in path)


def flat(path: Path) -> bool:
    """Whether the path is of single straight lines, which have no inside to fill."""
    return "".join(letter for letter, _ in path) == "ML" * (len(path) // 2)


def box(path: Path) -> Box:
    """A box that holds the path (for a curve: its control points); all zero for no path."""
    xs = [x for _, points in path for x, _ in points] or [0]
    ys = [y for _, points in path for _, y in points] or [0]
    return min(xs), min(ys), max(xs), max(ys)


def drawn(path: Path) -> str:
    """The path as a `d` attribute of relative steps; straight ones along an axis by one number."""
    found: list[str] = []
    x = y = 0
    start, before = (0, 0), ""
    for letter, points in path:
        if letter == "z":
            found.append("z")
            (x, y), before = start, "z"
            continue
        steps = [(px - x, py - y) for px, py in points]
        name, values = letter.lower(), [value for step in steps for value in step]
        if letter == "L" and 0 in values:
            name, values = ("h", values[:1]) if values[1] == 0 else ("v", values[1:])
        told = _spaced(values)
        # the same letter again need not be said; after a move it would mean a line
        again = name == before and name != "m"
        found.append(f"{'' if told.startswith('-') else ' '}{told}" if again else name + told)
        x, y = points[-1]
        start, before = ((x, y) if letter == "M" else start), name
    return "".join(found)


def _spaced(values: Sequence[int]) -> str:
    """Numbers one after another; a minus needs no blank before it."""
    found = ""
    for told in map(number, values):
        found += told if not found or told.startswith("-") else f" {told}"
    return found
