"""The scores of a campaign's saved answers: written beside them, taken again as often as wanted, offline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from battery.ledger import disk, saved, strict
from battery.ledger.answers import Answer, Graded, Scores, SuiteName
from battery.ledger.answers import Grader as Told
from battery.ledger.asked import Asked
from battery.ledger.errors import InputError, ReceiptError
from battery.ledger.store import Campaign, pretty, utc_now
from battery.quality import sources
from battery.quality.evalplus import Sanitiser, compare
from battery.quality.grade import Grader
from battery.quality.tasks import Loaded, Task

Say = Callable[[str], None]
EVERY = 50
"""Answers from one word on EvalPlus's progress to the next."""


class Grading(Protocol):
    """Who gives verdicts: the grader of this machine, or of a fleet."""

    def each(self, batches: Iterable[Iterable[Answer]]) -> Iterator[list[Graded]]:
        """The verdicts on each list of answers, in their order."""

    def told(self) -> Told:
        """Who grades, for a receipt."""


Graders = Callable[[Sequence[Task]], AbstractContextManager[Grading]]


def permitted(campaign: Path) -> bool:
    """Whether the campaign's plan says that programs which a model wrote may be run."""
    kept = Campaign(campaign)
    return kept.exists and kept.header().plan.asking.allow_code_execution


def score_campaign(
    campaign: Path,
    data: Iterable[Path] = (),
    *,
    cache: Path | None = None,
    workers: int | None = None,
    fleet: Graders | None = None,
    say: Say = lambda line: None,
    sanitiser: Sanitiser | None = None,
) -> Iterator[Scores]:
    """Grade all answers of a campaign, suite by suite, and write the scores of each arm as they are had.

    InputError where there are no answers or a suite's data cannot be had; ReceiptError where answers were asked from
    other data than what is read now.
    """
    pairs = saved.answered(campaign)
    if not pairs:
        raise InputError(f"{campaign}: no answers in it; ask for some: battery quality")
    suites = list(dict.fromkeys(suite for _, suite in sorted(pairs, key=lambda pair: pair[1])))
    for loaded in sources.load(suites, data):
        arms = [arm for arm, suite in pairs if suite == loaded.dataset.suite]
        yield from score_suite(
            campaign, loaded, arms, cache=cache, workers=workers, fleet=fleet, say=say, sanitiser=sanitiser
        )  # fmt: skip


def score_suite(
    campaign: Path,
    loaded: Loaded,
    arms: Iterable[str],
    *,
    cache: Path | None = None,
    workers: int | None = None,
    fleet: Graders | None = None,
    say: Say = lambda line: None,
    sanitiser: Sanitiser | None = None,
) -> Iterator[Scores]:
    """Grade what these arms answered to one suite, and write each one's scores.

    `fleet`: what makes the grader instead of this machine (`fleet.cluster.opened`); `cache` and `workers` are then its.
    With a `sanitiser` the same answers go through EvalPlus's extraction too, on this machine, and its verdicts lie
    beside the scores; ValueError with a fleet.
    """
    if fleet and sanitiser:
        raise ValueError("EvalPlus's extraction is graded on one machine, not by a fleet")
    suite = loaded.dataset.suite
    asked = {arm: saved.read_asked(campaign, arm, suite) for arm in arms}
    for arm, what in asked.items():
        if what.dataset.digest != loaded.dataset.digest:
            raise ReceiptError(
                f"{campaign}: arm {arm} was asked {suite} from {what.dataset.known or what.dataset.source} (sha256"
                f" {what.dataset.digest[:16]}…), and what is read now is another file; give that one with --data"
            )
    wanted = {task for what in asked.values() for task in what.tasks}
    tasks = [task for task in loaded.tasks if task.id in wanted]
    say(f"{suite}: the grader tests itself on {len(tasks)} canonical solutions")
    made: AbstractContextManager[Grading] = (
        fleet(tasks) if fleet else Grader(tasks, cache=cache, workers=workers)
    )
    digests: dict[str, str] = {}
    with made as grader:
        graded = grader.each(_given(campaign, suite, what, say, digests) for what in asked.values())
        for (arm, what), rows in zip(asked.items(), graded, strict=True):
            scores = _scores(what, rows, grader.told(), digests[arm])
            disk.replace(saved.scores_path(campaign, arm, suite), pretty(scores))
            if sanitiser is not None and isinstance(grader, Grader):
                say(f"{suite}: EvalPlus takes the code out of {arm}'s answers")
                by_id = {task.id: task for task in tasks}
                compare(campaign, scores, by_id, grader, sanitiser, _counted(suite, say))
            yield scores


def _counted(suite: str, say: Say) -> Callable[[int, int], None]:
    """Says now and then how far EvalPlus is: it can take a minute an answer."""

    def tell(done: int, total: int) -> None:
        if done % EVERY == 0 and done < total:
            say(f"{suite}: EvalPlus is through with {done} of {total} answers")

    return tell


def _wanted(asked: Asked) -> list[saved.Key]:
    """Task and sample of every answer that was to come."""
    return [(task, sample) for task in asked.tasks for sample in range(asked.samples)]


def _given(
    campaign: Path, suite: SuiteName, asked: Asked, say: Say, digests: dict[str, str]
) -> list[Answer]:
    """The answers of one arm that count; the digest of the very bytes that they were read from joins `digests`."""
    say(f"{suite}: grading {asked.arm.name}")
    path = saved.answers_path(campaign, asked.arm.name, suite)
    data = path.read_bytes() if path.is_file() else b""
    digests[asked.arm.name] = strict.digest(data)
    stands = saved.standing(saved.parsed(path, data))
    return [stands[place] for place in _wanted(asked) if place in stands]


def _scores(asked: Asked, given: Iterable[Graded], told: Told, digest: str) -> Scores:
    """The scores of one arm, one row for every answer that was to come."""
    rows = {(row.task, row.sample): row for row in given}
    plus = asked.dataset.suite.endswith("+")
    return Scores(
        campaign=asked.campaign,
        arm=asked.arm,
        arm_digest=asked.arm_digest,
        dataset=asked.dataset,
        samples=asked.samples,
        tasks=asked.tasks,
        sampler=asked.sampler,
        concurrency=asked.concurrency,
        prompt_style=asked.prompt_style,
        answers_digest=digest,
        engagement=asked.engagement,
        versions=asked.versions,
        model=asked.model,
        machine=asked.machine,
        grader=told,
        graded=tuple(rows.get(place) or _never(*place, plus) for place in _wanted(asked)),
        ended=utc_now(),
    )


def _never(task: str, sample: int, plus: bool) -> Graded:
    """The row of an answer that was never asked for: nothing is left out of a share because it is missing."""
    return Graded(
        task=task, sample=sample, passed=False, status="request_error", truncated=False, base=False if plus else None,
        detail="never asked",
    )  # fmt: skip
