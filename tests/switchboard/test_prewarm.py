"""A file is read ahead only where its tokens are the beginning of whatever goes on from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served import Engine, refused

from switchboard.bisect.subject import open_plain
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.errors import Declined
from switchboard.session import Session
from switchboard.switches.prewarm import prefix
from switchboard.text import Text, byte_alphabet, from_byte_level_bpe

TAGS = ["<|im_start|>", "<|im_end|>", "<|bye|>"]
MERGES = [("Ċ", "Ċ"), ("h", "e"), ("he", "n"), (".", "."), ("Ġ", "t"), ("n", "ow")]


def bpe() -> Text:
    tokens = [*byte_alphabet(), "ow", *("".join(pair) for pair in MERGES), *TAGS]
    merges = [("o", "w"), *MERGES]
    return from_byte_level_bpe(
        tokens=tokens,
        merges=[" ".join(pair) for pair in merges],
        special=TAGS,
        digits=False,
        eos=[tokens.index("<|im_end|>"), tokens.index("<|bye|>")],
        template=None,
    )


BPE = bpe()


@pytest.mark.parametrize("end", ["<|im_end|>", "<|im_end|>\n", "</s>", "</think>\n\n", "<|eot_id|>", "<end_of_turn>",
                                 "<|endoftext|>", "<|bye|>", "</tool_call> "])  # fmt: skip
def test_a_file_that_ends_with_a_closing_tag_is_refused(end: str) -> None:
    with pytest.raises(
        Declined, match=r"file f: it ends with (the closing tag|an end token)"
    ) as told:
        prefix(f"<|im_start|>system\nbe brief{end}", BPE, "f")
    assert "the tag that opens the next turn" in str(told.value)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("<|im_start|>user\n", r"1 of its 6 tokens \('\\n' at the end\) become others when '\\n'"),
        ("when he", r"tokens \('he' at the end\) become others when 'n' follows"),
        ("the end.", r"1 of its \d+ tokens \('\.' at the end\) become others when '\.' follows"),
        ("he said ", r"\(' ' at the end\) become others when 't' follows"),
        ("", "it holds no token"),
    ],
)
def test_a_file_whose_tokens_change_when_text_follows_is_refused(file: str, says: str) -> None:
    with pytest.raises(Declined, match=says):
        prefix(file, BPE, "f")


@settings(max_examples=200, deadline=None)
@given(st.text("hen.\n tow1", max_size=12), st.text("hen.\n tow1é", max_size=6))
def test_what_is_taken_stays_whatever_follows(written: str, behind: str) -> None:
    """Right behind a tag always; elsewhere wherever it is not refused."""
    opened = f"{written}<|im_start|>"
    assert prefix(opened, BPE, "f") == BPE.encode(opened + behind)[: len(BPE.encode(opened))]
    try:
        ids = prefix(written, BPE, "f")
    except Declined:
        return
    assert BPE.encode(written + behind)[: len(ids)] == ids


def reason(*asked: str) -> str | None:
    subject = open_plain("synthetic:tiny-llama", "auto")
    board = Board(parse_asked([*asked], []), {})
    Session(subject.loaded, board, None, 0)
    return board.positions["prewarm"].reason


def test_what_cannot_be_read_ahead_is_told(tmp_path: Path) -> None:
    file = tmp_path / "f"
    prewarm, pool = f"prewarm:file={file}", "prompt_cache"
    assert reason("prewarm") == "it stands on prompt_cache, which is off"
    assert reason("prewarm", pool) == "no file is given: ask for prewarm:file=PATH"
    assert "No such file" in str(reason(prewarm, pool))
    file.write_text("short")
    told = str(reason(prewarm, pool))
    assert told.endswith("it has 5 tokens, and prompt_cache takes 16 or more, no less")
    file.write_text("x" * 100)
    told = str(reason(prewarm, f"{pool}:exact=true"))
    assert "100 tokens" in told and "whole chunks of 128 (0 tokens of it)" in told
    assert "more than prompt_cache's 1000 bytes" in str(reason(prewarm, f"{pool}:bytes=1000"))
    assert reason(prewarm, pool) == f"100 tokens of {file}"
    file.write_text("x" * 3000)
    assert "3000 tokens; the context has 2048" in str(reason(prewarm, pool))
    file.write_bytes(b"\xff\xfe\xfd" * 20)
    assert "codec can't decode" in str(reason(prewarm, pool))


def test_a_refused_file_is_told_in_health_and_ends_a_start_that_requires_it(
    start: Callable[..., Engine], tmp_path: Path
) -> None:
    file = tmp_path / "f"
    file.write_text("system: answer in short words.</s>")
    words = ("--model", "synthetic:tiny-llama", "--switch", "prompt_cache")
    told = start(*words, "--switch", f"prewarm:file={file}").switch("prewarm")
    assert told["state"] == "declined" and "closing tag </s>" in told["reason"]
    status, line = refused(*words, "--port", "0", "--require", f"prewarm:file={file}")
    assert status == 2 and "closing tag </s>" in line
