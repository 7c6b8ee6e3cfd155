"""Text in pieces: whole characters, exact ids, stop strings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from switchboard.sources import folder
from switchboard.text import Pieces, Text, byte_alphabet, bytes_only, from_byte_level_bpe, joined


def one_byte(token: int) -> bytes:
    return bytes([token])


def run(tokens: list[int], stops: list[str], size: int = 1) -> tuple[str, list[int], list[str]]:
    pieces = Pieces(one_byte, stops)
    texts, ids = [], []
    for place in range(0, len(tokens), size):
        piece = pieces.push(tokens[place : place + size])
        if piece is not None:
            assert piece.text, "a piece always carries text"
            texts.append(piece.text)
            ids += piece.ids
    rest = pieces.finish()
    return "".join(texts) + rest.text, ids + rest.ids, texts


@given(st.text(max_size=20), st.integers(1, 4))
def test_text_and_ids_survive_any_cut(text: str, size: int) -> None:
    tokens = list(text.encode())
    back, ids, _ = run(tokens, [], size)
    assert back == text
    assert ids == tokens


def test_an_incomplete_character_waits_with_its_ids() -> None:
    pieces = Pieces(one_byte)
    smile = list("a😀".encode())
    assert pieces.push(smile[:3]).text == "a"  # type: ignore[union-attr]
    assert pieces.push(smile[3:4]) is None
    last = pieces.push(smile[4:])
    assert last is not None
    assert (last.text, last.ids) == ("😀", smile[3:])


def test_the_ids_of_a_character_go_with_it() -> None:
    pieces = Pieces(one_byte)
    smile = list("😀".encode())
    assert [pieces.push([token]) for token in smile[:3]] == [None, None, None]
    last = pieces.push(smile[3:])
    assert last is not None
    assert last.ids == smile


def test_bytes_that_never_become_a_character_are_shown_at_the_end() -> None:
    assert run(list("é".encode())[:1], [])[0] == "�"


@given(st.text("ab", max_size=12), st.text("ab", min_size=1, max_size=3), st.integers(1, 3))
def test_nothing_after_a_stop_string_and_nothing_of_it(text: str, stop: str, size: int) -> None:
    back, _, _ = run(list(text.encode()), [stop], size)
    assert back == text.partition(stop)[0]


def test_tokens_after_the_stop_are_not_taken() -> None:
    pieces = Pieces(one_byte, ["b"])
    piece = pieces.push(list(b"abcd"))
    assert piece is not None
    assert (piece.text, piece.ids, pieces.taken, pieces.stopped) == ("a", [97, 98], 2, True)


def test_every_byte_has_its_character() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert byte_alphabet()["Ġ"] == 32


def test_byte_level_bpe_merges_splits_digits_and_knows_special_tokens() -> None:
    letters = {byte: char for char, byte in byte_alphabet().items()}
    tokens = ["<end>", *[letters[byte] for byte in range(256)], "ab", "12"]
    text = from_byte_level_bpe(
        tokens=tokens, merges=["a b", "1 2"], special=["<end>"], digits=True, eos=[0], template=None
    )
    ids = text.encode("ab12<end>")
    assert [tokens[one] for one in ids] == ["ab", "1", "2", "<end>"]
    assert b"".join(map(text.token_bytes, ids)) == b"ab12"
    assert text.chat([{"role": "user", "content": "hi"}]) == "user: hi\nassistant: "


def test_the_synthetic_tokenizer_reads_back_what_it_wrote() -> None:
    text = bytes_only(512)
    assert b"".join(map(text.token_bytes, text.encode("häuser"))).decode() == "häuser"
    assert text.token_bytes(256) == b""
    assert text.token_bytes(300).isalpha()


@given(
    st.text("ab", max_size=12),
    st.text("ab", min_size=1, max_size=3),
    st.integers(0, 13),
    st.integers(1, 4),
)
def test_a_stop_string_counts_behind_the_least_tokens(
    text: str, stop: str, least: int, size: int
) -> None:
    pieces = Pieces(one_byte, [stop], least)
    back = ""
    for place in range(0, len(text), size):
        piece = pieces.push(list(text[place : place + size].encode()))
        back += piece.text if piece else ""
    back += pieces.finish().text
    assert back == text[:least] + text[least:].partition(stop)[0]
    assert pieces.stopped == (stop in text[least:])


@given(st.text(max_size=20), st.integers(1, 4))
def test_offsets_and_entries_go_with_their_tokens(text: str, size: int) -> None:
    raw = text.encode()
    pieces = Pieces(one_byte)
    cuts = range(0, len(raw), size)
    found = [pieces.push(raw[at : at + size], list(range(at, at + size))) for at in cuts]
    whole = joined([*(one for one in found if one), pieces.finish()])
    assert whole.entries == list(range(len(raw)))
    whole_characters = [len(raw[:place].decode(errors="ignore")) for place in range(len(raw))]
    assert whole.offsets == whole_characters


def test_a_template_gets_what_published_ones_use() -> None:
    plain = bytes_only(512)
    template = (
        "{{ bos_token }}{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{{ m | tojson }}{% endfor %}{{ eos_token }}"
    )
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    text = Text(plain.encode, plain.token_bytes, (256,), template, 512, names=names)
    turns = [{"role": "user", "content": "<é>"}, {"role": "user", "content": "x"}]
    assert text.chat(turns) == '<s>{"role": "user", "content": "<é>"}</s>'


@pytest.mark.parametrize("listed", [False, True])
def test_a_folder_tells_its_template_the_special_tokens(tmp_path: Path, listed: bool) -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "<s>": 1, "</s>": 2}, merges=[]))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    template = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": template}]
    settings = {
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "pad_token": None,
        "chat_template": named if listed else template,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    text = folder.text(tmp_path, {})
    assert text.chat([{"role": "user", "content": "a"}]) == "<s>a</s>"
    assert text.eos == (2,)
