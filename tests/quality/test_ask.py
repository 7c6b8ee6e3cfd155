from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Engine, options_of
from fake_faults import Faults
from fake_model import Model
from scripts import right, script_of

from battery.bench.launch import free_port
from battery.ledger import strict
from battery.ledger.errors import LaunchError
from battery.quality.ask import Asker, Failed, said_in, seed_of
from battery.quality.tasks import Loaded, Task

SAMPLER = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 64}


@contextmanager
def asking(
    rules: dict[Task, dict[str, Any]], waits: tuple[float, ...] = (0.0, 0.0), *, model: str = "tiny", delay_ms: int = 0,
    **more: Any,
) -> Iterator[Asker]:  # fmt: skip
    """An asker of the fake engine, which answers over HTTP from this process."""
    with tempfile.TemporaryDirectory() as folder:
        script = script_of(rules, Path(folder))
        line = [
            "--port",
            "0",
            "--model",
            model,
            "--answers",
            str(script),
            "--answer-ms",
            str(delay_ms),
        ]
        options = options_of(line)
        engine = Engine(("127.0.0.1", 0), Model(options, Faults([])))
        thread = threading.Thread(target=engine.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{engine.server_address[1]}"
            deadline_s = more.pop("deadline_s", 10.0)
            yield Asker(
                url, "/v1/chat/completions", model, SAMPLER, 0, deadline_s, waits_s=waits, **more
            )
        finally:
            engine.shutdown()
            engine.server_close()
            thread.join(5)


def test_an_answer_is_kept_as_it_came(few: Loaded) -> None:
    one, other = few.tasks[:2]
    text = "```python\r\ndef plus_0(x):\n\treturn x  \n```\n\U0001f600"
    rules = {
        one: {"content": text, "reasoning": "hm", "tokens": 7},
        other: {"content": "", "tokens": 0},
    }
    with asking(rules) as asker:
        first, second = asker.ask(one, 0), asker.ask(other, 3)
    assert first is not None and second is not None
    assert (first.content, first.reasoning, first.finish_reason) == (text, "hm", "stop")
    assert (first.completion_tokens, first.attempts, first.error) == (7, 1, None)
    assert first.sampler == {**SAMPLER, "seed": seed_of(0, one.id, 0)}
    assert (second.content, second.reasoning, second.sample, second.error) == ("", None, 3, None)
    assert second.seed == seed_of(0, other.id, 3)


def test_the_request_is_the_same_for_every_arm_but_for_the_model(few: Loaded) -> None:
    task = few.tasks[0]
    one, other = (
        Asker("http://127.0.0.1:1", "/x", name, SAMPLER, 0, 1.0).body(task, 0)
        for name in ("m", "n")
    )
    assert {**one, "model": "n"} == other
    assert "min_tokens" not in one and "stream" not in one


def test_seeds_differ_by_task_and_sample_and_fit_31_bits() -> None:
    seeds = {
        seed_of(base, f"HumanEval/{n}", sample)
        for base in (0, 1)
        for n in range(164)
        for sample in range(5)
    }
    assert len(seeds) == 2 * 164 * 5 and all(0 <= seed < 2**31 for seed in seeds)
    assert seed_of(0, "HumanEval/0", 0) == 816897152, (
        "a seed that changed makes older answers another sample"
    )


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, "close", "error"])
def test_a_transport_error_is_tried_again(status: int | str, few: Loaded) -> None:
    task = few.tasks[0]
    with asking({task: {**right(task), "before": [status, status]}}) as asker:
        answer = asker.ask(task, 0)
    assert answer is not None and answer.error is None and answer.attempts == 3
    assert answer.content == right(task)["content"]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_refusal_is_not_tried_again(status: int, few: Loaded) -> None:
    task = few.tasks[0]
    with asking({task: {**right(task), "before": [status]}}) as asker:
        answer = asker.ask(task, 0)
    assert answer is not None and answer.attempts == 1
    assert answer.error == f"HTTP {status}: the engine has a bad day" and answer.content == ""
    assert answer.finish_reason is None and answer.completion_tokens is None


def test_what_fails_every_time_is_an_error_that_counts_its_attempts(few: Loaded) -> None:
    task = few.tasks[0]
    with asking({task: {"before": [503] * 9}}) as asker:
        answer = asker.ask(task, 0)
    assert answer is not None and answer.attempts == 3 and str(answer.error).startswith("HTTP 503")


def test_a_completion_is_never_asked_again(few: Loaded) -> None:
    cut, empty = few.tasks[:2]
    rules = {cut: {"content": "half", "finish": "length"}, empty: {"content": "", "tokens": 0}}
    with asking(rules) as asker:
        answers = [asker.ask(task, 0) for task in (cut, empty)]
    assert [answer is not None and answer.attempts for answer in answers] == [1, 1]
    assert [answer is not None and answer.truncated for answer in answers] == [True, False]


def test_a_deadline_that_passed_is_not_sent_again(few: Loaded) -> None:
    task = few.tasks[0]
    with asking({task: right(task)}, delay_ms=2000, deadline_s=0.3) as asker:
        answer = asker.ask(task, 0)
    assert (
        answer is not None
        and answer.attempts == 1
        and "no whole answer in 0.3 s" in str(answer.error)
    )


def test_nobody_there_is_an_error_after_all_attempts(few: Loaded) -> None:
    asker = Asker(
        f"http://127.0.0.1:{free_port()}",
        "/v1/chat/completions",
        "m",
        SAMPLER,
        0,
        5.0,
        waits_s=(0.0,),
    )
    answer = asker.ask(few.tasks[0], 0)
    assert answer is not None and answer.attempts == 2 and "refused" in str(answer.error)


def test_a_server_that_died_is_not_asked_again(few: Loaded) -> None:
    gone = Asker(f"http://127.0.0.1:{free_port()}", "/x", "m", SAMPLER, 0, 5.0, alive=lambda: False)
    answer = gone.ask(few.tasks[0], 0)
    assert answer is not None and answer.attempts == 1


def test_a_stopped_asker_leaves_no_answer(few: Loaded) -> None:
    asker = Asker(f"http://127.0.0.1:{free_port()}", "/x", "m", SAMPLER, 0, 5.0)
    asker.stop()
    assert asker.ask(few.tasks[0], 0) is None


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"sampler": {"temperature": 0.7}}, "temperature: asked 0.0, applied 0.7"),
        ({"sampler": {"top_k": 40}}, "top_k: not asked for"),
        ({"finish": "length", "tokens": 16}, "stopped for length after 16"),
        ({"tokens": 65}, "asked 64, but 65 tokens came"),
    ],
    ids=["temperature", "top_k", "own limit", "too many"],
)
def test_another_sampler_than_asked_ends_the_run(
    rule: dict[str, Any], why: str, few: Loaded
) -> None:
    task = few.tasks[0]
    with (
        asking({task: {**right(task), **rule}}, context=4096) as asker,
        pytest.raises(LaunchError, match=why),
    ):
        asker.ask(task, 0)


def test_an_answer_that_filled_the_context_was_cut_off_and_that_is_data(few: Loaded) -> None:
    task = few.tasks[0]
    rule = {"content": "x", "finish": "length", "tokens": 16}
    with asking({task: rule}, context=40) as asker:
        answer = asker.ask(task, 0)
    assert answer is not None and answer.truncated and answer.completion_tokens == 16


def test_a_secret_of_the_server_is_taken_out(few: Loaded) -> None:
    task = few.tasks[0]
    rule = {"content": "the key is tiger-tiger-burning", "reasoning": "tiger-tiger-burning"}
    with asking({task: rule}, secrets=("tiger-tiger-burning",)) as asker:
        answer = asker.ask(task, 0)
    assert (
        answer is not None
        and answer.content == "the key is <redacted>"
        and answer.reasoning == "<redacted>"
    )


def whole(**changes: object) -> bytes:
    """The body of an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]} | changes).encode()


@pytest.mark.parametrize(
    ("raw", "why", "again"),
    [
        (b"<html>", "no JSON", True),
        (b"[]", "no choice", False),
        (whole(choices=[]), "no choice", False),
        (whole(choices=[{"message": {"content": "x"}}]), "no finish reason", False),
        (
            whole(choices=[{"message": {"content": "x"}, "finish_reason": "error"}]),
            "finished with 'error'",
            True,
        ),
        (whole(error={"message": "out of room"}), "out of room", True),
    ],
    ids=["html", "list", "nothing", "no finish", "finish error", "error"],
)
def test_what_is_no_completion_says_so(raw: bytes, why: str, again: bool) -> None:
    with pytest.raises(Failed, match=why) as failed:
        said_in(raw)
    assert failed.value.again is again


def test_dialects_of_an_answer() -> None:
    assert said_in(whole()) == ("x", None, "stop", None, None, None)
    message = {
        "reasoning": "why",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    said = said_in(
        whole(
            choices=[{"message": message, "finish_reason": "length"}],
            usage={"completion_tokens": 3},
        )
    )
    assert (said.content, said.reasoning, said.finish_reason, said.completion_tokens) == (
        "ab",
        "why",
        "length",
        3,
    )
    half = said_in(
        b'{"choices": [{"message": {"content": "cut \\ud83d"}, "finish_reason": "length"}]}'
    )
    assert half.content == "cut ?", "half of a character is no JSON of ours, and still an answer"


def test_the_digest_of_a_request_leaves_out_the_model(few: Loaded) -> None:
    task = few.tasks[0]
    found = set()
    for model in ("tiny", "other"):
        with asking({task: right(task)}, model=model) as asker:
            answer = asker.ask(task, 0)
            body = {key: value for key, value in asker.body(task, 0).items() if key != "model"}
        assert answer is not None and answer.request_digest == strict.digest(body)
        found.add(answer.request_digest)
    assert len(found) == 1
