"""A real server on a tiny model: the contract, the switches' states, errors, and the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from served import Engine, refused

from switchboard.registry import known

TINY = ("--model", "synthetic:tiny-llama")
FUSED = ("--switch", "fused_qkv", "--switch", "fused_gate_up")
ALL = (*TINY, *FUSED, "--switch", "prompt_lookup")
Start = Callable[..., Engine]


def texts(events: list[dict[str, Any]]) -> tuple[str, list[int]]:
    choices = [event["choices"][0] for event in events if event["choices"]]
    text = "".join(one.get("text") or one.get("delta", {}).get("content", "") for one in choices)
    return text, [token for one in choices for token in one.get("token_ids", [])]


def test_health_names_everything(shared: Start) -> None:
    health = shared(*TINY).health()
    assert health["status"] == "ok"
    assert health["pid"] == shared(*TINY).process.pid, "the preload keeps the process id"
    assert health["model"]["synthetic"] is True
    assert health["model"]["context"] == 2048
    assert set(health["switches"]) == set(known())
    assert {one["state"] for one in health["switches"].values()} == {"off"}
    assert health["memory"]["source"] == "mlx"
    assert len(health["config_digest"]) == 64
    assert health["build"]["mlx"] == health["packages"]["mlx"]


def test_off_armed_engaged_and_disengaged_again(start: Start) -> None:
    engine = start(*ALL)
    names = ("fused_qkv", "fused_gate_up", "prompt_lookup")
    assert [engine.switch(name)["state"] for name in names] == ["armed"] * 3
    assert [engine.switch(name)["counters"]["runs"] for name in names] == [0, 0, 0]
    engine.complete("abcabcabc", temperature=0, max_tokens=12, ignore_eos=True)
    assert [engine.switch(name)["state"] for name in names] == ["engaged"] * 3
    coverage = engine.switch("fused_qkv")["coverage"]
    assert (coverage["fused"], coverage["eligible"], coverage["layers"]) == (4, 4, 4)
    # One token leaves nothing to look up: the latest request did not use that switch.
    engine.complete("abc", temperature=0, max_tokens=1)
    assert [engine.switch(name)["state"] for name in names] == ["engaged", "engaged", "armed"]
    assert engine.health()["requests"] == 2


def test_kill_switch(start: Start) -> None:
    engine = start(*TINY, *FUSED, env={"SWITCHBOARD_FUSED_QKV": "0"})
    engine.complete("abc", max_tokens=3, temperature=0)
    killed = engine.switch("fused_qkv")
    assert (killed["state"], killed["counters"]["runs"]) == ("off", 0)
    assert killed["reason"] == "killed by SWITCHBOARD_FUSED_QKV=0"
    assert engine.switch("fused_gate_up")["state"] == "engaged"


def test_mixed_quantisation_and_what_declines_are_told_over_http(start: Start) -> None:
    flags = ("--model", "synthetic:tiny-llama-mixed", "--format", "quantized")
    engine = start(*flags, "--switch", "fused_qkv", "--switch", "fused_experts")
    told = engine.switch("fused_qkv")
    assert told["state"] == "armed"
    assert "model.layers.2.self_attn: q_proj has bits 4, v_proj has 8" in told["reason"]
    assert (told["coverage"]["fused"], told["coverage"]["partly"]) == (2, 2)
    assert told["coverage"]["classes"]["q_proj+k_proj+v_proj q4-g32"]["fused"] == 2
    told = engine.switch("fused_experts")
    assert told["state"] == "declined"
    assert "no layer routes its input to experts" in told["reason"]
    assert refused(*flags, "--port", "0", "--require", "fused_experts")[0] == 2


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((*TINY, "--switch", "fused_qkw"), "did you mean 'fused_qkv'"),
        ((*TINY, "--switch", "prompt_lookup:draf=3"), "did you mean 'draft'"),
        (("--model", "smollm2-135"), "did you mean 'smollm2-135m'"),
        ((*TINY, "--host", "0.0.0.0"), "--api-key-env"),
        ((*TINY, "--format", "int3"), "known formats"),
    ],
)
def test_a_wrong_start_ends_in_one_line(flags: tuple[str, ...], says: str) -> None:
    status, line = refused("--port", "0", *flags)
    assert status == 2
    assert line.startswith("switchboard: ")
    assert says in line


def test_a_taken_port(shared: Start) -> None:
    status, line = refused(*TINY, "--port", str(shared(*TINY).port))
    assert status == 5
    assert "another --port" in line


def test_streams_carry_exactly_the_tokens_of_the_whole_answer(shared: Start) -> None:
    body = {"prompt": "hello hello hello", "temperature": 0, "max_tokens": 40, "ignore_eos": True}
    whole = shared(*TINY).complete(**body)
    for engine in (shared(*TINY), shared(*ALL)):
        events = engine.events("/v1/completions", **body)
        text, ids = texts(events)
        assert ids == whole["choices"][0]["token_ids"]
        assert text == whole["choices"][0]["text"]
        assert len(ids) == 40
        middle = [event["choices"][0] for event in events if event["choices"]]
        assert all(one["text"] for one in middle[:-1]), "only the last event may be empty"
        assert [one["finish_reason"] for one in middle] == [None] * (len(middle) - 1) + ["length"]
        last = events[-1]
        assert last["choices"] == []
        assert last["usage"] == {
            "prompt_tokens": 17,
            "completion_tokens": 40,
            "total_tokens": 57,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        assert last["timings"]["prompt_tokens"] == 17
        assert last["timings"]["decode_tokens"] == 39
        assert last["sampler"]["max_tokens"] == 40
    timings = last["timings"]
    assert timings["steps"] + timings["accepted"] == 39, (
        "a pass brings one token and those accepted"
    )
    assert timings["proposed"] >= timings["accepted"] > 0
    assert sum(timings["accepted_by_depth"]) == timings["accepted"]


def test_chat_begins_with_the_role(shared: Start) -> None:
    messages = [{"role": "user", "content": "hi"}]
    events = shared(*TINY).events("/v1/chat/completions", messages=messages, max_tokens=5, seed=1)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "token_ids" not in events[0]["choices"][0]
    count = shared(*TINY).post("/tokenize", messages=messages).json()["count"]
    assert events[-1]["usage"]["prompt_tokens"] == count == len("user: hi\nassistant: ")


@pytest.mark.parametrize("flags", [TINY, ALL])
def test_a_seed_gives_the_same_text_and_another_seed_another(
    shared: Start, flags: tuple[str, ...]
) -> None:
    def ids(seed: int) -> list[int]:
        body = {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "max_tokens": 24, "seed": seed}
        return shared(*flags).complete("abab", ignore_eos=True, **body)["choices"][0]["token_ids"]

    assert ids(7) == ids(7)
    assert ids(7) != ids(8)


def test_end_tokens_are_held_off_and_ignored(shared: Start) -> None:
    engine = shared(*TINY)
    push = {"logit_bias": {"256": 100}, "temperature": 0}
    at_once = engine.complete("abc", **push)
    assert at_once["choices"][0]["finish_reason"] == "stop"
    assert at_once["usage"]["completion_tokens"] == 0, "an end token is not counted"
    later = engine.complete("abc", min_tokens=6, **push)
    assert later["usage"]["completion_tokens"] == 6
    assert later["choices"][0]["finish_reason"] == "stop"
    never = engine.complete("abc", ignore_eos=True, max_tokens=9, **push)
    assert never["usage"]["completion_tokens"] == 9
    assert 256 not in never["choices"][0]["token_ids"]
    assert never["choices"][0]["finish_reason"] == "length"


def test_stop_strings_end_the_text(shared: Start) -> None:
    engine = shared(*ALL)
    # With one letter pushed far up every token is that letter.
    body = {"logit_bias": {"97": 100}, "temperature": 0, "max_tokens": 20}
    assert engine.complete("x", **body)["choices"][0]["text"] == "a" * 20
    stopped = engine.complete("x", stop=["aaa"], **body)
    assert stopped["choices"][0]["text"] == ""
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"prompt": "a", "temprature": 1}, 400, "did you mean 'temperature'"),
        ({"prompt": "a", "n": 2}, 400, "neutral value only"),
        ({"prompt": "a", "top_p": 0}, 400, "top_p"),
        ({"prompt": "a", "max_tokens": "ten"}, 400, "max_tokens"),
        ({"prompt": "a" * 2048}, 400, "2048 tokens and the context holds 2048"),
        ({"prompt": [600]}, 400, "outside the vocabulary"),
        ({"prompt": ""}, 400, "length >= 1 - at `$.prompt`"),
        ({"prompt": "a", "model": "other"}, 404, "is not served here"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    shared: Start, body: dict[str, Any], status: int, says: str
) -> None:
    reply = shared(*TINY).post("/v1/completions", **body)
    assert reply.status_code == status
    assert says in reply.json()["error"]["message"]


def test_ignored_fields_are_told_back(shared: Start) -> None:
    assert shared(*TINY).complete("a", max_tokens=1, user="me")["ignored"] == ["user"]


def test_routes(shared: Start) -> None:
    engine = shared(*TINY)
    assert httpx.get(f"{engine.url}/v1/models").json()["data"][0]["id"] == "synthetic:tiny-llama"
    assert httpx.get(f"{engine.url}/nowhere").json()["error"]["message"].startswith("/nowhere")
    assert engine.post("/tokenize", prompt="héllo").json() == {
        "count": 6,
        "tokens": list("héllo".encode()),
    }
    before = engine.complete("abc", max_tokens=2)["timings"]["peak_bytes"]
    assert engine.post("/admin/memory/reset_peak").json()["peak_before"] >= before
    assert engine.health()["memory"]["peak"] <= before
