"""The engine's account of itself: what is loaded, what runs, what it costs. An unknown is null.

Everything is read from the thing itself when it is asked: the switches from their counters, the BLAS from the
process's map, memory from MLX. The environment and the command line are no evidence of anything.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import mlx.core as mx
import psutil

from switchboard import __version__, blas, memory, metrics, pages
from switchboard.config import Config
from switchboard.models import Source
from switchboard.paced import Paced
from switchboard.session import Session
from switchboard.worker import Worker

PACKAGES = (
    "mlx",
    "mlx-lm",
    "mkl",
    "msgspec",
    "numpy",
    "starlette",
    "tokenizers",
    "uvicorn",
)


class Health:
    """Facts that stay, gathered once at start, and the document that adds those that change."""

    def __init__(self, config: Config, source: Source, session: Session, worker: Worker) -> None:
        self._started = time.monotonic()
        self._config = config
        self._source = source
        self._session = session
        self._worker = worker
        self._digest = config.digest()
        self._build = build()
        self._packages = {name: installed(name) for name in PACKAGES}

    def document(self) -> dict[str, Any]:
        """The answer of /health."""
        loaded, source = self._session.loaded, self._source
        board, pool = self._session.board, self._session.pool
        proposer = self._session.proposer
        kept = None if pool is None else pool.told()
        return {
            "status": "ok",
            "pid": os.getpid(),
            "build": self._build,
            "model": {
                "name": source.name,
                "digest": source.digest,
                "family": loaded.family,
                "parameters": loaded.parameters,
                "format": loaded.format,
                "bits": loaded.bits,
                "stored": loaded.stored,
                "layout": loaded.layout.told(),
                "context": loaded.context,
                "synthetic": source.synthetic,
            },
            "switches": {name: one.told() for name, one in board.positions.items()},
            "acceptance": board.acceptance(),
            "pace": proposer.told() if isinstance(proposer, Paced) else None,
            "memory": {
                "active": mx.get_active_memory(),
                "cache": mx.get_cache_memory(),
                "peak": memory.peak(),
                "load_peak": self._session.load_peak,
                "limit": self._config.memory_limit,
                "huge_pages": pages.held(),
                "prompt_cache": None if kept is None else kept["bytes"],
                "source": "mlx",
            },
            "prompt_cache": kept,
            "config_digest": self._digest,
            "uptime_s": round(time.monotonic() - self._started, 3),
            "requests": self._worker.totals.outcomes["finished"],
            "cancelled": self._worker.totals.outcomes["cancelled"],
            "failed": self._worker.totals.outcomes["failed"],
            "packages": self._packages,
        }

    def metrics(self, responses: Mapping[int, int]) -> str:
        """The answer of /metrics; `responses` are HTTP answers by their status."""
        answers = [({"code": str(code)}, count) for code, count in sorted(responses.items())]
        process = psutil.Process()
        worker, counted = self._worker, "HTTP answers begun, by status."
        return metrics.text(
            [
                *metrics.of_health(self.document()),
                *metrics.of_totals(worker.totals),
                metrics.Family("switchboard_http_responses_total", "counter", counted, [*answers]),
                metrics.single(
                    "switchboard_requests_waiting",
                    "gauge",
                    "Waiting for their turn.",
                    worker.waiting,
                ),
                metrics.single(
                    "switchboard_requests_running", "gauge", "Being answered.", int(worker.busy)
                ),
                metrics.single(
                    "process_resident_memory_bytes",
                    "gauge",
                    "Resident memory of the process.",
                    process.memory_info().rss,
                ),
                metrics.single(
                    "process_start_time_seconds",
                    "gauge",
                    "When the process started, in Unix time.",
                    process.create_time(),
                ),
            ]
        )


def build() -> dict[str, Any]:
    """Which code runs, on what."""
    commit, dirty = revision()
    return {
        "version": __version__,
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "mlx": installed("mlx"),
        "mlx_lm": installed("mlx-lm"),
        "device": device(),
        "blas": blas.loaded(),
        "blas_threads": blas.threads_in_use(),
    }


def device() -> str:
    """Where arrays are computed, as MLX names it."""
    current = mx.default_device()
    return (
        "cpu" if current == mx.Device(mx.cpu) else str(mx.device_info().get("device_name", "gpu"))
    )


def installed(package: str) -> str | None:
    """Version of a package in this environment, or None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def revision() -> tuple[str | None, bool | None]:
    """Commit of this checkout and whether the engine's files differ from it; None outside a checkout."""
    here = Path(__file__).parent

    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here), *words],
                capture_output=True,
                text=True,
                timeout=5,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    changes = ask("status", "--porcelain", "--", ".")
    return commit, None if changes is None else bool(changes)
