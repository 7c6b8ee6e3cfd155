"""A byte server, a client on it, and the verb that looks at any server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from byte_server import ByteServer

from battery.bench.client import Client
from battery.cli import main


@pytest.fixture
def server() -> Iterator[ByteServer]:
    one = ByteServer()
    yield one
    one.close()


@pytest.fixture
def client(server: ByteServer) -> Iterator[Client]:
    with Client(server.url, timeout_s=5) as one:
        yield one


KEYS = {
    "outcome", "reason", "finish_reason", "text", "reasoning", "usage", "token_count_source", "cold", "metrics",
    "token_events", "evidence",
}  # fmt: skip


@pytest.fixture
def probed(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Call the verb with --json; its exit code and the one object on standard output."""

    def call(url: str, *words: str) -> tuple[int, dict[str, Any]]:
        with pytest.raises(SystemExit) as ended:
            main(["probe", url, "--json", *words])
        told = capsys.readouterr()
        assert told.out.count("\n") == 1 and told.err == ""
        seen = json.loads(told.out)
        assert set(seen) == KEYS
        assert set(seen["usage"]) == {"prompt_tokens", "completion_tokens", "cached_tokens"}
        assert set(seen["metrics"]) == {"ttft_s", "decode_tok_s", "tpot_s", "e2e_s"}
        assert (seen["reason"] is None) == (seen["outcome"] == "ok")
        assert all(value is None or value > 0 for value in seen["metrics"].values())
        return int(ended.value.code or 0), seen

    return call
