"""The server against its own document: bodies that it allows and bodies that it does not, by the hundred."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks
from served import Engine
from test_server import ALL, TINY

from switchboard import openapi, wire

Start = Callable[..., Engine]
FORM = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
PATIENCE_S = 30.0
BODIES = ("/tokenize", "/v1/chat/completions", "/v1/completions")


def document(engine: Engine, mode: GenerationMode, stream: bool | None = None) -> dict[str, Any]:
    """The server's document; where its bodies will be served, with answers of a few tokens only, and as told."""
    told: dict[str, Any] = httpx.get(f"{engine.url}/openapi.json").json()
    if mode is GenerationMode.NEGATIVE:
        return told
    for name in ("ChatBody", "CompletionBody"):
        schema = told["components"]["schemas"][name]
        schema["properties"]["max_tokens"] = {"type": "integer", "minimum": 1, "maximum": 4}
        schema["required"] = [*schema.get("required", []), "max_tokens"]
        if stream is not None:
            schema["properties"]["stream"] = {"const": stream}
            schema["required"] += ["stream"]
    return told


def fuzz(engine: Engine, told: dict[str, Any], path: str, mode: GenerationMode, count: int) -> None:
    """Send `count` bodies of one kind to one route; AssertionError for what no server may answer."""
    schema = schemathesis.openapi.from_dict(told)
    operation = schema[path]["POST" if path in BODIES else "GET"]
    extra = [checks.negative_data_rejection] if mode is GenerationMode.NEGATIVE else []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        response = case.call(base_url=engine.url, timeout=PATIENCE_S)
        assert response.status_code < 500, response.text
        case.validate_response(response, checks=[*FORM, *extra])
        if path in BODIES and mode is GenerationMode.POSITIVE and response.status_code != 200:
            error = response.json()["error"]
            assert error["code"] in openapi.CONTENT, (error, case.body)

    send()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("path", BODIES)
def test_what_the_document_allows_is_served_and_the_rest_refused(
    shared: Start, path: str, mode: GenerationMode
) -> None:
    engine = shared(*ALL)
    fuzz(engine, document(engine, mode), path, mode, 30)
    assert engine.complete("abc", max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("path", BODIES[1:])
def test_a_stream_is_of_the_events_that_are_told(shared: Start, path: str) -> None:
    """Which bodies are thought of depends on more than this file; a stream is among them always."""
    engine = shared(*ALL)
    fuzz(engine, document(engine, GenerationMode.POSITIVE, True), path, GenerationMode.POSITIVE, 10)


@pytest.mark.parametrize(
    "path", ["/health", "/metrics", "/openapi.json", "/v1/models", "/v1/models/{model}"]
)
def test_the_other_answers_have_the_form_that_is_told(shared: Start, path: str) -> None:
    mode = GenerationMode.POSITIVE
    fuzz(shared(*ALL), document(shared(*ALL), mode), path, mode, 1)


@pytest.mark.parametrize(
    ("mode", "plant"),
    [
        (GenerationMode.POSITIVE, {"temperature": {"type": "number", "maximum": -1}}),
        (GenerationMode.NEGATIVE, {"temperature": {"type": "number", "minimum": 1e6}}),
    ],
    ids=["allows too much", "allows too little"],
)
def test_a_document_that_says_something_else_is_found(
    shared: Start, mode: GenerationMode, plant: dict[str, Any]
) -> None:
    told = document(shared(*ALL), mode)
    schema = told["components"]["schemas"]["CompletionBody"]
    schema["properties"].update(plant)
    schema["required"] += list(plant)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        fuzz(shared(*ALL), told, "/v1/completions", mode, 40)


def test_every_route_is_told_and_every_field_that_is_read(shared: Start) -> None:
    told = httpx.get(f"{shared(*TINY).url}/openapi.json").json()
    for name, shape in (("ChatBody", wire.ChatBody), ("CompletionBody", wire.CompletionBody)):
        fields = set(shape.__struct_fields__) | set(wire.NEUTRAL) | wire.IGNORED
        assert set(told["components"]["schemas"][name]["properties"]) == fields
    assert "Message" in told["components"]["schemas"]
    for path, ways in told["paths"].items():
        for method, way in ways.items():
            assert way["summary"], path
            place = path.format(model="synthetic:tiny-llama")
            reply = httpx.request(method, shared(*TINY).url + place)
            assert reply.status_code == (400 if "requestBody" in way else 200), path


def test_a_key_stands_in_the_document(start: Start) -> None:
    engine = start(*TINY, "--api-key-env", "SB_KEY", env={"SB_KEY": "secret"}, key="secret")
    assert httpx.get(f"{engine.url}/openapi.json").status_code == 401
    for scheme in ("Bearer", "bearer"):
        told = httpx.get(
            f"{engine.url}/openapi.json", headers={"Authorization": f"{scheme} secret"}
        ).json()
        assert told["security"] == [{"key": []}]
        assert told["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
        assert all(
            "401" in way["responses"] for ways in told["paths"].values() for way in ways.values()
        )
