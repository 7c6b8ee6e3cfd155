"""The house rules that a machine can check: sizes, names, floors, and that everything that is added by a file loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from battery.bench.backends import known_backends, load_backend
from battery.cli.options import app
from battery.ledger.arm import known_arms, load_arm
from battery.ledger.plan import known_plans, load_plan

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "battery").rglob("*.py"), *(ROOT / "switchboard").rglob("*.py")])
VAGUE = {"utils", "util", "common", "base", "helpers", "helper", "manager", "misc"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_small_named_and_documented(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400, "look for the second job in it"
    assert path.stem not in VAGUE
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "say what the reader gets"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno <= 50, node.name
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, "a bare except hides what it does not expect"


def test_tests_and_benchmarks_are_small_too() -> None:
    long = {
        path.name: count
        for folder in ("tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if (count := path.read_text().count("\n")) > 400
    }
    assert not long


def test_no_two_modules_of_the_tests_have_one_name() -> None:
    """They import each other by it, from any folder: the second would be the first."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if "fixtures" not in path.parts]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= {"conftest.py", "__init__.py"}


def test_every_arm_and_plan_loads_and_every_backend_is_one() -> None:
    for name in known_arms(ROOT / "arms"):
        arm = load_arm(name, ROOT / "arms")
        assert arm.why and load_backend(arm.backend).command(arm, "127.0.0.1", 1)
    for name in known_plans(ROOT / "plans"):
        assert load_plan(name, ROOT / "plans").why
    assert known_backends()


def test_the_floors_hold() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_measuring_does_not_load_the_engine_nor_reporting_the_bench() -> None:
    for module, banned in (
        ("battery.bench.run", ("mlx", "switchboard")),
        ("battery.render.report", ("battery.bench",)),
    ):
        code = f"import sys, {module}; print([m for m in sys.modules if m.startswith({banned!r})])"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]", done.stdout


def test_committed_text_names_no_machine_path_or_package_host() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: which files are committed cannot be told")
    banned = (
        "/root" + "/",
        "/home" + "/",
        "pypi" + ".org",
        "files.python" + "hosted",
        "/work" + "/",
    )
    patterns = {"battery/ledger/scrub.py", "tests/ledger/test_scrub.py"}  # they look for such paths
    for name in set(listed.stdout.splitlines()) - patterns:
        path = ROOT / name
        if path.suffix in {".gz", ".png"} or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        assert not [word for word in banned if word in text], name
        assert not _half_merged(text), f"{name}: the marks of a merge were left in it"


def _half_merged(text: str) -> bool:
    """Whether both marks that a merge leaves around a conflict begin lines of this text."""
    return all(re.search(f"^{mark * 7} ", text, re.MULTILINE) for mark in "<>")


def test_every_verb_has_a_target_of_its_name_and_an_example() -> None:
    """As README says; `make check` was the checks of the code before `battery check` was."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {
        name
        for line in re.findall(r"^([a-z -]+):", makefile, re.MULTILINE)
        for name in line.split()
    }
    verbs = {
        one.name or one.callback.__name__: one for one in app.registered_commands if one.callback
    }
    assert (
        {"run", "verify", "pr"} <= set(verbs)
        and verbs.keys() - {"check"} <= targets
        and "bars" in targets
    )
    assert all("Example" in (one.epilog or "") for one in verbs.values())


def test_the_marks_of_a_merge_are_seen() -> None:
    assert _half_merged("a\n" + "<" * 7 + " HEAD\nb\n" + "=" * 7 + "\nc\n" + ">" * 7 + " other\n")
    assert not _half_merged("a table\n=======\n>>> prompt\n")
