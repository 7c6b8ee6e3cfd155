"""The grader's version follows all of its source: what runs inside, what extracts, and every byte of each file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from planted import TIGHT, adding

import battery
from battery.quality import jobs
from battery.quality.sandbox.pool import Sandbox

PACKAGE = Path(battery.__file__).parent


def modules() -> set[str]:
    """Names of the modules that the version digests."""
    found = set()
    for path in jobs.sources():
        parts = ("battery", *path.relative_to(PACKAGE).with_suffix("").parts)
        found.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


LOADED = """
import sys
def add(x, y):
    return [name for name in sys.modules if name.split('.')[0] == 'battery']
"""


def test_all_that_is_loaded_where_programs_run_is_in_the_version() -> None:
    known = modules()
    checks = [
        f"assert not set(candidate(2, 3)) - set({sorted(known)!r})",
        "assert 'battery.quality.sandbox.inside.judge' in candidate(2, 3)",
    ]
    lacking = f"assert not set(candidate(2, 3)) - set({sorted(known - {'battery.quality.sandbox.inside.wire'})!r})"
    with Sandbox(1) as sandbox:
        tests = [f"def check(candidate):\n    {check}\n" for check in (*checks, lacking)]
        asked = [adding(LOADED, TIGHT, test, str(place)) for place, test in enumerate(tests)]
        found = {job.id: one.status for job, one in sandbox.run(asked)}
    assert found == {"0": "passed", "1": "passed", "2": "failed"}


def test_all_that_extraction_loads_is_in_the_version() -> None:
    code = (
        "import json, sys, battery.quality.extract\n"
        "print(json.dumps([name for name in sys.modules if name.split('.')[0] == 'battery']))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(told.stdout))
    assert "battery.quality.extract.choosing" in loaded and loaded <= modules()


def test_a_byte_of_any_source_is_another_grader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "battery"
    for path in jobs.sources():
        there = copy / path.relative_to(PACKAGE)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    versions = {jobs.grader_version()}
    monkeypatch.setattr(battery, "__file__", str(copy / "__init__.py"))
    version = jobs.grader_version.__wrapped__
    assert {version()} == versions
    for path in jobs.sources():
        with path.open("a") as file:
            file.write("#")
        versions.add(version())
    assert len(versions) == 1 + len(jobs.sources())
    (copy / "quality" / "sandbox" / "inside" / "later.py").write_text("")
    assert version() not in versions
