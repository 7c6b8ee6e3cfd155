"""What was asked, what is killed, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from switchboard import blas, pages
from switchboard.__main__ import threads_of
from switchboard.board import Board
from switchboard.config import Asked, Config, parse_asked
from switchboard.errors import ConfigError, ModelError, SwitchRefused
from switchboard.models import PACKAGES, fetch, resolve
from switchboard.registry import Target, known
from switchboard.sources import package
from switchboard.wire import ChatBody, read

NOTHING = Target(None, None)


def test_every_switch_file_declares_itself() -> None:
    assert set(known()) == {
        "block_verify",
        "cascade",
        "compiled_step",
        "draft_model",
        "fast_norm",
        "fused_epilogue",
        "fused_experts",
        "fused_gate_up",
        "fused_qkv",
        "in_place_kv",
        "masked_prefill",
        "prewarm",
        "prompt_cache",
        "prompt_lookup",
        "quantized_kv",
        "shared_rotary",
        "text_only",
        "typical",
    }


def test_switches_parse() -> None:
    asked = parse_asked(["prompt_lookup:ngram=2,draft=7"], ["fused_qkv"])
    assert asked == (
        Asked("prompt_lookup", {"ngram": "2", "draft": "7"}),
        Asked("fused_qkv", {}, required=True),
    )
    board = Board(asked, {})
    assert board.positions["prompt_lookup"].told()["options"]["draft"] == 7


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fused_qvk", "did you mean 'fused_qkv'"),
        ("prompt_lookup:ngrams=3", "did you mean 'ngram'"),
        ("prompt_lookup:ngram=three", "ngram"),
        ("prompt_lookup:ngram=0", "ngram"),
        ("prompt_lookup:ngram", "not key=value"),
        ("fused_qkv:ngram=3", "option 'ngram' is not known"),
    ],
)
def test_a_typing_error_is_an_error(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Board(parse_asked([text], []), {})


def test_the_same_switch_twice_is_an_error() -> None:
    with pytest.raises(ConfigError, match="more than once"):
        parse_asked(["fused_qkv"], ["fused_qkv"])


def test_a_kill_switch_wins_and_says_so() -> None:
    board = Board(parse_asked(["fused_qkv"], []), {"SWITCHBOARD_FUSED_QKV": "0"})
    told = board.positions["fused_qkv"].told()
    assert (told["asked"], told["state"]) == (True, "off")
    assert told["reason"] == "killed by SWITCHBOARD_FUSED_QKV=0"
    with pytest.raises(SwitchRefused, match="killed by"):
        Board(parse_asked([], ["fused_qkv"]), {"SWITCHBOARD_FUSED_QKV": "0"})


def test_the_environment_is_read_when_the_board_is_made() -> None:
    board = Board(parse_asked(["fused_qkv"], []), {"SWITCHBOARD_FUSED_QKV": "1"})
    assert board.positions["fused_qkv"].reason is None


def test_a_cache_that_cannot_rewind_declines_the_draft() -> None:
    board = Board(parse_asked(["prompt_lookup"], []), {})
    assert board.proposer("RotatingKVCache cannot give rejected tokens back", NOTHING) is None
    assert board.positions["prompt_lookup"].state == "declined"


def test_binding_off_loopback_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="--api-key-env"):
        Config("m", host="0.0.0.0")
    assert Config("m", host="0.0.0.0", api_key_env="KEY").digest() == Config("m").digest()
    assert Config("m", threads=2).digest() != Config("m").digest()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("smollm2-135n", "did you mean 'smollm2-135m'"),
        ("synthetic:tiny-lama", "did you mean 'tiny-llama'"),
        ("path:/nowhere/at/all", "neither a .gguf file nor a folder"),
    ],
)
def test_an_unknown_model_names_the_nearest(name: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        resolve(name)


def test_a_corrupt_file_in_the_cache_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = package.cached("smollm2-135m", PACKAGES["smollm2-135m"])
    place.parent.mkdir(parents=True)
    place.write_bytes(b"half a file")
    with pytest.raises(ModelError, match="delete it and run `switchboard fetch"):
        resolve("smollm2-135m")


def test_a_fetch_that_fails_says_what_each_client_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        package, "_clients", lambda: [("broken", [str(tmp_path / "no-such-client")])]
    )
    with pytest.raises(ModelError, match=r"broken: FileNotFoundError.*path:FILE\.gguf"):
        fetch("smollm2-135m")
    assert list(tmp_path.glob("switchboard/smollm2-135m/*")) == [], "nothing half is left behind"


def test_threads_are_read_before_the_parser() -> None:
    assert threads_of(["serve", "--threads", "2"]) == 2
    assert threads_of(["serve", "--threads=3"]) == 3
    assert threads_of(["serve", "--threads"]) == 1
    assert threads_of(["serve", "--threads", "many"]) == 1


def test_no_preload_twice_and_none_when_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the process must not be replaced")

    monkeypatch.setattr("os.execve", never)
    monkeypatch.setenv(blas.KILL, "0")
    monkeypatch.setenv(pages.KILL, "0")
    blas.preload(1)
    monkeypatch.delenv(blas.KILL)
    monkeypatch.setenv(blas.MARK, "x")
    monkeypatch.setenv("LD_PRELOAD", "x")
    blas.preload(1)


def test_neutral_and_ignored_fields() -> None:
    body, ignored = read(
        b'{"messages": [{"role": "user", "content": ""}], "n": 1, "user": "me", "presence_penalty": 0}',
        ChatBody,
    )
    assert ignored == ["user", "n", "presence_penalty"]
    assert body.stream is None
