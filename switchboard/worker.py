"""The one thread in which the model is loaded and generates; requests wait their turn.

MLX's streams belong to a thread, and the engine is single-stream by design, so there is one. The server hands a job
over and hears of it through `emit`; a job whose client went away is cancelled and stops before its next pass.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from switchboard import memory
from switchboard.decode import Tally
from switchboard.errors import OutOfMemory, RequestError, says_out_of_memory
from switchboard.logprobs import Seen
from switchboard.metrics import Outcome, Totals
from switchboard.sampler import Sampling
from switchboard.session import Session
from switchboard.text import Piece, Pieces


@dataclass(frozen=True)
class Finish:
    """The end of an answer: why, what was still held back, and what it took."""

    reason: str
    rest: Piece
    completion_tokens: int
    tally: Tally
    peak_bytes: int


@dataclass(frozen=True)
class Failure:
    """The end of an answer that went wrong, with what had been produced."""

    error: RequestError
    rest: Piece


class Cancelled(Exception):
    """The client went away, or the server stops."""


@dataclass
class Job:
    """One request on its way through the worker."""

    prompt: Sequence[int]
    sampling: Sampling
    count: int
    stops: Sequence[str]
    emit: Callable[[Piece | Finish | Failure], None]
    logprobs: int | None = None
    """How many likeliest tokens to tell at each place; None: no probabilities at all."""
    cancelled: threading.Event = field(default_factory=threading.Event)

    def guard(self) -> None:
        """Stop here when nobody listens any more."""
        if self.cancelled.is_set():
            raise Cancelled


class Worker(threading.Thread):
    """Loads the session, then serves jobs one after another until it is stopped."""

    def __init__(self, build: Callable[[], Session]) -> None:
        super().__init__(name="switchboard-worker", daemon=True)
        self._build = build
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._current: Job | None = None
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._session: Session | None = None
        self._failure: BaseException | None = None
        self.totals = Totals()

    def session(self) -> Session:
        """Wait for the load; its error is raised here, in the thread that asked."""
        # Short waits, so that a signal is handled while loading.
        while not self._ready.wait(0.05):
            pass
        if self._failure is not None:
            raise self._failure
        if self._session is None:
            raise RuntimeError("the worker is ready without a session")
        return self._session

    def submit(self, job: Job) -> None:
        """Queue a job; it is answered through its `emit`."""
        self._jobs.put(job)

    def stop(self, patience_s: float) -> bool:
        """Cancel what runs, and say whether the thread ended in time."""
        self._stopping.set()
        if self._current is not None:
            self._current.cancelled.set()
        self._jobs.put(None)
        self.join(patience_s)
        return not self.is_alive()

    def run(self) -> None:
        """Load, then work."""
        try:
            session = self._build()
        except BaseException as error:  # handed to the main thread, which raises it
            self._failure = error
            self._ready.set()
            return
        self._session = session
        self._ready.set()
        while (job := self._jobs.get()) is not None and not self._stopping.is_set():
            self._current = job
            self._serve(session, job)
            self._current = None

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return self._jobs.qsize()

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._current is not None

    def _serve(self, session: Session, job: Job) -> None:
        least = job.sampling.min_tokens
        pieces, tally = Pieces(session.loaded.text.token_bytes, job.stops, least), Tally()

        def ended(outcome: Outcome, last: Finish | Failure | None) -> None:
            # Counted first: whoever has read the end of the answer finds it in /health.
            self.totals.add(outcome, len(job.prompt), pieces.taken, tally)
            if last is not None:
                job.emit(last)

        try:
            finish = self._answer(session, job, pieces, tally)
        except Cancelled:
            ended("cancelled", None)
        except RequestError as error:
            ended("failed", Failure(error, pieces.finish()))
        except Exception as error:  # the boundary: told to the client, and to the log
            if says_out_of_memory(error):
                told: RequestError = OutOfMemory(str(error))
            else:
                traceback.print_exc(file=sys.stderr)
                told = RequestError(f"{type(error).__name__}: {error}", "engine_error", 500)
            ended("failed", Failure(told, pieces.finish()))
        else:
            ended("finished", finish)

    def _answer(self, session: Session, job: Job, pieces: Pieces, tally: Tally) -> Finish:
        job.guard()
        seen = None if job.logprobs is None else Seen(job.logprobs)
        stream = session.generate(job.prompt, job.sampling, job.count, tally, job.guard, seen)
        try:
            for tokens in stream:
                piece = pieces.push(tokens, seen.take(tokens) if seen else ())
                if piece is not None:
                    job.emit(piece)
                if pieces.stopped:
                    break
        finally:
            stream.close()  # type: ignore[attr-defined]
        reason = "length" if pieces.taken >= job.count and not pieces.stopped else "stop"
        return Finish(reason, pieces.finish(), pieces.taken, tally, memory.peak())
