"""What a server does with bodies that nobody should send: one line that names the field, and never a 500."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from served import Engine
from starlette.testclient import TestClient
from test_endings import wait_for

from switchboard import server, wire
from switchboard.errors import RequestError
from switchboard.text import Text, bytes_only

TINY = ("--model", "synthetic:tiny-llama")
Start = Callable[..., Engine]
DEEP = b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
TURN = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": "a", "max_tokens": "ten"}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "temperature": True}, "temperature"),
        ({"prompt": "a", "top_k": 10**30}, "top_k"),
        ({"prompt": "a", "min_tokens": 10**30}, "min_tokens"),
        ({"prompt": "a", "seed": -1}, "seed"),
        ({"prompt": "a", "stop": ""}, "stop"),
        ({"prompt": "a", "stop": ["b", ""]}, "stop"),
        ({"prompt": "a", "logit_bias": {"²": 1}}, "logit_bias"),
        ({"prompt": "a", "logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        ({"prompt": "a", "logit_bias": {"9999": 1}}, "logit_bias"),
        ({"prompt": "a", "logit_bias": {"1": 1e30}}, "logit_bias"),
        ({"prompt": "a", "stream_options": {"usage": True}}, "stream_options"),
        ({"prompt": "a", "n": True}, "n"),
        ({"prompt": "a", "model": "other"}, "model"),
        ({"prompt": "a" * 2048}, "prompt"),
        ({"prompt": [1, 600]}, "prompt"),
        ({"prompt": [1, -1]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{**TURN, "colour": 1}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "messages"),
        ({"messages": [TURN], "frequency_penalty": False}, "frequency_penalty"),
    ],
)
def test_a_refusal_names_the_field(shared: Start, body: dict[str, Any], field: str) -> None:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    reply = shared(*TINY).post(path, **body)
    told = reply.json()["error"]
    assert reply.status_code in (400, 404), told
    assert told["param"] == field
    assert field in told["message"]


@pytest.mark.parametrize(
    "raw",
    [DEEP, b"", b"[]", b"nul", b'{"prompt": "\\ud800"}', b'{"prompt": "\xff"}', b'{"prompt": NaN}'],
    ids=["deep", "empty", "list", "cut", "half a pair", "no utf-8", "NaN"],
)
def test_what_is_no_json_object_is_told(shared: Start, raw: bytes) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize"):
        reply = httpx.post(shared(*TINY).url + path, content=raw, timeout=60)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")


def test_a_number_out_of_range_names_its_field() -> None:
    for shape in (wire.ChatBody, wire.CompletionBody):
        with pytest.raises(RequestError, match="temperature"):
            wire.read(b'{"prompt": "a", "messages": [], "temperature": 1e400}', shape)


class Broken(server.Api):
    """Endpoints without a model behind them."""

    def __init__(self) -> None:
        self.responses = Counter[int]()

    def describe(self, ways: Any, key: bool) -> None:
        pass

    async def health(self, request: Any) -> Any:
        raise KeyError("lost")


def test_a_body_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_LIMIT", 1000)
    client = TestClient(server.application(Broken(), None))
    reply = client.post("/tokenize", content=b"x" * 1001)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")


def test_a_fault_of_ours_is_told_as_json() -> None:
    client = TestClient(server.application(Broken(), None), raise_server_exceptions=False)
    reply = client.get("/health")
    assert reply.status_code == 500
    assert reply.json()["error"] == {
        "message": "KeyError: 'lost'",
        "type": "server_error",
        "param": None,
        "code": "server_error",
    }


def test_a_wrong_method_is_told_the_right_one(shared: Start) -> None:
    reply = httpx.get(shared(*TINY).url + "/v1/completions")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[1]['content'] + 'x' }}",
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0]['content'] + 1 }}",
    ],
)
def test_a_conversation_that_the_template_cannot_take_is_a_wrong_request(template: str) -> None:
    side = bytes_only(512)
    text = Text(side.encode, side.token_bytes, side.eos, template, side.vocabulary)
    body, _ = wire.read(json.dumps({"messages": [TURN]}).encode(), wire.ChatBody)
    with pytest.raises(RequestError) as told:
        wire.order(body, [], text, 2048)
    assert (told.value.status, told.value.param) == (400, "messages")
    assert told.value.code == "chat_template"


def test_the_name_of_a_turn_reaches_the_template() -> None:
    side = bytes_only(512)
    text = Text(side.encode, side.token_bytes, side.eos, "{{ messages[0].name }}", side.vocabulary)
    raw = json.dumps({"messages": [{**TURN, "name": "ann", "refusal": None}]}).encode()
    order = wire.order(wire.read(raw, wire.ChatBody)[0], [], text, 2048)
    assert bytes(order.prompt) == b"ann"


def test_numbers_beyond_float32_mean_what_is_nearest() -> None:
    raw = b'{"prompt": "a", "temperature": 1e-30, "top_p": 1e-50}'
    order = wire.order(wire.read(raw, wire.CompletionBody)[0], [], bytes_only(512), 2048)
    assert order.sampling.temperature == 0.0
    assert order.sampling.top_p == wire.NARROWEST


def test_a_tiny_top_p_keeps_the_most_likely_token(shared: Start) -> None:
    """Below the resolution of float32 nothing was kept, and token 0 came out."""
    engine = shared(*TINY)
    greedy, narrow = (
        engine.complete("abc", max_tokens=8, ignore_eos=True, **more)["choices"][0]["token_ids"]
        for more in ({"temperature": 0}, {"temperature": 1, "top_p": 1e-50})
    )
    assert narrow == greedy


def test_both_limits_hold(shared: Start) -> None:
    reply = shared(*TINY).complete("a", max_tokens=9, max_completion_tokens=3, ignore_eos=True)
    assert reply["usage"]["completion_tokens"] == reply["sampler"]["max_tokens"] == 3


def test_a_whole_number_may_be_written_with_a_point(shared: Start) -> None:
    raw = b'{"prompt": [97.0, 98], "max_tokens": 3.0, "temperature": 0, "ignore_eos": true}'
    reply = httpx.post(f"{shared(*TINY).url}/v1/completions", content=raw).json()
    assert reply["usage"] == {**reply["usage"], "prompt_tokens": 2, "completion_tokens": 3}
    for wrong in (b"2.5", b"1e400", b"-1.0", b"1e30"):
        with pytest.raises(RequestError) as told:
            wire.read(b'{"prompt": "a", "max_tokens": ' + wrong + b"}", wire.CompletionBody)
        assert told.value.param == "max_tokens"


def test_a_client_that_leaves_while_it_sends_is_no_fault_of_ours(start: Start) -> None:
    engine = start(*TINY)
    with socket.create_connection(("127.0.0.1", engine.port)) as half:
        half.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")

    def counted() -> str:
        return httpx.get(f"{engine.url}/metrics").text

    assert wait_for(lambda: 'http_responses_total{code="499"} 1' in counted())
    assert 'code="500"' not in counted()
