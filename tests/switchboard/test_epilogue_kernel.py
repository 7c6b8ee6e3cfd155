"""The kernel's source, compiled for the CPU in both languages, gives what MLX's own rotation gives."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import emulated
import mlx.core as mx
import numpy as np
import pytest

from switchboard.epilogue.kernel import BUFFERS, FORMS, Geometry, Language, literal, log2, source

GIVEN = {"queries": 4, "keys": 2, "size": 8, "traditional": False, "base": 1e4, "scale": 1.0}
PLAIN = {**GIVEN, "buffers": (0, 0, 0), "biased": False, "into_cache": False}
CAPACITY = 40
CASES = [
    ("cuda" if number % 2 else "metal", number % 3 == 0, buffers, *flags)
    for number, (buffers, *flags) in enumerate(product(BUFFERS, *([(True, False)] * 3)))
]


def chain(
    parts: list[np.ndarray], geometry: Geometry, offset: int, freqs: np.ndarray | None
) -> list[np.ndarray]:
    """What MLX makes of q, k and v; each (1, heads, rows, size)."""
    rows = parts[0].shape[1]
    heads = [
        mx.array(part.reshape(1, rows, -1, geometry.size)).transpose(0, 2, 1, 3) for part in parts
    ]
    turned = [
        mx.fast.rope(
            one, geometry.size, traditional=geometry.traditional, base=geometry.base,
            scale=geometry.scale, offset=offset, freqs=None if freqs is None else mx.array(freqs),
        )
        for one in heads[:2]
    ]  # fmt: skip
    return [np.array(one) for one in (*turned, heads[2])]


def pick(
    all_three: list[np.ndarray], buffers: tuple[int, int, int], wanted: int
) -> list[np.ndarray]:
    """Those of q, k and v that lie in one buffer."""
    return [one for one, buffer in zip(all_three, buffers, strict=True) if buffer == wanted]


@pytest.mark.skipif(emulated.compiler() is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(
    ("words", "given", "buffers", "biased", "into_cache", "traditional"), CASES
)
def test_the_source_computes_the_chain(
    words: Language,
    given: bool,
    buffers: tuple[int, int, int],
    biased: bool,
    into_cache: bool,
    traditional: bool,
    tmp_path: Path,
) -> None:
    chance = np.random.default_rng(3)
    geometry = Geometry(
        4, 2, 8, traditional, None if given else 1e4, 1.0 if given else 0.5, buffers, biased, into_cache,
        form=list(FORMS)[len(words) % len(FORMS)],
    )  # fmt: skip
    rows, offset = 3, 29
    draw = lambda *shape: chance.normal(size=shape).astype(np.float32)  # noqa: E731
    parts = [draw(1, rows, 32), draw(1, rows, 16), draw(1, rows, 16)]
    biases = [draw(32), draw(16), draw(16)]
    freqs = np.abs(draw(4)) + 1 if given else None
    arrays = {
        **{f"part{b}": np.concatenate(pick(parts, buffers, b), axis=-1) for b in set(buffers)},
        **{f"bias{b}": np.concatenate(pick(biases, buffers, b)) for b in set(buffers)},
        "place": np.array([offset, rows, CAPACITY], np.int32),
        "freqs": freqs,
        "keys": draw(1, 2, CAPACITY, 8),
        "values": draw(1, 2, CAPACITY, 8),
    }
    before = [arrays[name].copy() for name in ("keys", "values")]
    made = emulated.compiled(geometry, words, rows, arrays, tmp_path)
    if biased:
        parts = [part + bias for part, bias in zip(parts, biases, strict=True)]
    q, k, v = chain(parts, geometry, offset, freqs)
    np.testing.assert_allclose(made[0], q, atol=2e-5)
    here = slice(offset, offset + rows)
    if into_cache:
        for old, new, wanted in zip(
            before, (arrays["keys"], arrays["values"]), (k, v), strict=True
        ):
            np.testing.assert_allclose(new[:, :, here], wanted, atol=2e-5)
            old[:, :, here] = new[:, :, here]
            np.testing.assert_array_equal(new, old, "no row but the new ones may change")
    else:
        np.testing.assert_allclose(made[1], k, atol=2e-5)
        np.testing.assert_array_equal(made[2], v)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"size": 7}, "head size 7"),
        ({"size": 0}, "head size 0"),
        ({"queries": 3}, "3 query heads do not share 2 key heads"),
        ({"keys": 0}, "do not share 0"),
        ({"form": "fast"}, "form fast"),
        ({"buffers": (1, 0, 0)}, "buffers .1, 0, 0."),
        ({"base": -1.0}, "base -1.0"),
    ],
)
def test_a_geometry_that_cannot_be_is_an_error(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Geometry(**{**PLAIN, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [1.0, 0.5, 1e-9, 13.287712097167969, 1e30, 19.931568])
def test_a_literal_reads_back_as_the_same_number(number: float) -> None:
    text = literal(number)
    assert text.endswith("f") and ("." in text or "e" in text)
    assert np.float32(text[:-1]) == np.float32(number)


def test_log2_is_the_c_librarys() -> None:
    for base in (1e4, 1e5, 5e5, 1e6, 8e6):
        assert abs(log2(base) - np.log2(base)) <= np.spacing(np.float32(np.log2(base)))


def test_the_languages_differ_in_words_only() -> None:
    geometry = Geometry(**{**PLAIN, "into_cache": True})  # type: ignore[arg-type]
    cuda, metal = source(geometry, "cuda"), source(geometry, "metal")
    assert "device" not in cuda and "metal" not in cuda
    for old, new in (
        ("metal::fast::", ""),
        ("metal::", ""),
        ("device ", ""),
        ("thread_position_in_grid.x", "blockIdx.x * blockDim.x + threadIdx.x"),
    ):
        metal = metal.replace(old, new)
    assert metal == cuda
