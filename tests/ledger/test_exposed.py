"""What is private is found where it stands, escaped or not, and what only looks like it is let pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from battery.ledger import exposed, scrub

HOME = "/ho" + "me/alice"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (f"read from {HOME}/models", "a home folder"),
        ("started with --api-key abc123", "the value of a secret flag"),
        ('{"log": "OPENAI_API_KEY=abc123 was set"}', "the value of a secret field"),
        ('{"log": "{\\"api_key\\": \\"abc123\\"}"}', "the value of a secret field"),
        ('{"log": "Bearer abcdefghij"}', "a key or token"),
        ('{"env": {"HF_TOKEN": "abc"}}', "a value under the name HF_TOKEN"),
        ('{"words": ["x"], "credentials": ["abc"]}', "a value under the name credentials"),
        (f'{{"log": "{HOME}"}}'.replace("/", "\\/"), "a home folder"),
        ('{"log": "\\u002fhome\\u002falice"}', "a home folder"),
        ('{"key": "abc"}', "a value under the name key"),
    ],
)
def test_it_is_found_with_its_line(line: str, kind: str) -> None:
    found = list(exposed.lines(f"one\n{line}\nthree"))
    assert (2, kind) in found and {number for number, _ in found} == {2}


@pytest.mark.parametrize(
    "line",
    [
        '{"completion_tokens": 48, "tokens": "all"}',
        '{"env": {"HF_TOKEN": "<redacted>"}, "keys": "x"}',
        "tokens per second --max-tokens 12",
        "/usr/lib and /tmp/x say nothing of anybody",
        '{"api_key": "<redacted>"}',
    ],
)
def test_what_is_hidden_or_harmless_is_let_pass(line: str) -> None:
    assert list(exposed.lines(line)) == []


def test_the_name_of_a_chart_is_no_secret() -> None:
    assert list(exposed.lines('  "key": "decode",', chart_keys=True)) == []
    assert list(exposed.lines('  "api_key": "decode",', chart_keys=True))


def test_a_folder_of_this_machine_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(exposed.lines(f"in {tmp_path}/x")) == [(1, "a folder of this machine")]


def test_nothing_that_was_scrubbed_is_found() -> None:
    said = f"--api-key abc123 {HOME}/x OPENAI_API_KEY=abc {Path.cwd()}/y Bearer abcdefghij"
    assert list(scrub.private(said)) and not list(scrub.private(scrub.text(said)))
