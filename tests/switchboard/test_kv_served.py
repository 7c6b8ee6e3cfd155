"""The cache switches in a real server: told in /health, counted where they write, and the same text."""

from __future__ import annotations

from collections.abc import Callable

from served import Engine

Start = Callable[..., Engine]
A = ("--model", "synthetic:tiny-qwen3")
PROMPT = [1, 2, 3, 4] * 12


def text(engine: Engine, count: int = 40) -> list[int]:
    body = {"max_tokens": count, "temperature": 0, "ignore_eos": True}
    ids: list[int] = engine.complete(PROMPT, **body)["choices"][0]["token_ids"]
    return ids


def test_in_place_is_engaged_and_leaves_the_text_alone(shared: Start) -> None:
    plain = shared(*A)
    engine = shared(*A, "--switch", "in_place_kv", "--switch", "prompt_lookup:adaptive=false")
    armed = engine.switch("in_place_kv")
    assert (armed["state"], armed["exactness"], armed["counters"]) == (
        "armed",
        "exact",
        {"runs": 0},
    )
    assert [armed["coverage"][name] for name in ("fused", "eligible", "layers")] == [4, 4, 4]
    assert text(engine) == text(plain)
    told = engine.switch("in_place_kv")
    assert told["state"] == "engaged"
    assert told["counters"]["runs"] % 4 == 0 and told["counters"]["runs"] > 0
    assert "grown" not in told["counters"], "the room of the request was allocated at once"
    assert engine.switch("prompt_lookup")["counters"]["proposals"] > 0
    assert plain.switch("in_place_kv")["state"] == "off"


def test_killed_it_is_off_and_says_so(start: Start) -> None:
    engine = start(*A, "--switch", "in_place_kv", env={"SWITCHBOARD_IN_PLACE_KV": "0"})
    told = engine.switch("in_place_kv")
    assert (told["state"], told["reason"]) == ("off", "killed by SWITCHBOARD_IN_PLACE_KV=0")
    text(engine, 4)
    assert engine.switch("in_place_kv")["counters"] == {"runs": 0}


def test_packed_rows_are_engaged_and_named_lossy(shared: Start) -> None:
    engine = shared(*A, "--require", "quantized_kv:bits=8,group=32")
    assert len(text(engine)) == 40
    told = engine.switch("quantized_kv")
    assert (told["state"], told["exactness"]) == ("engaged", "lossy")
