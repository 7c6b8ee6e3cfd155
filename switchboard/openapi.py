"""The API as an OpenAPI 3.1 document, made from the types that requests are read with.

What the types cannot say is added here from the tables that `wire` reads by: fields with one permitted value, fields
without effect, the one model and its vocabulary, and the pairs of fields that go together. A body that the document
allows can then be refused for the codes in CONTENT only, which hang on the text and not on its form; a body that it
does not allow is always refused.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from switchboard import __version__, wire

JSON, EVENTS = "application/json", "text/event-stream"
CONTENT = (
    "chat_template",
    "context_length_exceeded",
    "empty_prompt",
    "fields_disagree",
    "not_in_vocabulary",
)
"""Codes of refusals that no schema could tell in advance."""
TEXT_PART = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "additionalProperties": False,
}
COUNT = {"type": "integer", "minimum": 0}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "minLength": 1},
                "type": {"enum": ["invalid_request_error", "server_error"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
ANSWER = {
    "type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage", "timings", "sampler"],
    "properties": {
        "choices": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "object"}},
        "usage": {
            "type": "object",
            "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
            "properties": {
                "prompt_tokens": {"type": "integer", "minimum": 1},
                "completion_tokens": COUNT,
                "total_tokens": {"type": "integer", "minimum": 1},
            },
        },
    },
}


@dataclass(frozen=True)
class Way:
    """One route: all that the server and the document need to know of it."""

    method: str
    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    body: type[msgspec.Struct] | None = None
    media: tuple[str, ...] = (JSON,)


def document(ways: Sequence[Way], model: str, vocabulary: int, key: bool) -> dict[str, Any]:
    """The document for these routes over one model; with a key, every one of them needs it."""
    paths: dict[str, Any] = {}
    for way in ways:
        paths.setdefault(way.path.replace(":path}", "}"), {})[way.method.lower()] = _operation(
            way, key
        )
    shapes = [way.body for way in ways if way.body is not None]
    told: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "switchboard", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**_schemas(shapes, model, vocabulary), "Error": ERROR}},
    }
    if key:
        told["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        told["security"] = [{"key": []}]
    return told


def _operation(way: Way, key: bool) -> dict[str, Any]:
    good: dict[str, Any] = {"type": "object"} if way.media == (JSON,) else {"type": "string"}
    if EVENTS in way.media:
        good = ANSWER
    forms = {JSON: good, EVENTS: EVENT}
    content = {one: {"schema": forms.get(one, {"type": "string"})} for one in way.media}
    wrong = [*([400, 404, 413, 500, 507] if way.body else []), *([401] if key else [])]
    named = re.findall(r"{(\w+)", way.path)
    wrong += [404] if named else []
    refused = {"content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    told: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", way.method.lower() + way.path).strip("_"),
        "summary": (inspect.getdoc(way.endpoint) or "").partition("\n")[0],
        "responses": {
            "200": {"description": "The answer.", "content": content},
            **{str(code): {"description": "Why not.", **refused} for code in wrong},
        },
    }
    if named:
        text = {"in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        told["parameters"] = [{"name": name, **text} for name in named]
    if way.body is not None:
        shape = {"$ref": f"#/components/schemas/{way.body.__name__}"}
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": shape}}}
    return told


EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
"""One event: what a schema of a stream is of, in OpenAPI before 3.2."""


def _schemas(shapes: list[type[msgspec.Struct]], model: str, vocabulary: int) -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    for shape in shapes:
        schema = schemas[shape.__name__]
        properties = schema["properties"]
        properties["model"] = {"enum": [model, None]}
        for name, values in wire.NEUTRAL.items():
            properties.setdefault(name, {"enum": list(values)})
        for name in wire.IGNORED:
            properties.setdefault(name, {"description": "Has no effect here."})
        for one in properties.values():
            _bound_ids(one, vocabulary)
        schema["additionalProperties"] = False
        schema.update(TOGETHER.get(shape, {}))
    for variant in schemas["Message"]["properties"]["content"]["anyOf"]:
        if variant["type"] == "array":
            variant["items"] = TEXT_PART
    return dict(schemas)


TOGETHER: dict[type[msgspec.Struct], dict[str, Any]] = {
    wire.TokenizeBody: {"oneOf": [{"required": ["messages"]}, {"required": ["prompt"]}]},
    wire.ChatBody: {
        "anyOf": [
            {"properties": {"top_logprobs": {"type": "null"}}},
            {"properties": {"logprobs": {"const": True}}, "required": ["logprobs"]},
        ]
    },
}
"""Rules over several fields, by the body that they are for."""


def _bound_ids(schema: dict[str, Any], vocabulary: int) -> None:
    """A list of whole numbers in a body is a list of token ids."""
    for variant in [schema, *schema.get("anyOf", [])]:
        items = variant.get("items", {})
        if items.get("type") == "integer":
            items["maximum"] = vocabulary - 1
