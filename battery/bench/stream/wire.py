"""A kept connection that dates every read as it leaves the socket, and holds one deadline over a whole request.

httpcore speaks HTTP; the backend under it stamps. The connection is open before the clock starts, so that no handshake
is inside TTFT, and while the clock runs no second one is opened: Reconnect is raised instead.
"""

from __future__ import annotations

import contextlib
import gc
import re
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import httpcore
import msgspec

from battery.bench.stream.chunks import Answer
from battery.ledger.errors import LaunchError

GRACE_S = 1.0
"""How long after [DONE] the body may take to end: its framing is wanted, but no server is waited for."""
WARM_TRIES = 3
MOST_BYTES = 256 << 20
"""A stream of 260,000 tokens with their ids is about 100 MB; what is far longer is a server that babbles."""
LATE_S = 0.05
"""How often the kernel's limit on a read is set anew; a read may be given up twice this after its deadline."""
Headers = dict[str, str]
_READ_BYTES = 65_536
_TAIL = 24
_SHORT = 24
"""A read of fewer bytes may complete an end that was cut in two, and is handed on at once."""
_LAST = b"\r\n\r\n"
"""What a chunked body ends with, with trailers or without; an event that ends so as well only costs a look."""

_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\][ \t]*(?:\r\n|\r|\n){2}")
"""The event that ends a stream: no text can look like it, since JSON holds no raw line end."""


class Order(msgspec.Struct, frozen=True):
    """One request that is to be timed."""

    path: str
    payload: bytes
    deadline_s: float
    """From send to last byte."""
    warm_path: str | None
    """A GET that opens the connection before it; None: it is opened and nothing sent."""
    warm_s: float


class Unreachable(LaunchError):
    """The server could not be reached, broke off, or was too slow to answer."""


class Reconnect(Exception):
    """The warmed connection was closed before the request was sent."""


class Wire(httpcore.NetworkBackend):
    """Opens sockets and keeps the clock of the request in flight."""

    def __init__(self) -> None:
        self._plain = httpcore.SyncBackend()
        self._ahead: httpcore.NetworkStream | None = None
        self.deadline_ns = 0
        self.sent_ns: int | None = None
        self.read_ns: int | None = None
        self.may_connect = True
        self.received = 0
        """Bytes of the answer so far."""
        self.body_runs = False
        """The head of a timed answer is in and its body has no length: reads may be kept back."""

    def begin(self, limit_s: float) -> None:
        """Start the clock of a request that has `limit_s` for all of it."""
        self.deadline_ns = time.perf_counter_ns() + int(limit_s * 1e9)
        self.sent_ns = self.read_ns = None
        self.received = 0
        self.body_runs = False

    def count(self, more: int) -> None:
        """Count the bytes of an answer; ReadError where they are beyond all reason."""
        self.received += more
        if self.received > MOST_BYTES:
            raise httpcore.ReadError(f"the answer grew beyond {MOST_BYTES >> 20} MiB")

    def left_s(self, kind: type[Exception]) -> float:
        """Seconds to the deadline of the whole request, however few bytes trickle in."""
        left = (self.deadline_ns - time.perf_counter_ns()) / 1e9
        if left <= 0:
            raise kind("the request's deadline passed")
        return left

    def open_ahead(self, host: str, port: int) -> None:
        """Open a connection now that the next request finds open."""
        self.drop_ahead()
        self._ahead = self.connect_tcp(host, port)

    def drop_ahead(self) -> None:
        """Close a connection that was opened ahead and not used."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """A stream that stamps its reads; never a new one while the clock runs."""
        if self._ahead is not None:
            stream, self._ahead = self._ahead, None
            return stream
        if not self.may_connect:
            raise Reconnect
        plain = self._plain.connect_tcp(
            host, port, self.left_s(httpcore.ConnectTimeout), local_address, socket_options
        )
        return _Stamped(plain, self)


class _Stamped(httpcore.NetworkStream):
    """A socket that dates what it reads, before anything looks at the bytes.

    A plain socket blocks in the kernel itself, under the kernel's own time limit: Python's timeouts ask poll() first,
    and that second call would stand between arrival and stamp. While a body runs, reads are only dated and kept until
    one looks like the last: work between two reads cools the caches and delays the next stamp.
    """

    def __init__(self, plain: httpcore.NetworkStream, wire: Wire) -> None:
        self._plain, self._wire = plain, wire
        bare = plain.get_extra_info("socket")
        self._bare: socket.socket | None = None if isinstance(bare, ssl.SSLSocket) else bare
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._limit_s = 0.0
        """The kernel's present limit on one read."""
        self._kept: deque[tuple[int, bytes]] = deque()
        self._broken: Exception | None = None
        """What ended the reads that are kept; it is raised once they are handed out."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._kept and self._broken is None:
            self._gather()
        if not self._kept and self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken
        at_ns, data = self._kept.popleft()
        if data:
            self._wire.read_ns = at_ns
        return data

    def _gather(self) -> None:
        """Read once, or, while a body runs, until a read may be the last; each is dated as it comes."""
        try:
            left_s = self._wire.left_s(httpcore.ReadTimeout)
            if self._bare is None:
                data = self._plain.read(_READ_BYTES, left_s)
                self._kept.append((time.perf_counter_ns(), data))
                self._wire.count(len(data))
            else:
                self._limit(self._bare, left_s)
                self._stamp(self._bare)
        except BlockingIOError:
            self._broken = httpcore.ReadTimeout("the request's deadline passed")
        except OSError as broken:
            self._broken = httpcore.ReadError(str(broken))
        except (httpcore.TimeoutException, httpcore.NetworkError) as broken:
            self._broken = broken

    def _stamp(self, bare: socket.socket) -> None:
        """The innermost loop: block, date, keep. It ends with a read that may be the last or completes what was cut."""
        receive, clock, keep, buffer = (
            bare.recv_into,
            time.perf_counter_ns,
            self._kept.append,
            self._buffer,
        )
        runs, until_ns, total = self._wire.body_runs, clock() + int(LATE_S * 1e9), 0
        while True:
            count = receive(buffer)
            now_ns = clock()
            data = bytes(buffer[:count])
            keep((now_ns, data))
            total += count
            if count < _SHORT or not runs or data.endswith(_LAST) or b"[DONE]" in data:
                self._wire.count(total)
                return
            if now_ns > until_ns:
                self._wire.count(total)
                total = 0
                self._limit(bare, self._wire.left_s(httpcore.ReadTimeout))
                until_ns = now_ns + int(LATE_S * 1e9)

    def _limit(self, bare: socket.socket, left_s: float) -> None:
        """Have the kernel end a read after `left_s`, at the latest LATE_S after it."""
        if bare.gettimeout() is not None:
            bare.settimeout(None)
        if not left_s <= self._limit_s <= left_s + LATE_S:
            whole, part = int(left_s), int(left_s % 1 * 1e6)
            # a limit of 0 would be none
            limit = struct.pack("ll", whole, part if whole else max(part, 1000))
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._limit_s = left_s

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._wire.sent_ns is None:
            self._wire.sent_ns = time.perf_counter_ns()
        self._plain.write(buffer, self._wire.left_s(httpcore.WriteTimeout))

    def close(self) -> None:
        self._plain.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self._wire.left_s(httpcore.ConnectTimeout)
        return _Stamped(self._plain.start_tls(ssl_context, server_hostname, left), self._wire)

    def get_extra_info(self, info: str) -> Any:
        return self._plain.get_extra_info(info)


class Lane:
    """One kept connection to the server, with the clock of what runs on it."""

    def __init__(self, url: str, headers: Headers) -> None:
        self.wire = Wire()
        self._pool = httpcore.ConnectionPool(max_connections=1, network_backend=self.wire)
        self._url, self._target = url, httpcore.URL(url)
        name = self._target.host.decode()
        name = f"[{name}]" if ":" in name else name
        port = self._target.port
        host = name if port is None else f"{name}:{port}"
        self._headers: dict[str | bytes, str | bytes] = {"Host": host}
        self._headers.update(headers.items())

    def close(self) -> None:
        """Close the connection."""
        self.wire.drop_ahead()
        self._pool.close()

    @property
    def open(self) -> bool:
        """Whether a connection stands idle that the server has not closed."""
        return any(one.is_idle() and not one.has_expired() for one in self._pool.connections)

    def _request(self, method: str, path: str, payload: bytes | None) -> httpcore.Request:
        """A request to the server."""
        headers = self._headers
        if payload is not None:
            headers = {**headers, "Content-Length": str(len(payload))}
        return httpcore.Request(method, self._url + path, headers=headers, content=payload)

    def exchange(
        self, method: str, path: str, payload: bytes | None, limit_s: float
    ) -> tuple[int, bytes]:
        """(status, body) of one small request, which may be asked twice; Unreachable where there is none."""
        self.wire.begin(limit_s)
        kept = self.open
        try:
            try:
                return self._whole(method, path, payload)
            except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError):
                # a server may close a kept connection at the very moment (llama.cpp does after each stream)
                if not kept:
                    raise
                return self._whole(method, path, payload)
        except (httpcore.TimeoutException, TimeoutError) as slow:
            raise Unreachable(
                f"{method} {self._url}{path}: no whole answer in {limit_s:g} s"
            ) from slow
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as broken:
            raise Unreachable(f"{method} {self._url}{path}: {_words(broken)}") from broken

    def _whole(self, method: str, path: str, payload: bytes | None) -> tuple[int, bytes]:
        """One request and all of its answer."""
        response = self._pool.handle_request(self._request(method, path, payload))
        try:
            return response.status, response.read()
        finally:
            response.close()

    def warm(self, path: str | None, limit_s: float) -> Literal["kept", "opened ahead"]:
        """Leave an open connection behind, best the one that just carried a small request (None: send none)."""
        self.wire.drop_ahead()
        if path is None:
            self.wire.begin(limit_s)
        else:
            self.exchange("GET", path, None, limit_s)
        if path is not None and self.open:
            return "kept"
        # An HTTP/1.0 server (mlx_lm.server is one) closes after every answer.
        port = self._target.port or (443 if self._target.scheme == b"https" else 80)
        try:
            self.wire.open_ahead(self._target.host.decode(), port)
        except (httpcore.TimeoutException, httpcore.NetworkError, OSError) as broken:
            raise Unreachable(f"{self._url}: {_words(broken)}") from broken
        return "opened ahead"

    def request(self, order: Order) -> Answer:
        """Warm a connection, send on it, read to the last byte; whatever happens is written into the answer."""
        for _ in range(WARM_TRIES):
            answer = Answer()
            try:
                with _no_collection():
                    answer.connection = self.warm(order.warm_path, order.warm_s)
                    self._timed(order.path, order.payload, order.deadline_s, answer)
            except Reconnect:
                continue
            except Unreachable as broken:
                slow = isinstance(broken.__cause__, httpcore.TimeoutException | TimeoutError)
                return Answer(unsent=f"cannot connect: {broken}", timed_out=slow)
            if not answer.sent_ns:
                # the TLS handshake comes after the connection and before the first byte
                answer.unsent = f"cannot connect: {answer.broken}"
            return answer
        closed = f"the server closed {WARM_TRIES} warmed connections before they were used"
        return Answer(unsent=closed)

    def _timed(self, path: str, payload: bytes, deadline_s: float, answer: Answer) -> None:
        """Send on the warmed connection and fill `answer`; Reconnect where the connection is gone.

        Everything else that goes wrong is written into the answer.
        """
        wire, request = self.wire, self._request("POST", path, payload)
        wire.begin(deadline_s)
        wire.may_connect = False
        try:
            self._receive(request, answer)
        except (httpcore.TimeoutException, TimeoutError):
            answer.timed_out = True
            answer.broken = f"the deadline of {deadline_s:g} s passed"
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as broken:
            answer.broken = f"the connection broke: {_words(broken)}"
        finally:
            wire.may_connect = True
        answer.sent_ns = wire.sent_ns or 0
        answer.last_ns = wire.read_ns

    def _receive(self, request: httpcore.Request, answer: Answer) -> None:
        """The timed loop: read, stamp, store. Nothing here looks into the body but for its last bytes."""
        wire, reads = self.wire, answer.reads
        response = self._pool.handle_request(request)
        try:
            answer.status = response.status
            headers = {name.lower(): value for name, value in response.headers}
            answer.content_type = headers.get(b"content-type", b"").decode("latin-1").lower()
            answer.encoding = headers.get(b"content-encoding", b"").decode("latin-1").lower()
            answer.location = headers.get(b"location", b"").decode("latin-1")
            answer.framed = (
                b"chunked" in headers.get(b"transfer-encoding", b"").lower()
                or b"content-length" in headers
            )
            wire.body_runs = b"content-length" not in headers
            tail = b""
            for data in response.iter_stream():
                # HTTP framing is undone between stamp and store, but every piece is from the last read: h11 asks for
                # more only once it has handed out all it had.
                reads.append((wire.read_ns or 0, data))
                seen = tail + data
                tail = seen[-_TAIL:]
                if _DONE.search(seen):
                    grace_ns = time.perf_counter_ns() + int(GRACE_S * 1e9)
                    wire.deadline_ns = min(wire.deadline_ns, grace_ns)
            answer.ended = True
        finally:
            response.close()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the garbage collector: a full pass over a loaded pandas takes longer than a token."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _words(error: BaseException) -> str:
    """An error's message, or its kind where it has none."""
    return str(error) or type(error).__name__
