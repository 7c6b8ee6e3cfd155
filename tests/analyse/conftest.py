"""Lets the tests of this folder import the synthetic campaigns, and gives those of quality a folder to fill."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import World, build

SMALL = World(ladder=(128,), blocks=2, seeds=1)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of two arms without quality."""
    return build(tmp_path_factory.mktemp("bare"), SMALL)


@pytest.fixture
def folder(bare: Path, tmp_path: Path) -> Path:
    """Another that a test may fill: the header is all that quality needs of it."""
    made = tmp_path / "receipts" / bare.name
    made.mkdir(parents=True)
    (made / "campaign.json").write_bytes((bare / "campaign.json").read_bytes())
    return made
