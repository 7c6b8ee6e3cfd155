"""What a file is, by its content alone; and that nothing, cut or changed or made up, gets past unread or unnamed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from taking import FOLDER, found, loaded, refused, written

from battery.analyse.foreign.findings import analyse
from battery.analyse.foreign.formats import known_formats, load_format
from battery.analyse.foreign.reading import recognise as recognise_module
from battery.analyse.foreign.reading.document import document
from battery.analyse.foreign.reading.joining import join
from battery.analyse.foreign.reading.recognise import recognise
from battery.ledger.errors import InputError

RESULTS = sorted(
    str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.json*") if path.parent != FOLDER
)


def test_there_is_a_fixture_of_every_format() -> None:
    assert {name.partition("/")[0] for name in RESULTS} == set(known_formats())


@pytest.mark.parametrize("name", RESULTS)
def test_exactly_one_format_knows_a_file_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    data = (FOLDER / name).read_bytes()
    read = document(Path(name), data)
    assert read
    own = name.partition("/")[0]
    assert [one for one in known_formats() if load_format(one).recognises(read)] == [own]
    path = tmp_path / "results.txt"
    path.write_bytes(b"\xef\xbb\xbf" + data)
    assert found(path).format == own
    assert found(path).taken == found(path, own).taken


@pytest.mark.parametrize("name", RESULTS)
def test_a_file_that_was_cut_is_refused(tmp_path: Path, name: str) -> None:
    data = (FOLDER / name).read_bytes().rstrip()
    path = tmp_path / "cut"
    for share in (0.1, 0.5, 0.9, 1):
        end = int(share * len(data)) - 1
        # between two lines nothing shows that there were more
        end -= 2 * (b"\n" in data[end - 1 : end + 1])
        path.write_bytes(data[:end])
        assert "was it cut while it was written or copied?" in refused(path)


@pytest.mark.parametrize("name", RESULTS)
def test_no_file_names_a_machine(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert len(text) <= 30_000
    assert not [word for word in ("/tmp", "/home", "/root", "/work", "/Users") if word in text]


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "no known format: it is empty"),
        ("hello, world\n1,2\n", "no known format: its first line is 'hello, world'"),
        ('{"results": 1, "zone": 2}', "no known format: its keys are results, zone; known: aiperf (aiperf profile"),
        ("{}", "nothing in it"),
        ("[]", "nothing in it"),
        ("[3]", "[0]: a number where a result (an object) is due"),
        ('{"a": 1}\n{"b": ', ":2: not valid JSON"),
        ("[" * 100_000, "nested too deep for a result file"),
        ('{"a": 1}\n' + "[" * 100_000, ":2: nested too deep for a result file"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)  # fmt: skip
def test_what_is_nothing_known_is_told_with_what_is(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "given"
    path.write_text(text)
    assert complaint in refused(path)


def test_a_line_ends_at_its_newline_alone(tmp_path: Path) -> None:
    # a JSON text may hold these as they are, and str.splitlines breaks at them
    lines = [{**one, "label": "a\u2028b\x85c"} for one in loaded("sglang/A.jsonl")]
    path = tmp_path / "given.jsonl"
    path.write_text(
        "\r\n".join(json.dumps(one, ensure_ascii=False) for one in lines),
        encoding="utf-8",
        newline="",
    )
    assert len(found(path).taken.runs) == 3


def test_a_file_that_would_not_fit_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recognise_module, "LARGEST_FILE", 2**20)
    path = tmp_path / "given"
    path.write_bytes(b" " * 2**20 + b"{")
    assert "larger than 1 MiB, which is no result of one run" in refused(path)
    path.write_bytes(b" " * (2**20 - 1) + b"{")
    assert "not valid JSON" in refused(path)


def test_a_file_of_which_nothing_is_known_here_is_refused(tmp_path: Path) -> None:
    # one token each, and means of no gaps
    one = loaded("vllm/A.json")
    one.update(mean_ttft_ms=0, mean_tpot_ms=0, total_output_tokens=4)
    assert "no request ended well" in refused(written(tmp_path, one))


def test_what_cannot_be_read_and_what_is_no_text(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / "none")
    path = tmp_path / "given"
    path.write_bytes(b'{"a": "\xff"}')
    assert "not UTF-8 text" in refused(path)


def test_a_csv_of_ours_is_left_to_its_own_reader_right_or_not(tmp_path: Path) -> None:
    path = tmp_path / "given"
    for head in (
        "arm,context,seed,round,metric,value,tokens",
        "arm,context,metric",
        "arm;context;seed;round",
    ):
        path.write_text(head + "\n")
        assert recognise(path) is None
    assert recognise(path, "csv") is None


def test_a_forced_format_is_read_as_such_or_says_what_is_missing(tmp_path: Path) -> None:
    one = loaded("vllm/A.json")
    del one["num_prompts"]
    path = written(tmp_path, one)
    assert "no known format: its keys are backend, burstiness" in refused(path)
    assert "'num_prompts' is missing" in refused(written(tmp_path, one), "vllm")
    assert "'n_prompt' is missing" in refused(path, "llama-bench")
    with pytest.raises(InputError, match="no format 'vlm'; did you mean 'vllm'"):
        recognise(path, "vlm")
    path.write_text("arm,context\n")
    assert "no JSON, as vllm writes it" in refused(path, "vllm")


def paths(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of a document."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(path for key, one in inner for path in paths(one, (*at, key)))]


DOCUMENTS = {name: loaded(name) for name in RESULTS}
PLACES = [(name, path) for name in RESULTS for path in paths(DOCUMENTS[name]) if path]
STRANGE = [
    None,
    0,
    -1,
    1e300,
    1e-300,
    "",
    "x",
    True,
    [],
    {},
    [None],
    [1e308, 1e308],
    10**400,
    float("nan"),
    float("inf"),
    "\x1b",
]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from(STRANGE))
def test_no_value_put_anywhere_gets_past_as_an_error_of_ours(
    place: tuple[str, tuple[str | int, ...]], strange: object
) -> None:
    name, path = place
    copy = json.loads(json.dumps(DOCUMENTS[name]))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = strange
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder), copy, "given.jsonl" if name.endswith("l") else "given.json")
        try:
            one = found(file)
        except InputError as wrong:
            assert str(file) in str(wrong)
            return
    assert all(value.value > 0 for run in one.taken.runs for value in run.values)
    # and whatever was taken is compared, or refused as input
    try:
        findings = analyse(join([found(FOLDER / name), one], ["A", "C"]))
    except InputError:
        return
    assert findings.levels and findings.comparisons
