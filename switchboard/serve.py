"""From a configuration to a listening server, and back to nothing within two seconds.

The port is taken before the model is loaded (so that a taken one is told at once) and listened on after. The model
loads in the worker thread while this one imports the web framework.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from switchboard.config import Config
from switchboard.errors import ConfigError, PortInUse

if TYPE_CHECKING:
    from switchboard.board import Board
    from switchboard.models import Source
    from switchboard.worker import Worker

PATIENCE_S = 0.8
BACKLOG = 128
# The worker builds graphs in Python; without this the thread that writes to the socket waits up to 5 ms for its turn.
SWITCH_INTERVAL_S = 0.0005


def serve(config: Config) -> None:
    """Load, listen, and stay until told to stop; never returns."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    key = api_key(config)
    bound = bind(config.host, config.port)

    board, source, worker = loading(config)

    # While the worker loads: importing the web framework takes a good part of a second.
    from switchboard.health import Health
    from switchboard.server import Api, application

    try:
        session = worker.session()
    except SystemExit:
        # Told to stop while loading; tearing the interpreter down under a computing thread could crash it.
        os._exit(0)
    health = Health(config, source, session, worker)
    app = application(Api(worker, health, source.name), key)
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        raise PortInUse(f"port {config.port} was taken meanwhile: give another --port") from error
    told = ", ".join(f"{name} {one.state}" for name, one in board.positions.items() if one.asked)
    place = f"http://{config.host}:{bound.getsockname()[1]}"
    print(
        f"switchboard: {source.name} on {place} ({session.loaded.format}, {told or 'no switches'})",
        file=sys.stderr,
        flush=True,
    )
    run(app, bound, worker)


def loading(config: Config) -> tuple[Board, Source, Worker]:
    """The board of what was asked, the weights, and the worker that has begun to load them.

    The kill switches of the environment are read now, not when a module was imported.
    """
    from switchboard.board import Board
    from switchboard.models import resolve
    from switchboard.session import open_session
    from switchboard.worker import Worker

    board = Board(config.asked, os.environ)
    source = resolve(config.model)
    worker = Worker(lambda: open_session(config, source, board))
    worker.start()
    return board, source, worker


def run(app: Any, bound: socket.socket, worker: Any) -> NoReturn:
    """Answer requests until a signal, then cancel the generation in hand and leave with status 0.

    Leaves with 1 when the web framework failed instead.
    """
    import uvicorn

    class Server(uvicorn.Server):
        """Cancels the generation in hand as soon as it is told to stop."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            worker.stop(0)
            super().handle_exit(sig, frame)

    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        ws="none",
    )
    status = 0
    try:
        Server(settings).run(sockets=[bound])
    except SystemExit:
        pass  # uvicorn raises the signal again once it has closed its connections; see _leave
    except Exception:
        traceback.print_exc()
        status = 1
    worker.stop(PATIENCE_S)
    sys.stdout.flush()
    sys.stderr.flush()
    # A pass that is still computing would keep the interpreter, or crash it while it is torn down.
    os._exit(status)


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(0)


def bind(host: str, port: int) -> socket.socket:
    """The server's socket, bound but not listening."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        if isinstance(error, socket.gaierror):
            raise ConfigError(f"--host {host}: {error}") from error
        raise PortInUse(
            f"{host}:{port} cannot be listened on ({error.strerror}): stop that server or give another --port"
        ) from error
    return bound


def api_key(config: Config) -> str | None:
    """The key that clients must show, from the environment variable that was named."""
    if config.api_key_env is None:
        return None
    key = os.environ.get(config.api_key_env)
    if not key:
        raise ConfigError(f"--api-key-env {config.api_key_env}: that variable is empty or not set")
    return key
