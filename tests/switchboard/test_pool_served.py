"""prompt_cache in a real server: cached tokens in the usage, the cold text, bytes in /health, and what clears it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import Engine
from test_rewind import text

Start = Callable[..., Engine]
FAMILIES = ("llama", "gemma3", "qwen3_5")
BODY = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}


def model(family: str) -> tuple[str, str]:
    return "--model", f"synthetic:tiny-{family}"


def asked(engine: Engine, prompt: list[int], **more: Any) -> tuple[list[int], int]:
    """The ids of an answer, and how many tokens of the prompt were cached."""
    answer = engine.complete(prompt, **{**BODY, **more})
    usage, timings = answer["usage"], answer["timings"]
    cached: int = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["prompt_tokens"] == len(prompt)
    assert timings["prompt_tokens"] == len(prompt) - cached, "what was cached was not read"
    return answer["choices"][0]["token_ids"], cached


@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_has_the_cold_text_and_reads_only_what_is_new(
    family: str, shared: Start, start: Start
) -> None:
    cold = shared(*model(family))
    engine = start(*model(family), "--require", "prompt_cache:exact=true")
    prompt, taken = text(3, 300), list[int]()
    for turn in range(3):
        ids, cached = asked(engine, prompt)
        assert (ids, 0) == asked(cold, prompt)
        taken.append(cached)
        prompt = [*prompt, *ids, *text(50 * turn, 90)]
    # Whole chunks of 128 of the prompts of 300, 414 and 528 tokens.
    assert taken == [0, 256, 384]
    told = engine.switch("prompt_cache")
    assert (told["state"], told["exactness"]) == ("engaged", "exact")
    counters = told["counters"]
    assert (counters["runs"], counters["hits"], counters["reused"]) == (3, 2, 640)
    health = engine.health()
    assert health["prompt_cache"]["hit_ratio"] == round(640 / (300 + 414 + 528), 4)
    assert health["prompt_cache"]["bytes"] == health["memory"]["prompt_cache"] > 0
    assert health["memory"]["active"] > health["memory"]["prompt_cache"]


@pytest.mark.parametrize("family", FAMILIES)
def test_with_drafts_and_another_cache_the_rest_is_read_to_the_token(
    family: str, start: Start
) -> None:
    switches = ("prompt_cache", "in_place_kv", "prompt_lookup:adaptive=false")
    engine = start(*model(family), *(word for one in switches for word in ("--require", one)))
    prompt = text(3, 60) * 2
    first, cached = asked(engine, prompt)
    assert cached == 0
    again, cached = asked(engine, prompt)
    assert (again, cached) == (first, len(prompt) - 1)
    longer = [*prompt, *first, 5]
    _, cached = asked(engine, longer)
    # The last token of an answer is made and not read.
    assert cached == len(longer) - 2
    assert engine.switch("prompt_lookup")["counters"]["proposals"] > 0


def test_packed_rows_are_kept_packed(start: Start) -> None:
    sizes = []
    for bits in ("", "8", "4"):
        packed = ("--require", f"quantized_kv:bits={bits},group=32") if bits else ()
        engine = start(*model("llama"), "--require", "prompt_cache", *packed)
        first = asked(engine, text(3, 250))
        assert asked(engine, text(3, 250)) == (first[0], 249)
        sizes.append(engine.health()["prompt_cache"]["bytes"])
    assert sizes[1] < 0.4 * sizes[0] and sizes[2] < 0.25 * sizes[0]


def test_clearing_makes_the_next_prompt_cold_and_no_pool_is_needed_for_it(
    start: Start, shared: Start
) -> None:
    engine = start(*model("llama"), "--require", "prompt_cache")
    prompt = text(3, 100)
    first, _ = asked(engine, prompt)
    assert asked(engine, prompt)[1] == 99
    held = engine.health()["prompt_cache"]
    gone = engine.post("/admin/cache/clear").json()
    assert gone == {"slots": held["slots"], "bytes": held["bytes"]} and gone["bytes"] > 0
    assert engine.health()["memory"]["prompt_cache"] == 0
    assert asked(engine, prompt) == (first, 0)
    plain = shared(*model("llama"))
    assert plain.post("/admin/cache/clear").json() == {"slots": 0, "bytes": 0}
    assert plain.health()["prompt_cache"] is None is plain.health()["memory"]["prompt_cache"]
    assert [asked(plain, prompt)[1] for _ in range(2)] == [0, 0], "off unless asked for"


def test_a_client_that_leaves_in_the_middle_leaves_its_prompt_and_no_harm(start: Start) -> None:
    engine = start(*model("qwen3_5"), "--require", "prompt_cache:exact=true")
    prompt = text(3, 400)
    body = {"prompt": prompt, **BODY, "max_tokens": 1000, "stream": True}
    with httpx.stream("POST", f"{engine.url}/v1/completions", json=body, timeout=60) as reply:
        next(reply.iter_lines())
    ids, cached = asked(engine, prompt)
    assert cached == 384
    engine.post("/admin/cache/clear")
    assert asked(engine, prompt) == (ids, 0)


PREFIX = "system: answer in short words and never speak of the weather."


def test_a_prewarmed_prefix_is_there_for_the_first_prompt(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "prefix.txt"
    file.write_text(PREFIX)
    engine = start(
        *model("gemma3"), "--require", "prompt_cache", "--require", f"prewarm:file={file}"
    )
    told = engine.switch("prewarm")
    assert (told["state"], told["counters"]) == ("armed", {"runs": 0})
    assert told["reason"] == f"{len(PREFIX)} tokens of {file}"
    messages = [{"role": "system", "content": PREFIX[8:]}, {"role": "user", "content": "hello"}]
    usage = engine.post("/v1/chat/completions", messages=messages, max_tokens=4).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == len(PREFIX)
    told = engine.switch("prewarm")
    assert told["state"] == "engaged"
    assert told["counters"] == {"runs": 1, "hits": 1, "reused": len(PREFIX)}
    assert engine.health()["prompt_cache"]["pinned"] == 1
    asked(engine, text(0, 40))
    assert engine.switch("prewarm")["state"] == "armed", "the latest request began in another way"
    engine.post("/admin/cache/clear")
    usage = engine.post("/v1/chat/completions", messages=messages, max_tokens=4).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
