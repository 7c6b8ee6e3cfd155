from __future__ import annotations

import sys
from pathlib import Path

import msgspec
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
        ("OPENAI_API_KEY=abcdefgh and on", "OPENAI_API_KEY=<redacted> and on"),
        ('Namespace(api_key="abcdefgh", port=1)', 'Namespace(api_key="<redacted>", port=1)'),
        ("{'api_key': ['abcdefgh'], 'n': 1}", "{'api_key': ['<redacted>'], 'n': 1}"),
        ('"x-api-key": "abcdefgh"', '"x-api-key": "<redacted>"'),
        ("authorization: Basic YWJjOmRlZg==", "authorization: <redacted>"),
        ("--touch-kb-per-token 1000", "--touch-kb-per-token 1000"),
        ("token: 5, tokens = 7, first_token_s=0.2", "token: 5, tokens = 7, first_token_s=0.2"),
        ("KeyError: 'secrets of the deep'", "KeyError: 'secrets of the deep'"),
        ("--max-tokens 48 tokens", "--max-tokens 48 tokens"),
        (f"with gh{'p_' + 'a1' * 18} in", "with <redacted> in"),
        (f"github{'_pat_' + 'a1' * 20}", "<redacted>"),
        (f"AK{'IA' + 'Q7' * 8}", "<redacted>"),
        (f"xo{'xb-' + '12-ab' * 4}", "<redacted>"),
        (f"AI{'za' + 'Sy' * 17}", "<redacted>"),
        (
            "https://me:hunter2@host/x and http://host:80/@y",
            "https://<redacted>@host/x and http://host:80/@y",
        ),
        (f"a -----BEGIN RSA PRI{'VATE KEY'}-----\nMII\nabc", "a <redacted>"),
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


class Record(msgspec.Struct, frozen=True):
    words: str
    facts: dict[str, object]
    times: tuple[int, ...]
    said: tuple[str, ...] = ()


def test_a_record_loses_known_secrets_in_whatever_words() -> None:
    env = {"ENGINE_API_KEY": "hunter2-hunter2", "PATH": "/bin", "SHORT_KEY": "abc"}
    secrets = scrub.hidden_in(
        env, ("serve", "--auth-token", "tell-no-one", "--password=open-sesame")
    )
    assert secrets == ("hunter2-hunter2", "abc", "tell-no-one", "open-sesame")
    told = Record(
        "loaded with hunter2-hunter2, abc",
        {"a": ["x tell-no-one"], "n": 3},
        (1, 2),
        ("tell-no-one",),
    )
    assert scrub.record(told, secrets) == Record(
        "loaded with <redacted>, abc", {"a": ["x <redacted>"], "n": 3}, (1, 2), ("<redacted>",)
    )


def test_a_list_of_texts_under_a_secret_name_is_hidden_and_numbers_are_not() -> None:
    assert scrub.deep({"api_key": ["a", "b"], "token_ids": [1, 2]}) == {
        "api_key": "<redacted>",
        "token_ids": [1, 2],
    }
