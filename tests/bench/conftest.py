"""A byte server and a client on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from byte_server import ByteServer

from battery.bench.client import Client


@pytest.fixture
def server() -> Iterator[ByteServer]:
    one = ByteServer()
    yield one
    one.close()


@pytest.fixture
def client(server: ByteServer) -> Iterator[Client]:
    with Client(server.url, timeout_s=5) as one:
        yield one
