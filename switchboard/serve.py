"""From a configuration to a listening server, and back to nothing within two seconds.

The port is taken before the model is loaded (so that a taken one is told at once) and listened on after. The model
loads in the worker thread while this one imports the web framework.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from types import FrameType
from typing import Any

from switchboard.config import Config
from switchboard.errors import ConfigError, PortInUse

PATIENCE_S = 0.8
# The worker builds graphs in Python; without this the thread that writes to the socket waits up to 5 ms for its turn.
SWITCH_INTERVAL_S = 0.0005


def serve(config: Config) -> None:
    """Load, listen, and stay until told to stop; never returns."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    key = api_key(config)
    bound = bind(config.host, config.port)

    from switchboard.board import Board
    from switchboard.models import resolve
    from switchboard.session import open_session
    from switchboard.worker import Worker

    board = Board(config.asked, os.environ)
    source = resolve(config.model)
    worker = Worker(lambda: open_session(config, source, board))
    worker.start()

    import uvicorn

    from switchboard.health import Health
    from switchboard.server import Api, application

    try:
        session = worker.session()
    except SystemExit:
        # Told to stop while loading; tearing the interpreter down under a computing thread could crash it.
        os._exit(0)
    health = Health(config, source, session, worker)
    app = application(Api(worker, health, source.name), key)
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        ws="none",
    )

    class Server(uvicorn.Server):
        """Cancels the generation in hand as soon as it is told to stop."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            worker.stop(0)
            super().handle_exit(sig, frame)

    try:
        bound.listen(128)
    except OSError as error:
        raise in_use(config) from error
    told = ", ".join(f"{n} {p.state}" for n, p in board.positions.items() if p.asked)
    print(
        f"switchboard: {source.name} on http://{config.host}:{bound.getsockname()[1]} "
        f"({session.loaded.format}, {told or 'no switches'})",
        file=sys.stderr,
        flush=True,
    )
    try:
        Server(settings).run(sockets=[bound])
    finally:
        worker.stop(PATIENCE_S)
        sys.stdout.flush()
        sys.stderr.flush()
        # A pass that is still computing would keep the interpreter, or crash it while it is torn down.
        os._exit(0)


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


def in_use(config: Config) -> PortInUse:
    """The error of a port that was taken while the model was loading."""
    return PortInUse(f"{config.host}:{config.port} was taken meanwhile: give another --port")


def api_key(config: Config) -> str | None:
    """The key that clients must show, from the environment variable that was named."""
    if config.api_key_env is None:
        return None
    key = os.environ.get(config.api_key_env)
    if not key:
        raise ConfigError(f"--api-key-env {config.api_key_env}: that variable is empty or not set")
    return key
