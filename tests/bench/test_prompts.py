from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from battery.bench import prompts
from battery.ledger.errors import PlanError


def count(messages: prompts.Messages) -> list[int]:
    """A tokenizer in which a token is up to four letters, a sign, or a blank; 7 tokens are the template's."""
    text = "\n".join(message["content"] for message in messages)
    pieces = re.findall(r"[A-Za-z0-9]{1,4}|\s+|[^\w\s]|_", text)
    return [0] * 7 + [hash(piece) % 50_000 for piece in pieces]


@settings(deadline=None, max_examples=25)
@example("code", 240, 240)  # the next word stood behind more white space than letters were tried
@example("code", 587607, 120)  # the passage began with a ruler of a hundred signs
@given(st.sampled_from(["prose", "code", "edit"]), st.integers(0, 10**6), st.integers(120, 3000))
def test_a_prompt_has_the_length_of_its_rung(workload: str, seed: int, rung: int) -> None:
    prompt, tokens = prompts.size(workload, seed, rung, count, tolerance=8)
    assert 0 <= rung - len(tokens) <= 8 and prompt.tokens == len(tokens)
    again = prompts.compose(workload, seed, rung, prompt.words, prompt.letters)
    assert len(count(again)) == prompt.tokens


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_beginning() -> None:
    assert prompts.compose("prose", 5, 256, 100) == prompts.compose("prose", 5, 256, 100)
    openings = {prompts.compose("prose", seed, 256, 100)[0]["content"][:10] for seed in range(200)}
    assert len(openings) == 200


@pytest.mark.parametrize(("workload", "natural"), [("prose", 0.01), ("code", 0.08), ("edit", 0.08)])
def test_text_is_natural_and_does_not_repeat_itself(workload: str, natural: float) -> None:
    text = prompts.compose(workload, 11, 0, 3000)[1]["content"]
    lines = [line.strip() for line in text.splitlines() if len(line.strip()) > 60]
    repeated = sum(n - 1 for n in Counter(lines).values())
    assert repeated <= natural * len(lines)
    words = text.split()
    fives = Counter(tuple(words[i : i + 8]) for i in range(len(words) - 8))
    assert sum(n - 1 for n in fives.values()) < 0.06 * len(fives)


def test_code_that_names_the_package_index_is_left_out() -> None:
    assert len(prompts.corpus("code").paragraphs) > 100
    assert not [text for text in prompts.corpus("code").paragraphs if "pypi" in text.lower()]


def test_shared_beginnings_are_measured() -> None:
    sized = prompts.size_all([("prose", 150, 1), ("prose", 150, 2), ("prose", 300, 3)], count, 8)
    assert [prompt.rung for prompt in sized] == [150, 150, 300]
    assert all(prompt.shared_prefix < 12 for prompt in sized)


def test_a_rung_too_short_for_the_frame_is_an_error() -> None:
    with pytest.raises(PlanError, match="cannot hold the prompt's frame"):
        prompts.size("prose", 1, 32, count, 8)


def test_a_prompt_that_would_repeat_the_corpus_is_an_error() -> None:
    with pytest.raises(PlanError, match="would repeat itself"):
        prompts.compose("prose", 1, 10**7, 10**7)
