"""Routes, and nothing else: bodies in, orders to the worker, pieces out as they come."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from switchboard import memory, metrics, openapi, wire
from switchboard.errors import RequestError
from switchboard.health import Health
from switchboard.metrics import Responses
from switchboard.openapi import Way
from switchboard.replies import Reply, error_body
from switchboard.text import Piece, joined
from switchboard.worker import Failure, Finish, Job, Worker

BODY_LIMIT = 8 << 20
"""Bytes of a request's body; a prompt of 260,000 tokens needs about 2 MiB."""

GONE = 499
"""What proxies log for a client that left; it reads nothing."""


def answer(document: Any, status: int = 200) -> Response:
    """A JSON response."""
    return Response(msgspec.json.encode(document), status, media_type="application/json")


async def body_of(request: Request) -> bytes:
    """The whole body, or an error as soon as it is larger than anything that could be meant."""
    parts, size = list[bytes](), 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_LIMIT:
            told = f"the body is larger than {BODY_LIMIT} bytes: send less"
            raise RequestError(told, "body_too_large", 413)
        parts.append(part)
    return b"".join(parts)


class Api:
    """The endpoints over one worker."""

    def __init__(self, worker: Worker, health: Health, model: str) -> None:
        self._worker = worker
        self._health = health
        self._model = model
        self._loaded = worker.session().loaded
        self._created = int(time.time())
        self.responses = Counter[int]()

    async def health(self, request: Request) -> Response:
        """What is loaded and what runs."""
        return answer(self._health.document())

    async def metrics(self, request: Request) -> Response:
        """The main of it as figures, for a monitoring system; caches and most counters stand in /health only."""
        told = self._health.metrics(self.responses)
        return Response(told, media_type=metrics.CONTENT_TYPE)

    def describe(self, ways: list[Way], key: bool) -> None:
        """Take the routes that there are, for the document at /openapi.json."""
        vocabulary = self._loaded.text.vocabulary
        self._document = openapi.document(ways, self._model, vocabulary, key)

    async def described(self, request: Request) -> Response:
        """What the API takes and gives, in the form of OpenAPI."""
        return answer(self._document)

    async def models(self, request: Request) -> Response:
        """The one model there is."""
        return answer({"object": "list", "data": [self._entry()]})

    async def model(self, request: Request) -> Response:
        """The entry of a model by its name."""
        self._known(request.path_params["model"])
        return answer(self._entry())

    def _entry(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": self._model, "object": "model", "owned_by": "switchboard"}
        return {**entry, "created": self._created, "context": self._loaded.context}

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a prompt as the completion endpoints would take it."""
        body, _ = wire.read(await body_of(request), wire.TokenizeBody)
        self._known(body.model)
        ids = wire.tokenized(body, self._loaded.text)
        return answer({"count": len(ids), "tokens": ids})

    async def reset_peak(self, request: Request) -> Response:
        """Start the peak of memory anew; the reply tells the old one."""
        return answer({"peak_before": memory.reset_peak()})

    async def clear_cache(self, request: Request) -> Response:
        """Forget every prompt, the prewarmed one too; the reply tells how much that was."""
        pool = self._worker.session().pool
        return answer({"slots": 0, "bytes": 0} if pool is None else pool.clear())

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        return await self._complete(request, wire.ChatBody)

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        return await self._complete(request, wire.CompletionBody)

    async def _complete(self, request: Request, shape: Any) -> Response:
        body, ignored = wire.read(await body_of(request), shape)
        self._known(body.model)
        order = wire.order(body, ignored, self._loaded.text, self._loaded.context)
        reply = Reply(order, self._model, self._loaded.text.token_bytes)
        if order.stream:
            headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            return StreamingResponse(
                self._stream(order, reply), media_type="text/event-stream", headers=headers
            )
        return await self._whole(request, order, reply)

    def _known(self, model: str | None) -> None:
        if model is not None and model != self._model:
            raise RequestError(
                f"model '{model}' is not served here; this server has '{self._model}'",
                "model_not_found",
                404,
                "model",
            )

    async def _events(self, order: wire.Order) -> AsyncGenerator[Piece | Finish | Failure]:
        """What the worker says of an order, until its end; leaving early cancels the work."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Piece | Finish | Failure]()

        def emit(event: Piece | Finish | Failure) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, event)

        job = Job(order.prompt, order.sampling, order.count, order.stops, emit, order.logprobs)
        self._worker.submit(job)
        try:
            while True:
                event = await queue.get()
                yield event
                if not isinstance(event, Piece):
                    return
        finally:
            job.cancelled.set()

    async def _stream(self, order: wire.Order, reply: Reply) -> AsyncIterator[bytes]:
        if opening := reply.opening():
            yield opening
        async with aclosing(self._events(order)) as events:
            async for event in events:
                if isinstance(event, Piece):
                    yield reply.piece(event)
                elif isinstance(event, Finish):
                    yield reply.closing(event)
                else:
                    yield reply.failure(event)

    async def _whole(self, request: Request, order: wire.Order, reply: Reply) -> Response:
        work = asyncio.ensure_future(self._collect(order, reply))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else Response(status_code=GONE)
        finally:
            gone.cancel()
            work.cancel()

    async def _collect(self, order: wire.Order, reply: Reply) -> Response:
        pieces = list[Piece]()
        async with aclosing(self._events(order)) as events:
            async for event in events:
                if isinstance(event, Failure):
                    return answer(error_body(event.error), event.error.status)
                pieces.append(event if isinstance(event, Piece) else event.rest)
                if isinstance(event, Finish):
                    return answer(reply.whole(joined(pieces), event))
        raise RequestError("the worker ended without an answer", "engine_error", 500)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _gone(request: Request, error: Exception) -> Response:
    """The client left while it was still sending; nobody reads this."""
    return Response(status_code=GONE)


async def _told(request: Request, error: Exception) -> Response:
    """An error as the API spells it; one that nobody expected is raised again behind this, for the log."""
    if isinstance(error, RequestError):
        return answer(error_body(error), error.status)
    if not isinstance(error, HTTPException):
        told = RequestError(f"{type(error).__name__}: {error}", "server_error", 500)
        return answer(error_body(told), 500)
    told = RequestError(f"{request.url.path}: {error.detail}", "http", error.status_code)
    response = answer(error_body(told), error.status_code)
    response.headers.update(error.headers or {})  # a 405 names the methods that are allowed
    return response


class KeyRequired:
    """Lets a request pass when it carries the key; wraps the whole application."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the Authorization header in constant time."""
        given = dict(scope.get("headers", [])).get(b"authorization", b"")
        scheme, _, shown = given.partition(b" ")
        known = scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), self._expected)
        if scope["type"] != "http" or known:
            await self._app(scope, receive, send)
            return
        told = RequestError("give the key as 'Authorization: Bearer KEY'", "unauthorized", 401)
        refusal = answer(error_body(told), 401)
        refusal.headers["WWW-Authenticate"] = "Bearer"
        await refusal(scope, receive, send)


def application(api: Api, key: str | None) -> ASGIApp:
    """The ASGI application; with a key, every route needs it."""
    completes = (openapi.JSON, openapi.EVENTS)
    ways = [
        Way("GET", "/health", api.health),
        Way("GET", "/metrics", api.metrics, media=("text/plain",)),
        Way("GET", "/openapi.json", api.described),
        Way("GET", "/v1/models", api.models),
        Way("GET", "/v1/models/{model:path}", api.model),
        Way("POST", "/tokenize", api.tokenize, wire.TokenizeBody),
        Way("POST", "/v1/chat/completions", api.chat, wire.ChatBody, completes),
        Way("POST", "/v1/completions", api.completions, wire.CompletionBody, completes),
        Way("POST", "/admin/memory/reset_peak", api.reset_peak),
        Way("POST", "/admin/cache/clear", api.clear_cache),
    ]
    api.describe(ways, key is not None)
    app = Starlette(
        routes=[Route(way.path, way.endpoint, methods=[way.method]) for way in ways],
        exception_handlers={
            ClientDisconnect: _gone,
            RequestError: _told,
            HTTPException: _told,
            Exception: _told,
        },
    )
    return Responses(KeyRequired(app, key) if key else app, api.responses)
