from __future__ import annotations

import sys
from pathlib import Path

import pytest

from battery.ledger import scrub


@pytest.mark.parametrize(
    ("words", "clean"),
    [
        (f"{Path.home()}/models/x.gguf", "~/models/x.gguf"),
        ("path:/home/me/x.gguf", "path:~/x.gguf"),
        ("--model=/Users/me/m --threads 2", "--model=~/m --threads 2"),
        (f"{sys.prefix}/bin/python -m x", "<venv>/bin/python -m x"),
        ("serve --api-key abc123 --port 1", "serve --api-key <redacted> --port 1"),
        ("serve --hf-token=abc123", "serve --hf-token=<redacted>"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: <redacted>"),
        ("key sk-abcdefgh1234", "key <redacted>"),
        ("--max-tokens 48 tokens", "--max-tokens 48 tokens"),
    ],
)
def test_text_loses_paths_and_secrets_only(words: str, clean: str) -> None:
    assert scrub.text(words) == clean


def test_a_table_hides_values_by_name_and_goes_deep() -> None:
    table = {
        "API_KEY": "x",
        "tokens": ["48"],
        "inner": {"HF_TOKEN": "y", "path": "/home/me/z"},
        "n": 3,
    }
    assert scrub.deep(table) == {
        "API_KEY": "<redacted>",
        "tokens": ["48"],
        "inner": {"HF_TOKEN": "<redacted>", "path": "~/z"},
        "n": 3,
    }


def test_a_command_hides_the_word_behind_a_secret_flag() -> None:
    assert scrub.command(("engine", "--api-key", "s", "--tokenizer", "t", "--password=p")) == (
        "engine", "--api-key", "<redacted>", "--tokenizer", "t", "--password=<redacted>",
    )  # fmt: skip
