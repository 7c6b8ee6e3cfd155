"""One answer to one task by HTTP: the request, what comes back, and which failures are tried again.

A transport error is tried again (no connection, a broken one, 408, 409, 425, 429, 5xx, an error in place of an
answer): no completion came. A completion never is, however short, empty or cut off: it is what the arm says. A request
whose deadline passed is not sent again either, since the server may still be at work on it, and a second one would wait
behind it. The answer is not streamed: nothing in it is timed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import httpcore
import msgspec

from battery.bench.judge.outcome import honoured
from battery.bench.stream import dialect
from battery.bench.stream.wire import Lane, Unreachable
from battery.ledger import scrub, strict
from battery.ledger.answers import Answer
from battery.ledger.errors import LaunchError
from battery.ledger.store import utc_now
from battery.quality.tasks import Task
from battery.quality.wording import messages

WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Before each further attempt."""
_HEADERS = {
    "User-Agent": "battery",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "Connection": "close",
}
_AGAIN = (408, 409, 425, 429)


class Failed(Exception):
    """No completion came; `again` where another attempt may bring one."""

    def __init__(self, why: str, again: bool) -> None:
        super().__init__(why)
        self.again = again


class Said(NamedTuple):
    """What a completion holds."""

    content: str
    reasoning: str | None
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    sampler: dict[str, Any] | None


def seed_of(base: int, task: str, sample: int) -> int:
    """The seed of an answer: the same for every arm and campaign, another for every task and sample. Below 2^31."""
    return int.from_bytes(hashlib.sha256(f"{base}/{task}/{sample}".encode()).digest()[:4]) >> 1


class Asker:
    """Asks one server. `ask` may run in many threads at once."""

    def __init__(
        self,
        url: str,
        path: str,
        model: str,
        sampler: dict[str, Any],
        seed: int,
        deadline_s: float,
        *,
        context: int | None = None,
        secrets: Sequence[str] = (),
        alive: Callable[[], bool] = lambda: True,
        waits_s: Sequence[float] = WAITS_S,
    ) -> None:
        """`sampler` is sent as it is, beside model, messages and seed; `context` is what the model holds in tokens."""
        self._url, self._path, self._model = url, path, model
        self._sampler, self._seed, self._deadline_s = sampler, seed, deadline_s
        self._context, self._secrets = context, secrets
        self._alive, self._waits_s = alive, waits_s
        self._stopped = threading.Event()

    def stop(self) -> None:
        """No attempt begins from now on."""
        self._stopped.set()

    def body(self, task: Task, sample: int) -> dict[str, Any]:
        """The request: the same for every arm but for the model's name."""
        seed = seed_of(self._seed, task.id, sample)
        return {"model": self._model, "messages": messages(task), **self._sampler, "seed": seed}

    def ask(self, task: Task, sample: int) -> Answer | None:
        """The answer, or with `error` why there is none; None where it was stopped before an attempt ended.

        LaunchError where the server applied another sampler than the one asked for: nothing it says is an answer.
        """
        body, started, attempts = self.body(task, sample), utc_now(), 0
        same = {key: value for key, value in body.items() if key != "model"}
        why, said = "", None
        for wait_s in (0.0, *self._waits_s):
            if self._stopped.wait(wait_s):
                return None
            attempts += 1
            try:
                said = self._once(body)
                break
            except Failed as failed:
                why = str(failed)
                if not failed.again or not self._alive():
                    break
        if said is None and self._stopped.is_set():
            return None
        told = {} if said is None else self._kept(said, body)
        return Answer(
            suite=task.suite, task=task.id, sample=sample, seed=body["seed"], request_digest=strict.digest(same),
            attempts=attempts, started=started, error=self._hidden(why) if said is None else None, **told,
        )  # fmt: skip

    def _kept(self, said: Said, body: dict[str, Any]) -> dict[str, Any]:
        """A completion as an answer keeps it; LaunchError where it was not sampled as asked."""
        changed = self._changed(said, body)
        if changed:
            raise LaunchError(
                f"the sampler was not honoured ({changed}): nothing was kept of this answer; ask for what the server"
                " does, or serve the arm with other limits"
            )
        kept = said._asdict()
        kept["content"] = scrub.without(said.content, self._secrets)
        kept["reasoning"] = scrub.without(said.reasoning, self._secrets)
        return kept

    def _changed(self, said: Said, body: dict[str, Any]) -> str:
        """What the server did otherwise than asked, in words; empty where nothing shows."""
        asked = {key: body[key] for key in body if key not in ("model", "messages")}
        verdict, why = honoured(asked, said.sampler)
        if verdict == "changed":
            return why
        came, most = said.completion_tokens, int(body["max_tokens"])
        if came is None or (came <= most and said.finish_reason != "length"):
            return ""
        full = self._context is None or said.prompt_tokens is None
        full = full or (said.prompt_tokens or 0) + came >= (self._context or 0)
        if came > most:
            return f"max_tokens: asked {most}, but {came} tokens came"
        if came < most and not full:
            return f"max_tokens: asked {most}, but the server stopped for length after {came}"
        return ""

    def _once(self, body: dict[str, Any]) -> Said:
        """One attempt; Failed where no completion came."""
        lane = Lane(self._url, _HEADERS)
        try:
            payload = msgspec.json.encode(body)
            status, raw = lane.exchange("POST", self._path, payload, self._deadline_s)
        except Unreachable as gone:
            late = isinstance(gone.__cause__, httpcore.TimeoutException | TimeoutError)
            never = isinstance(gone.__cause__, httpcore.ConnectTimeout)
            raise Failed(str(gone), again=never or not late) from gone
        finally:
            lane.close()
        if status != 200:
            again = status in _AGAIN or status >= 500
            raise Failed(f"HTTP {status}: {dialect.error_words(raw)}", again)
        return said_in(raw)

    def _hidden(self, text: str) -> str:
        """A failure's words, fit for a record."""
        return str(scrub.without(scrub.text(text), self._secrets))


def said_in(raw: bytes) -> Said:
    """The completion in the body of an answer; Failed where it holds none."""
    try:
        document = dialect.document(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as broken:
        raise Failed(f"the answer is no JSON ({broken})", again=True) from broken
    wrong = dialect.error_in(document)
    if wrong is not None:
        raise Failed(f"an error instead of an answer: {wrong}", again=True)
    choice = dialect.message_in(document)
    if choice is None:
        raise Failed("the answer holds no choice", again=False)
    finish = dialect.finish_in(choice)
    if finish is None:
        raise Failed("no finish reason: whether the answer was cut off cannot be told", again=False)
    if dialect.failed(finish):
        raise Failed(f"the server finished with '{finish}'", again=True)
    texts = {kind: dialect.mended(text) for kind, text in dialect.texts_in(choice).items()}
    usage = dialect.usage_in(document, choice) or {}
    sampler = document.get("sampler")
    return Said(
        content=texts.get("content", ""),
        reasoning=texts.get("reasoning"),
        finish_reason=finish,
        prompt_tokens=dialect.count(usage.get("prompt_tokens")) or None,
        completion_tokens=dialect.count(usage.get("completion_tokens")),
        sampler=dialect.mended(sampler) if isinstance(sampler, dict) else None,
    )
