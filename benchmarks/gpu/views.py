"""Whether parts of a joined product are read rightly on this device: every case of the views' tests, run and counted.

python -m benchmarks.gpu.views --out views.json
"""

from __future__ import annotations

import argparse
import importlib
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.gpu.sheet import Sheet

TESTS = (
    "test_rope_reads_split_views_as_it_reads_copies",
    "test_the_parts_are_views_and_evaluating_them_first_changes_nothing",
    "test_the_whole_way_over_a_filled_cache",
)


def cases(test: Any) -> list[dict[str, Any]]:
    """The arguments of every case of a parametrised test."""
    axes = [(mark.args[0], list(mark.args[1])) for mark in test.pytestmark]
    names = [name for name, _ in axes]
    return [dict(zip(names, values, strict=True)) for values in product(*(one for _, one in axes))]


def ask(test: Any) -> dict[str, Any]:
    """How many cases of one test held, and those that did not."""
    wrong: dict[str, str] = {}
    all_of_them = cases(test)
    for given in all_of_them:
        try:
            test(**given)
        except AssertionError as error:
            wrong[str(given)] = f"differs: {error}"[:300]
        except Exception as error:
            wrong[str(given)] = f"{type(error).__name__}: {error}"[:300]
    return {"held": len(all_of_them) - len(wrong), "cases": len(all_of_them), "wrong": wrong}


def main() -> None:
    """Every test in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    sheet = Sheet(parser.parse_args().out, TESTS, device=str(mx.default_device()))
    for name in TESTS:

        def run(name: str = name) -> dict[str, Any]:
            module = importlib.import_module("tests.switchboard.test_views")
            return ask(getattr(module, name))

        sheet.take(name, run)


if __name__ == "__main__":
    main()
