"""The conductor of a quality run: load, launch, ask, keep. Nothing is timed and nothing is graded here.

An arm is launched as for speed, once for all of its suites: engagement is looked at before the first task and after the
last of each suite. Every answer is on disk before the next is waited for; the same command goes on where it stopped,
with tasks that were never asked before those whose requests failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from battery.bench import sensors
from battery.bench.backends import load_backend
from battery.bench.client import Client, Unreachable
from battery.bench.judge import outcome
from battery.bench.launch import Server
from battery.bench.leaves import engine_versions, public_command
from battery.bench.lock import MachineLock
from battery.bench.measure import Measuring
from battery.bench.progress import Stopper
from battery.bench.versions import versions
from battery.ledger import disk, saved, scrub
from battery.ledger.answers import Answer
from battery.ledger.arm import Arm
from battery.ledger.asked import WORSE, Asked, Quality, Session
from battery.ledger.errors import InputError, LaunchError, ReceiptError
from battery.ledger.plan import Plan
from battery.ledger.receipt import Engagement
from battery.ledger.saved import AnswersFile, standing
from battery.ledger.store import pretty, utc_now
from battery.quality.ask import WAITS_S, Asker
from battery.quality.flight import Flight, Item
from battery.quality.tasks import Loaded, Task
from battery.quality.telling import Telling
from battery.quality.wording import STYLE

SYNTHETIC = "synthetic:"
GIVE_UP = 5
"""Requests in a row that may fail before the arm is given up: the others would fail too."""


class Suite:
    """What one arm is asked of one suite: its record, its answers, and what is still missing."""

    def __init__(
        self, folder: Path, asked: Asked, tasks: Sequence[Task], file: AnswersFile
    ) -> None:
        self.folder, self.asked, self.file = folder, asked, file
        self.tasks = {task.id: task for task in tasks}

    @property
    def missing(self) -> list[Item]:
        """Tasks and samples without a completion: those never asked, then those whose requests failed."""
        stands = standing(self.file.answers)
        wanted = [(task, n) for n in range(self.asked.samples) for task in self.asked.tasks]
        open_ = [key for key in wanted if key not in stands]
        open_ += [key for key in wanted if key in stands and stands[key].error is not None]
        return [(self.tasks[task], sample) for task, sample in open_]

    @property
    def total(self) -> int:
        """Answers that are to be asked for."""
        return len(self.asked.tasks) * self.asked.samples

    def errors(self) -> int:
        """Answers that could not be had."""
        stands = standing(self.file.answers).values()
        return sum(answer.error is not None for answer in stands)

    def note(self, **changes: Any) -> None:
        """Write the record again with these fields changed."""
        self.asked = msgspec.structs.replace(self.asked, **changes)
        path = saved.asked_path(self.folder, self.asked.arm.name, self.asked.dataset.suite)
        disk.replace(path, pretty(self.asked))

    def session(self, **changes: Any) -> None:
        """Write the record again with these fields of the last session changed."""
        *before, last = self.asked.sessions
        self.note(sessions=(*before, msgspec.structs.replace(last, **changes)))


class Questioner:
    """Asks every arm every suite, into the folder of a campaign."""

    def __init__(
        self,
        plan: Plan,
        arms: Sequence[Arm],
        suites: Sequence[Loaded],
        folder: Path,
        telling: Telling | None = None,
        *,
        asking: Quality | None = None,
        limit: int | None = None,
        port: int | None = None,
        lock: Path | None = None,
        waits_s: Sequence[float] = WAITS_S,
    ) -> None:
        """`asking`: in place of the plan's own table; `limit`: only the first so many tasks of each suite.

        InputError for an arm whose weights are random.
        """
        for arm in arms:
            if arm.model.startswith(SYNTHETIC):
                raise InputError(
                    f"arm {arm.name}: {arm.model} has random weights, whose answers are noise; ask an arm with a"
                    " trained model"
                )
        self._plan, self._arms, self._suites, self._folder = plan, arms, suites, folder
        self._told, self._limit, self._asking = telling or Telling(), limit, asking or plan.asking
        self._port, self._lock, self._waits_s = port, lock, waits_s
        self._machine, self._versions = sensors.fingerprint(), versions()

    def run(self) -> Counter[str]:
        """Ask until every task has an answer; how many `answers` there are and how many `errors` among them."""
        hand = "the answers in hand"
        with Stopper(self._told.note, hand) as stopper, MachineLock(self._folder.name, self._lock):
            saved.clean(self._folder)
            opened = {
                arm.name: [self._open(arm, loaded) for loaded in self._suites] for arm in self._arms
            }
            every = [suite for suites in opened.values() for suite in suites]
            try:
                total = sum(suite.total for suite in every)
                self._told.started(total - sum(len(suite.missing) for suite in every), total)
                for arm in self._arms:
                    stopper.check()
                    if any(suite.missing for suite in opened[arm.name]):
                        self._arm(arm, opened[arm.name], stopper)
            finally:
                for suite in every:
                    suite.file.close()
            return Counter(answers=total, errors=sum(suite.errors() for suite in every))

    def _open(self, arm: Arm, loaded: Loaded) -> Suite:
        """The files of an arm and a suite, healed; ReceiptError where they are of another run than this."""
        name, ids = loaded.dataset.suite, [task.id for task in loaded.tasks]
        path = saved.asked_path(self._folder, arm.name, name)
        wanted = Asked(
            campaign=self._folder.name, arm=arm.public(), arm_digest=arm.digest, plan_digest=self._plan.digest,
            dataset=loaded.dataset, samples=self._asking.samples, tasks=tuple(ids[: self._limit]),
            sampler=self._sampler(), seed=self._asking.seed, prompt_style=STYLE,
        )  # fmt: skip
        file = AnswersFile(saved.answers_path(self._folder, arm.name, name))
        if file.healed:
            self._told.note(
                f"{file.path}: a torn last line of {file.healed} bytes was cut off; it is asked again"
            )
        if path.is_file():
            wanted = _continued(
                saved.read_asked(self._folder, arm.name, name), wanted, str(path), ids
            )
        elif file.answers:
            raise ReceiptError(
                f"{path}: no such file, but there are answers; restore it, or give a new campaign name"
            )
        return Suite(self._folder, wanted, loaded.tasks, file)

    def _sampler(self) -> dict[str, Any]:
        """What every request asks for beside its seed: the plan's sampler, with a cap and without a floor."""
        plan, asking = self._plan.sampler, self._asking
        sampler: dict[str, Any] = {
            "temperature": plan.temperature,
            "top_p": plan.top_p,
            "max_tokens": asking.max_tokens,
        }
        if plan.top_k:
            sampler["top_k"] = plan.top_k
        if asking.reasoning_effort is not None:
            sampler["reasoning_effort"] = asking.reasoning_effort
        return sampler

    def _arm(self, arm: Arm, suites: Sequence[Suite], stopper: Stopper) -> None:
        """One launch of an arm and everything that it is still to be asked."""
        limits = self._plan.limits
        most = limits.memory_limit_gb
        self._told.phase(arm.name, "launch")
        server = Server(
            arm, load_backend(arm.backend), self._port, limits.launch_s, limits.stop_s, lambda: stopper.asked,
            memory_limit=None if most is None else int(most * 1e9),
        )  # fmt: skip
        with server, Client(server.url) as client:
            self._same(arm, server, suites)
            measuring = Measuring(server, client, self._plan, {}, stop=lambda: stopper.asked)
            measuring.wake()
            before = _look(measuring.engaged)
            for suite in suites:
                if suite.missing:
                    stopper.check()
                    self._told.phase(arm.name, suite.asked.dataset.suite)
                    self._suite(server, client, suite, before, stopper)

    def _same(self, arm: Arm, server: Server, suites: Sequence[Suite]) -> None:
        """Refuse random weights, and a model or an engine that is not the one that answered before."""
        model = server.ready["model"]
        if model.get("synthetic"):
            raise InputError(
                f"arm {arm.name}: its server says that the weights are random; nothing is asked"
            )
        for suite in suites:
            before = suite.asked.model.get("digest")
            if before not in (None, model["digest"]):
                raise LaunchError(
                    f"arm {arm.name}: the model's digest is {model['digest'][:12]} now and was {before[:12]} when"
                    " earlier answers came; its weights changed on disk: give a new campaign name"
                )
            engine = scrub.record(engine_versions(server.ready), server.secrets)
            earlier = suite.asked.versions.get("engine", engine)
            if suite.file.answers and earlier != engine:
                changed = sorted(
                    name for name in {*earlier, *engine} if earlier.get(name) != engine.get(name)
                )
                raise LaunchError(
                    f"arm {arm.name}: its engine is another than when earlier answers came ({', '.join(changed)});"
                    " go on with that one, or give a new campaign name"
                )

    def _suite(
        self, server: Server, client: Client, suite: Suite, before: dict[str, Any], stopper: Stopper
    ) -> None:
        """One session: what is missing of a suite, its answers kept as they come."""
        arm, concurrency = server.arm, self._asking.concurrency
        begun = Session(started=utc_now(), concurrency=concurrency, engagement=_looks(before, None))
        here = {
            "model": server.ready["model"],
            "versions": {"battery": self._versions, "engine": engine_versions(server.ready)},
            "machine": self._machine,
            "command": public_command(server.command),
            "environment": server.environment,
        }
        suite.note(sessions=(*suite.asked.sessions, begun), **scrub.record(here, server.secrets))
        count: Counter[str] = Counter()
        asker = self._asker(server, suite)
        try:
            with Flight(asker.ask, suite.missing, concurrency) as flight:
                for answer in flight.answers(lambda: stopper.asked):
                    suite.file.append(answer)
                    self._told.answer(arm.name, answer)
                    self._mind(answer, count, server)
        finally:
            asker.stop()
            after = outcome.engagement(arm, server.ready, _health(client, server))
            looks = _looks(before, _look(after))
            suite.session(
                ended=utc_now(), answers=count["answers"], errors=count["errors"], engagement=looks
            )
        stopper.check()
        declined = after.verdict == "declined" and not self._plan.limits.allow_declined
        if after.verdict == "disengaged" or declined:
            raise LaunchError(
                f"arm {arm.name}: {after.verdict} after {suite.asked.dataset.suite}: {after.reason}; its answers are"
                " kept and say so, and are not compared"
            )

    def _asker(self, server: Server, suite: Suite) -> Asker:
        """Who asks this server."""
        context = server.ready["model"].get("context")
        return Asker(
            server.url, server.backend.chat, server.arm.model, suite.asked.sampler, self._asking.seed,
            self._plan.limits.request_s, context=context if isinstance(context, int) else None,
            secrets=server.secrets, alive=lambda: server.ended(0.5) is None, waits_s=self._waits_s,
        )  # fmt: skip

    def _mind(self, answer: Answer, count: Counter[str], server: Server) -> None:
        """Count an answer; LaunchError once the server is gone or nothing comes any more."""
        if answer.error is None:
            count["answers"] += 1
            count["row"] = 0
            return
        count["errors"] += 1
        count["row"] += 1
        gone = server.ended(0.5)
        if gone is None and count["row"] < GIVE_UP:
            return
        what = f"ended with {gone}" if gone is not None else f"failed {GIVE_UP} requests in a row"
        raise LaunchError(
            f"arm {server.arm.name}: the server {what}, last on {answer.task} ({answer.error}); the same command goes"
            f" on with the tasks that were not asked yet; its last lines:\n{server.log_tail()}"
        )


def _continued(kept: Asked, wanted: Asked, path: str, ids: Sequence[str]) -> Asked:
    """The record of an earlier session, with the tasks and samples of both; ReceiptError where they differ in more."""
    names = ("campaign", "arm_digest", "dataset", "sampler", "seed", "prompt_style")
    for name in names:
        one, other = getattr(kept, name), getattr(wanted, name)
        if name == "dataset":  # the same bytes, wherever they came from
            one, other = one.digest, other.digest
        if one != other:
            raise ReceiptError(
                f"{path}: was asked with another {name} ({one}, now {other}); give a new campaign name"
            )
    both = {*kept.tasks, *wanted.tasks}
    tasks = tuple(task for task in ids if task in both)
    return msgspec.structs.replace(kept, tasks=tasks, samples=max(kept.samples, wanted.samples))


def _look(engaged: Engagement) -> dict[str, Any]:
    """A look at the switches, without those that nobody asked for and that did not run."""
    seen = tuple(switch for switch in engaged.switches if switch.verdict != "off")
    told: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(engaged, switches=seen))
    return told


def _looks(before: dict[str, Any], after: dict[str, Any] | None) -> dict[str, Any]:
    """The worse verdict of two looks at the switches, and the looks."""
    told = [look for look in (before, after) if look is not None]
    worst = max((str(look["verdict"]) for look in told), key=WORSE.index)
    return {"verdict": worst, "before": before, **({"after": after} if after is not None else {})}


def _health(client: Client, server: Server) -> dict[str, Any]:
    """The health document now; an empty one when the server is gone."""
    try:
        status, document = client.get_json(server.backend.health)
    except Unreachable:
        return {}
    return document if status == 200 and isinstance(document, dict) else {}
