"""Lets the tests of this folder import the synthetic campaigns of tests/analyse, and gives them published ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "analyse"))

from synthetic import World, build

from battery.analyse.findings import analyse
from battery.render.charts import render_charts
from battery.render.report import write_report

PUBLISHED = ("calm", "brisk")


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two finished and reported campaigns, `calm` and `brisk`; to be copied before it is spoilt."""
    root = tmp_path_factory.mktemp("published")
    for name, seed in zip(PUBLISHED, (1, 2), strict=True):
        found = analyse(build(root, World(effect={"C": 1.05}, random_seed=seed, seeds=1), name))
        render_charts(found, root / "charts" / name)
        write_report(found, root / "reports")
    return root
