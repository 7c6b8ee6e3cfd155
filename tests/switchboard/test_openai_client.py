"""The official client of the API, as its users would drive it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import openai
import pytest
from served import Engine
from test_endings import wait_for
from test_server import ALL

MODEL = "synthetic:tiny-llama"
TURNS = [{"role": "system", "content": "abc"}, {"role": "user", "content": "abc abc abc"}]
LONG = {"seed": 5, "extra_body": {"ignore_eos": True}}
Start = Callable[..., Engine]


@pytest.fixture
def client(shared: Start) -> Iterator[openai.OpenAI]:
    with connected(shared(*ALL)) as one:
        yield one


def connected(engine: Engine, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{engine.url}/v1", api_key=key, max_retries=0, timeout=60)


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list()
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "switchboard")
    assert model.created > 1_600_000_000
    assert client.models.retrieve(MODEL) == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("path:/no/such")


def test_a_chat_streamed_and_not_is_the_same(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "messages": TURNS, "max_tokens": 24, **LONG}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert whole.object == "chat.completion" and chunks[0].object == "chat.completion.chunk"
    assert chunks[0].choices[0].delta.role == "assistant"
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(one.delta.content or "" for one in told)
    assert text == whole.choices[0].message.content
    assert told[-1].finish_reason == whole.choices[0].finish_reason == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert whole.usage is not None and whole.usage.prompt_tokens_details is not None
    assert whole.usage.completion_tokens == 24
    assert whole.usage.prompt_tokens_details.cached_tokens == 0
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_clients_own_accumulation_of_a_stream(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "messages": TURNS, "max_tokens": 12, **LONG}
    text = client.chat.completions.create(**asked).choices[0].message.content
    assert text
    asked = {**asked, "stop": text[-1:]}  # the accumulation raises where the length ends a text
    with client.chat.completions.stream(**asked, logprobs=True, top_logprobs=2) as stream:
        final = stream.get_final_completion()
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    assert final.choices[0].message.content == whole.choices[0].message.content
    told, again = final.choices[0].logprobs, whole.choices[0].logprobs
    assert told is not None and again is not None and told.content == again.content
    assert told.content
    assert all(len(one.top_logprobs) == 2 and one.logprob <= 0 for one in told.content)


def test_a_conversation_goes_on_with_the_answer_that_came(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "max_tokens": 4, **LONG}
    first = client.chat.completions.create(messages=TURNS, **asked).choices[0].message
    for answer in (first, first.model_dump()):
        again = client.chat.completions.create(messages=[*TURNS, answer, TURNS[1]], **asked)
        assert again.choices[0].message.content


def test_completions_with_ids_stops_and_logprobs(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "prompt": [97, 98, 99], "temperature": 0, "max_tokens": 16, **LONG}
    whole = client.completions.create(**asked, logprobs=3)
    chunks = list(client.completions.create(**asked, logprobs=3, stream=True))
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(one.text for one in told) == whole.choices[0].text
    figures = whole.choices[0].logprobs
    assert figures is not None and figures.token_logprobs is not None
    assert len(figures.token_logprobs) == 16
    text = whole.choices[0].text
    stop = text[4:7]
    ended = client.completions.create(**asked, stop=[stop, "never"])
    assert ended.choices[0].text == text.partition(stop)[0]
    assert ended.choices[0].finish_reason == "stop"


def test_what_is_wrong_reaches_the_caller_as_the_clients_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=TURNS, n=2)
    assert (wrong.value.param, wrong.value.code) == ("n", "unsupported")
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=TURNS)
    assert (missing.value.param, missing.value.code) == ("model", "model_not_found")


def test_an_error_in_a_stream_is_raised_behind_what_came(start: Start) -> None:
    engine = start("--model", MODEL, "--memory-limit", "1000")
    with connected(engine) as client:
        stream = client.completions.create(model=MODEL, prompt="abc", max_tokens=5, stream=True)
        with pytest.raises(openai.APIError, match="out of memory") as told:
            list(stream)
        assert told.value.code == "out_of_memory"
        with pytest.raises(openai.InternalServerError):
            client.completions.create(model=MODEL, prompt="abc", max_tokens=5)
    assert engine.health()["failed"] == 2


def test_a_stream_that_is_closed_ends_its_generation(start: Start) -> None:
    engine = start("--model", MODEL)
    with connected(engine) as client:
        stream = client.completions.create(
            model=MODEL, prompt="abc", max_tokens=2000, stream=True, **LONG
        )
        next(iter(stream))
        stream.close()
        assert wait_for(lambda: engine.health()["cancelled"] == 1)
        assert client.completions.create(model=MODEL, prompt="abc", max_tokens=1).usage


def test_a_key(start: Start) -> None:
    engine = start(
        "--model", MODEL, "--api-key-env", "SB_KEY", env={"SB_KEY": "secret"}, key="secret"
    )
    with connected(engine, "wrong") as client, pytest.raises(openai.AuthenticationError) as told:
        client.models.list()
    assert told.value.code == "unauthorized"
    with connected(engine, "secret") as client:
        assert client.models.list().data[0].id == MODEL
