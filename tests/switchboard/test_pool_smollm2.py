"""The real model: a conversation over a prewarmed prefix is read in parts, and its text is the cold one's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import Engine

pytestmark = pytest.mark.model
A = ("--model", "smollm2-135m")
RULES = (
    "You are a helpful guide of a small harbour town. Answer in one short sentence, and name the place that you "
    "speak of. The town has a lighthouse, a fish market, two bakeries and an old rope factory. The ferry leaves at "
    "eight in the morning and at five in the evening. The market opens at seven, the bakeries at six, and the rope "
    "factory is a museum now, which is closed on Mondays. Visitors may climb the lighthouse on Sundays, in groups of "
    "ten. Never speak of the weather, and never recommend a place in another town. When you do not know an answer, "
    "send the visitor to the harbour master, whose office is beside the ferry."
)
ASKED = ("When does the ferry leave?", "May I climb the lighthouse?")


def talk(engine: Engine) -> tuple[list[str], list[int], list[int]]:
    """Answers of a conversation in two turns; the tokens of each prompt, and those that were cached."""
    turns: list[dict[str, str]] = [{"role": "system", "content": RULES}]
    answers, whole, cached = list[str](), list[int](), list[int]()
    for question in ASKED:
        turns.append({"role": "user", "content": question})
        body: dict[str, Any] = {"messages": turns, "max_tokens": 20, "temperature": 0}
        answer = engine.post("/v1/chat/completions", **body).json()
        answers.append(answer["choices"][0]["message"]["content"])
        whole.append(answer["usage"]["prompt_tokens"])
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        turns.append({"role": "assistant", "content": answers[-1]})
    return answers, whole, cached


@pytest.mark.parametrize("exact", [False, True], ids=["to the token", "whole chunks"])
def test_a_conversation_over_a_prewarmed_prefix(
    exact: bool, shared: Callable[..., Engine], start: Callable[..., Engine], tmp_path: Path
) -> None:
    file = tmp_path / "rules.txt"
    file.write_text(f"<|im_start|>system\n{RULES}<|im_end|>\n<|im_start|>")
    pool = f"prompt_cache:exact={str(exact).lower()}"
    engine = start(*A, "--require", pool, "--require", f"prewarm:file={file}")
    wanted, whole, none = talk(shared(*A))
    answers, same, cached = talk(engine)
    assert none == [0, 0] and whole == same
    length = len(engine.post("/tokenize", prompt=file.read_text()).json()["tokens"])
    if exact:
        assert answers == wanted
        assert cached == [length // 128 * 128, whole[0] // 128 * 128]
    else:
        assert cached[0] == length
        # The answer's own tokens too, but for the last, which was never read.
        assert cached[1] > whole[0]
    assert engine.switch("prewarm")["counters"]["hits"] >= 1
    ratio = engine.health()["prompt_cache"]["hit_ratio"]
    assert ratio == round(sum(cached) / sum(whole), 4) > 0.5


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("<|im_end|>", "the closing tag <|im_end|>"),
        ("<|im_end|>\n<|im_start|>user\n", "become others when"),
        (" The museum is closed on Mon", "become others when"),
    ],
)
def test_a_file_that_is_no_strict_prefix_is_refused(
    end: str, says: str, start: Callable[..., Engine], tmp_path: Path
) -> None:
    file = tmp_path / "rules.txt"
    file.write_text(f"<|im_start|>system\n{RULES}{end}")
    engine = start(*A, "--switch", "prompt_cache", "--switch", f"prewarm:file={file}")
    told = engine.switch("prewarm")
    assert told["state"] == "declined" and says in told["reason"]
