"""The real model: it is the right one, reads as its metadata says, and the switches leave its text alone.

SWITCHBOARD_GREEDY=10x128 runs the comparison of the three arms at its full size (some minutes).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mlx.core as mx
import pytest
from served import Engine

from switchboard import lm
from switchboard.load import _fill
from switchboard.models import resolve
from switchboard.sources import gguf

pytestmark = pytest.mark.model
Start = Callable[..., Engine]
A = ("--model", "smollm2-135m")
B = (*A, "--switch", "fused_qkv", "--switch", "fused_gate_up")
C = (*B, "--switch", "prompt_lookup", "--switch", "adaptive_depth")
PROMPTS, TOKENS = (int(part) for part in os.environ.get("SWITCHBOARD_GREEDY", "10x16").split("x"))
ASKED = [
    "What is gravity?",
    "Write a Python function that adds two numbers.",
    "Repeat after me: the quick brown fox jumps over the lazy dog.",
    "List the days of the week, twice.",
    "Tell a short story about a lighthouse.",
    "Why is the sky blue?",
    "Rewrite this: def add(a, b):\n    return a + b\nwith the name plus.",
    "Name three rivers and where they flow.",
    "Count from one to twenty in words.",
    "Explain how bread is made.",
]
PARAGRAPH = (
    "The sun rises in the east and sets in the west. Water boils at one hundred degrees Celsius at "
    "sea level, and it freezes at zero."
)

RECORDED = {
    "Hello world 12345 it's  a test\n\n\tdef f(x): return x**2": [
        19556,
        905,
        216,
        33,
        34,
        35,
        36,
        37,
        357,
        506,
        216,
        253,
        1028,
        1116,
        197,
        1604,
        275,
        24,
        104,
        727,
        1003,
        1792,
        828,
        34,
    ],
    "Der Käse ist süß — naïve façade 😀🎉 漢字": [
        30913,
        659,
        9023,
        313,
        43424,
        262,
        7170,
        34878,
        1841,
        15486,
        46494,
        40852,
        40303,
        218,
        10813,
        232,
        227,
        17097,
        137,
        112,
        36518,
    ],
    "It was the best of times, it was the worst of times, 2024-05-06 3.14159": [
        1589,
        436,
        260,
        1450,
        282,
        1711,
        28,
        357,
        436,
        260,
        9250,
        282,
        1711,
        28,
        216,
        34,
        32,
        34,
        36,
        29,
        32,
        37,
        29,
        32,
        38,
        216,
        35,
        30,
        33,
        36,
        33,
        37,
        41,
    ],
    " leading  spaces and\r\nCRLF's we'll they've I'd": [
        2899,
        216,
        5600,
        284,
        201,
        198,
        9088,
        60,
        54,
        506,
        392,
        3060,
        502,
        3543,
        339,
        6737,
    ],
}


def perplexity(weights: dict[str, mx.array], config: dict[str, Any], ids: list[int]) -> float:
    model = _fill(lm.build(config), weights, gguf.quantisation)
    logits = model(mx.array([ids[:-1]]))[0]
    shares = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    picked = mx.take_along_axis(shares, mx.array(ids[1:])[:, None], axis=-1)
    return float(mx.exp(-picked.mean()).item())


def test_perplexity_is_low_and_the_wrong_rotary_layout_is_not() -> None:
    place = resolve("smollm2-135m").place
    assert place is not None
    weights, config, metadata = gguf.read(place)
    ids = gguf.text(metadata, place).encode(PARAGRAPH)
    assert perplexity(weights, config, ids) < 14
    assert perplexity(weights, {**config, "rope_traditional": False}, ids) > 28


def test_tokens_are_llama_cpps() -> None:
    """Ids as llama.cpp gives them for the same file (recorded)."""
    place = resolve("smollm2-135m").place
    assert place is not None
    text = gguf.text(gguf.read(place)[2], place)
    for words, ids in RECORDED.items():
        assert text.encode(words) == ids
        assert b"".join(map(text.token_bytes, ids)).decode() == words


def test_the_chat_template_is_the_metadatas(shared: Start) -> None:
    engine = shared(*A)
    expected = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    chat = engine.post("/tokenize", messages=[{"role": "user", "content": "Hi"}]).json()
    assert chat == engine.post("/tokenize", prompt=expected).json()


def test_it_answers(shared: Start) -> None:
    body = {
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
    }
    reply = shared(*A).post("/v1/chat/completions", max_tokens=20, **body).json()
    assert "Paris" in reply["choices"][0]["message"]["content"]
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert shared(*A).health()["model"]["digest"].startswith("b179c9523d0e")


def test_characters_of_several_tokens_arrive_whole(shared: Start) -> None:
    engine = shared(*A)
    ids = engine.post("/tokenize", prompt="漢字😀").json()["tokens"]
    assert len(ids) > 3, "each character takes several tokens"
    events = engine.events(
        "/v1/completions",
        prompt="Repeat: 漢字😀 漢字😀 漢字😀 漢字😀 漢字😀 漢",
        max_tokens=24,
        temperature=0,
        ignore_eos=True,
    )
    choices = [event["choices"][0] for event in events if event["choices"]]
    assert all("\ufffd" not in one["text"] for one in choices[:-1])
    assert sum(len(one["token_ids"]) for one in choices) == 24
    assert any(len(one["token_ids"]) > 1 for one in choices), "ids wait with their character"


def answers(engine: Engine) -> list[list[int]]:
    def one(question: str) -> list[int]:
        reply = engine.post(
            "/v1/chat/completions",
            messages=[{"role": "user", "content": question}],
            temperature=0,
            max_tokens=TOKENS,
            ignore_eos=True,
        ).json()
        return reply["choices"][0]["token_ids"]

    return [one(question) for question in ASKED[:PROMPTS]]


def test_three_arms_write_the_same_greedy_text(shared: Start) -> None:
    engines = [shared(*flags) for flags in (A, B, C)]
    coverage = engines[1].switch("fused_qkv")["coverage"]
    assert (coverage["fused"], coverage["eligible"], coverage["layers"]) == (30, 30, 30)
    with ThreadPoolExecutor(2) as pool:
        plain, fused, looked_up = pool.map(answers, engines)
    assert all(len(ids) == TOKENS for ids in plain)
    assert fused == plain
    assert looked_up == plain
    names = ("fused_qkv", "fused_gate_up", "prompt_lookup", "adaptive_depth")
    assert [engines[2].switch(name)["state"] for name in names] == ["engaged"] * 4
    assert [engines[0].switch(name)["state"] for name in names] == ["off"] * 4
