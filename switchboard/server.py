"""Routes, and nothing else: bodies in, orders to the worker, pieces out as they come."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from switchboard import memory, wire
from switchboard.errors import RequestError
from switchboard.health import Health
from switchboard.replies import Reply, error_body
from switchboard.text import Piece
from switchboard.worker import Failure, Finish, Job, Worker


def answer(document: Any, status: int = 200) -> Response:
    """A JSON response."""
    return Response(msgspec.json.encode(document), status, media_type="application/json")


class Api:
    """The endpoints over one worker."""

    def __init__(self, worker: Worker, health: Health, model: str) -> None:
        self._worker = worker
        self._health = health
        self._model = model
        self._loaded = worker.session().loaded

    async def health(self, request: Request) -> Response:
        """What is loaded and what runs."""
        return answer(self._health.document())

    async def models(self, request: Request) -> Response:
        """The one model there is."""
        entry = {"id": self._model, "object": "model", "owned_by": "switchboard"}
        return answer({"object": "list", "data": [entry]})

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a prompt as the completion endpoints would take it."""
        body, _ = wire.read(await request.body(), wire.TokenizeBody)
        ids = wire.ids_of(body, self._loaded.text)
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
        body, ignored = wire.read(await request.body(), shape)
        if body.model is not None and body.model != self._model:
            raise RequestError(
                f"model '{body.model}' is not served here; this server has '{self._model}'",
                "model_not_found",
                404,
            )
        order = wire.order(body, ignored, self._loaded.text, self._loaded.context)
        reply = Reply(order, self._model)
        if order.stream:
            headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            return StreamingResponse(
                self._stream(order, reply), media_type="text/event-stream", headers=headers
            )
        return await self._whole(request, order, reply)

    async def _events(self, order: wire.Order) -> AsyncIterator[Piece | Finish | Failure]:
        """What the worker says of an order, until its end; leaving early cancels the work."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Piece | Finish | Failure]()

        def emit(event: Piece | Finish | Failure) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, event)

        job = Job(order.prompt, order.sampling, order.count, order.stops, emit)
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
        async for event in self._events(order):
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
            # A client that left reads nothing; 499 is what proxies log for it.
            return work.result() if work.done() else Response(status_code=499)
        finally:
            gone.cancel()
            work.cancel()

    async def _collect(self, order: wire.Order, reply: Reply) -> Response:
        text, ids = "", list[int]()
        async for event in self._events(order):
            if isinstance(event, Failure):
                return answer(error_body(event.error), event.error.status)
            piece = event if isinstance(event, Piece) else event.rest
            text, ids = text + piece.text, ids + piece.ids
            if isinstance(event, Finish):
                return answer(reply.whole(text, ids, event))
        raise RequestError("the worker ended without an answer", "engine_error", 500)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _told(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestError):
        return answer(error_body(error), error.status)
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else str(error)
    return answer(error_body(RequestError(f"{request.url.path}: {detail}", "http", status)), status)


class KeyRequired:
    """Lets a request pass when it carries the key; wraps the whole application."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the Authorization header in constant time."""
        given = dict(scope.get("headers", [])).get(b"authorization", b"")
        if scope["type"] != "http" or hmac.compare_digest(given, self._expected):
            await self._app(scope, receive, send)
            return
        told = RequestError("give the key as 'Authorization: Bearer KEY'", "unauthorized", 401)
        await answer(error_body(told), 401)(scope, receive, send)


Endpoint = Callable[[Request], Awaitable[Response]]


def application(api: Api, key: str | None) -> ASGIApp:
    """The ASGI application; with a key, every route needs it."""
    routes: list[tuple[str, str, Endpoint]] = [
        ("GET", "/health", api.health),
        ("GET", "/v1/models", api.models),
        ("POST", "/tokenize", api.tokenize),
        ("POST", "/v1/chat/completions", api.chat),
        ("POST", "/v1/completions", api.completions),
        ("POST", "/admin/memory/reset_peak", api.reset_peak),
        ("POST", "/admin/cache/clear", api.clear_cache),
    ]
    app = Starlette(
        routes=[Route(path, endpoint, methods=[method]) for method, path, endpoint in routes],
        exception_handlers={RequestError: _told, HTTPException: _told},
    )
    return KeyRequired(app, key) if key else app
