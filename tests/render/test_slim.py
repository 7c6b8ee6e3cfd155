"""The slim drawing is the drawing: every stroke, fill and word at its place, read back from both."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from battery.render import style
from battery.render.slim import slim
from battery.render.strokes import Path, box, drawn, flat, number, parsed, shifted

LINK = "{http://www.w3.org/1999/xlink}href"
SAME = {
    "stroke-linejoin": "round", "stroke-linecap": "butt", "stroke-dashoffset": "0", "stroke-width": "1",
    "text-anchor": "start",
}  # fmt: skip


def figure() -> Figure:
    """Lines, markers of all sorts, dashes, bars, words turned and not, and data that leaves its axes."""
    made = Figure(figsize=(4, 3))
    axes = made.add_axes((0.2, 0.2, 0.7, 0.7))
    axes.set_xlim(0, 4)
    axes.set_ylim(0, 4)
    for place in range(8):
        look = style.Look(place)
        axes.plot(
            [0.5, 1.5, 2.5], [place / 2, 3, 1], color=look.colour, marker=look.marker, linestyle=look.line,
            markeredgecolor="white",
        )  # fmt: skip
    axes.plot([1, 2, 3], [1, 2, 3], linestyle="none", marker="x", color=style.INK)
    axes.plot([1, 1, float("nan"), 2, 2], [1, 2, 0, 2, 3], marker="_", color=style.INK)
    axes.plot([1, 9], [-5, 3], color=style.QUIET)
    axes.barh([1, 2], [2, 3], 0.5, color=style.Look(1).colour)
    axes.barh([3], [2], 0.5, fill=False, edgecolor=style.Look(2).colour)
    axes.axvspan(1, 2, color=style.BAND)
    axes.text(1, 1, "a < b & c", rotation=30)
    axes.text(2, 2, "two\nlines", fontweight="bold")
    axes.tick_params(axis="x", labelrotation=20)
    return made


def drawing(made: Figure) -> str:
    buffer = io.BytesIO()
    FigureCanvasSVG(made).print_figure(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue().decode()


def made_slim(told: str) -> str:
    names = {colour: name for name, colour in style.LIGHT.items()}
    return slim(told, "key", "<title>t</title>", 'class="c"', ".c{}", names)


def local(one: ElementTree.Element) -> str:
    return one.tag.rpartition("}")[2]


def declared(told: str) -> dict[str, str]:
    """Declarations, of each name the first: the second of a colour is for viewers that know variables."""
    found: dict[str, str] = {}
    for one in told.split(";"):
        name, _, value = one.partition(":")
        if name.strip() and name.strip() != "font-family":
            found.setdefault(name.strip(), rounded(value))
    return {name: value for name, value in found.items() if SAME.get(name) != value}


def rounded(told: str) -> str:
    return re.sub(r"-?\d*\.\d+", lambda m: f"{round(float(m.group()), 2):g}", told.strip())


def subpaths(d: str, x: float, y: float) -> Iterator[tuple[Any, ...]]:
    """Each subpath of absolute or relative letters, as its letters and absolute places."""
    words = re.findall(r"[A-Za-z]|-?(?:\d+\.?\d*|\.\d+)", d)
    here, start, now, letter = (0.0, 0.0), (0.0, 0.0), [], ""
    at = 0
    while at < len(words):
        if words[at].isalpha():
            letter, at = words[at], at + 1
        kind = letter.upper()
        if kind == "Z":
            now.append("Z")
            here = start
            continue
        if kind in "HV":
            step = float(words[at])
            points = [(here[0] + step, here[1]) if kind == "H" else (here[0], here[1] + step)]
            kind, at = "L", at + 1
        else:
            count = {"M": 1, "L": 1, "C": 3}[kind]
            numbers = [float(word) for word in words[at : at + 2 * count]]
            by = here if letter.islower() else (0.0, 0.0)
            points = [
                (by[0] + a, by[1] + b) for a, b in zip(numbers[::2], numbers[1::2], strict=True)
            ]
            at += 2 * count
        if kind == "M":
            if now:
                yield tuple(now)
            now, start = [], points[-1]
        here = points[-1]
        now.append((kind, *((round(px + x, 2), round(py + y, 2)) for px, py in points)))
    if now:
        yield tuple(now)


def read(svg: str) -> Counter[Any]:
    """Everything that is drawn: look and places of every subpath, and every word with its place and turn."""
    tree = ElementTree.fromstring(svg)
    sheets = [one.text or "" for one in tree.iter() if local(one) == "style"]
    classes = dict(re.findall(r"#key-chart \.(\w+)\{([^}]*)\}", sheets[0]))
    outlines = {one.get("id"): one for one in tree.iter() if local(one) == "path" and one.get("id")}
    found: Counter[Any] = Counter()

    def look(one: ElementTree.Element, given: str) -> str:
        return f"{one.get('style', '')};{classes.get(one.get('class', ''), '')};{given}"

    def walk(parent: ElementTree.Element, given: str) -> None:
        for one in parent:
            said = look(one, given)
            if local(one) == "g":
                walk(one, said)
            elif local(one) == "text":
                key = one.text, *placed(one)
                found[key, tuple(sorted(declared(said).items()))] += 1
            elif local(one) in ("path", "use"):
                draw(one, said)

    def draw(one: ElementTree.Element, said: str) -> None:
        x = y = 0.0
        outline = one
        if local(one) == "use":
            outline = outlines[one.get("href", one.get(LINK, ""))[1:]]
            x, y = float(one.attrib["x"]), float(one.attrib["y"])
            said = f"{outline.get('style', '')};{said}"
        looks = declared(said)
        if looks.get("fill") == "none" and "stroke" not in looks:
            return
        for each in subpaths(outline.get("d", ""), x, y):
            if len(each) == 2 and each[1] != "Z":
                looks = {**looks, "fill": "none"}  # a single line has no inside
            found[each, tuple(sorted(looks.items()))] += 1

    walk(tree, "")
    return found


def placed(words: ElementTree.Element) -> tuple[float, float, str]:
    """Where words stand, and how they are turned."""
    turn = words.get("transform", "")
    moved = re.match(r"translate\((\S+) (\S+)\) ?", turn)
    x, y = moved.groups() if moved else (words.attrib["x"], words.attrib["y"])
    rest = turn[moved.end() :] if moved else turn
    return (
        round(float(x), 2),
        round(float(y), 2),
        "" if rest.startswith("rotate(-0 ") else rounded(rest),
    )


def test_everything_that_was_drawn_is_drawn_as_it_was() -> None:
    with style.pinned():
        whole = drawing(figure())
    thin = made_slim(whole)
    one, other = read(whole), read(thin)
    assert sum(one.values()) > 60
    near = {key: count for key, count in (one - other).items()}
    assert match(near, dict(other - one)) == []
    assert len(thin) < len(whole) / 2


def match(one: dict[Any, int], other: dict[Any, int]) -> list[Any]:
    """What has no partner with the same look and all places within three hundredths of a point."""
    left = []
    rest = list(other.items())
    for (shape, looks), count in one.items():
        same = [
            at
            for at, ((there, theirs), n) in enumerate(rest)
            if n == count and theirs == looks and close(shape, there)
        ]
        if same:
            rest.pop(same[0])
        else:
            left.append((shape, looks))
    return left + [key for key, _ in rest]


def close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) < 0.03
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(close, one, other))
    return bool(one == other)


def test_a_clip_stays_only_where_something_reaches_beyond_it() -> None:
    with style.pinned():
        thin = made_slim(drawing(figure()))
    assert thin.count("<clipPath") == 1 and thin.count('clip-path="') >= 1
    inside = Figure()
    inside.add_axes((0.2, 0.2, 0.7, 0.7)).plot([0, 1, 2], [0, 1, 0], marker="o")
    with style.pinned():
        assert "clip" not in made_slim(drawing(inside))


@pytest.mark.parametrize(
    "planted", ["<image/>", '<g transform="scale(2)"><path d="M 0 0 L 1 1"/></g>', '<path d="M 0 0 A 1 1"/>']
)  # fmt: skip
def test_what_is_not_known_is_an_error(planted: str) -> None:
    with style.pinned():
        told = drawing(figure()).replace("</svg>", f"{planted}</svg>")
    with pytest.raises(ValueError, match=r"unknown kind|none of M"):
        made_slim(told)


def test_words_are_escaped_and_whole() -> None:
    with style.pinned():
        thin = made_slim(drawing(figure()))
    assert "a &lt; b &amp; c</text>" in thin
    words = [one.text for one in ElementTree.fromstring(thin).iter() if local(one) == "text"]
    assert {"a < b & c", "two", "lines"} <= set(words)


PLACES = st.tuples(st.integers(-100_000, 100_000), st.integers(-100_000, 100_000))
LINES = st.tuples(st.just("L"), PLACES.map(lambda place: (place,)))
CURVES = st.tuples(st.just("C"), st.tuples(PLACES, PLACES, PLACES))


@given(PLACES, st.lists(LINES | CURVES, min_size=1, max_size=8), st.booleans(), PLACES)
def test_relative_steps_add_up_to_the_rounded_places(
    first: tuple[int, int], rest: list[Any], closed: bool, second: tuple[int, int]
) -> None:
    path: Path = (
        ("M", (first,)),
        *rest,
        *([("z", ())] if closed else []),
        ("M", (second,)),
        ("L", (first,)),
    )
    told = [part for each in subpaths(drawn(path), 0, 0) for part in each]
    assert [each[0] for each in told] == [letter.upper() for letter, _ in path]
    for each, (_, points) in zip(told, path, strict=True):
        assert tuple((round(100 * x), round(100 * y)) for x, y in each[1:]) == points


@given(st.integers(-10_000_000, 10_000_000))
def test_a_number_is_worth_its_hundredths(hundredths: int) -> None:
    told = number(hundredths)
    assert round(100 * float(told)) == hundredths
    assert told == "0" or not told.endswith(("0", ".")) or "." not in told


def test_a_path_is_read_moved_and_measured() -> None:
    path = parsed("M 1 2 \nL 3.456 2 \nC 1 1 2 2 3 3 \nz\n")
    assert path == (
        ("M", ((100, 200),)),
        ("L", ((346, 200),)),
        ("C", ((100, 100), (200, 200), (300, 300))),
        ("z", ()),
    )
    assert box(path) == (100, 100, 346, 300) and box(()) == (0, 0, 0, 0)
    assert shifted(path, (10, -20))[1] == ("L", ((356, 180),))
    assert drawn(path) == "M1 2h2.46c-2.46-1-1.46 0-.46 1z".replace("M", "m")
    assert not flat(path) and flat(parsed("M 0 0 L 1 1 M 2 2 L 3 3"))
