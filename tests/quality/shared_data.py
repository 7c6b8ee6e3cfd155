"""Where data that is not committed lies: beside the checkout, or where BATTERY_SHARED says."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("BATTERY_SHARED") or Path(__file__).parents[3] / "shared")


def shared_file(name: str) -> Path:
    """A file of that folder; the test that asks is skipped where it is absent."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"{name} is not beside this checkout (BATTERY_SHARED names its folder)")
    return path


def shared_rows(name: str) -> list[dict[str, Any]]:
    """The objects of a JSON array or of JSON lines, compressed or not."""
    path = shared_file(name)
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if path.suffix == ".json":
        return list(json.loads(raw))
    return [json.loads(line) for line in raw.splitlines() if line.strip()]
