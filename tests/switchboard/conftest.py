"""Real servers over real HTTP: started once for each set of flags, stopped at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import published
import pytest
import taught
from served import Engine, close, launch


@pytest.fixture
def start() -> Iterator[Callable[..., Engine]]:
    """Start servers that end with the test."""
    running: list[Engine] = []

    def begin(*flags: str, env: dict[str, str] | None = None, key: str = "") -> Engine:
        running.append(launch(*flags, env=env, key=key))
        return running[-1]

    yield begin
    for engine in running:
        close(engine)


@pytest.fixture(scope="session")
def shared() -> Iterator[Callable[..., Engine]]:
    """Servers that many tests ask; one for each set of flags."""
    running: dict[tuple[str, ...], Engine] = {}

    def begin(*flags: str) -> Engine:
        if flags not in running:
            running[flags] = launch(*flags)
        return running[flags]

    yield begin
    for engine in running.values():
        close(engine)


@pytest.fixture(scope="session")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Checkpoints of tiny models with random multi-token heads, each written once; their names."""

    @cache
    def written(family: str, kind: str = "none", raw: bool = False) -> str:
        place = tmp_path_factory.mktemp(family)
        published.with_heads(place, family, kind, raw=raw)
        return f"path:{place}"

    return written


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Models that count, with heads that know it, written once each; their names."""

    @cache
    def written(
        way: str = "hidden state", noise: float = 0.0, alive: float = 0.0, raw: bool = False
    ) -> str:
        place = tmp_path_factory.mktemp("counting")
        published.write(place, *taught.counting(way, noise, alive), raw=raw)
        return f"path:{place}"

    return written
