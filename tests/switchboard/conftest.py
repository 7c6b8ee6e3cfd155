"""Real servers over real HTTP: started once for each set of flags, stopped at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
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
