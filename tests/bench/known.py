"""Every test of this tree by name: what an index of cases may refer to."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def known_tests() -> set[str]:
    """Names such as `bench/test_sse.py::test_a_huge_event_over_many_reads`."""
    return {
        f"{path.relative_to(TESTS)}::{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
