"""`battery import` of other tools' files as a script and as a reader see it, and the page that it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from calls import Said

from battery.render.lint.check import lint

FOLDER = Path(__file__).parent / "fixtures" / "foreign"
BY_REQUEST = {"guidellm": "A.json", "aiperf": "A.jsonl", "mlx-chronos": "A.json"}
FAILING = ("vllm", "A-detailed.json")
BY_MEAN = {
    "llama-bench": "A.json",
    "llama-benchy": "A.json",
    "vllm": "A.json",
    "aiperf": "A-means.json",
}
PAIRS = sorted({*BY_REQUEST.items(), *BY_MEAN.items(), FAILING})
"""A file of arm A of every kind; the one of arm C beside it has C in its name."""


@pytest.fixture
def call(say: Callable[..., Said], tmp_path: Path) -> Callable[..., Said]:
    return partial(say, tmp_path, "import")


def pair(tool: str, name: str) -> list[str]:
    return [
        str(FOLDER / tool / name),
        str(FOLDER / tool / name.replace("A", "C", 1)),
        "--arm",
        "A",
        "--arm",
        "C",
    ]


@pytest.mark.parametrize("tool, name", PAIRS)
def test_every_kind_of_file_gives_verdicts_and_a_page_that_the_linter_accepts(
    call: Callable[..., Said], tmp_path: Path, tool: str, name: str
) -> None:
    done = call(*pair(tool, name), "--json", "--report", "page.md")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["kind"], found["control"], found["candidates"]) == ("foreign", "A", ["C"])
    assert [(one["format"], one["arms"]) for one in found["sources"]] == [
        (tool, ["A"]),
        (tool, ["C"]),
    ]
    assert found["comparisons"] and all(one["pairs"] for one in found["comparisons"])
    measured = {one["metric"] for one in found["comparisons"]}
    assert measured.isdisjoint(one["metric"] for one in found["unmeasured"])
    assert all(one["why"] for one in found["unmeasured"])
    page = (tmp_path / "page.md").read_text()
    assert lint(page) == [] and page.count("|") > 50
    for one in found["comparisons"]:
        assert f"| {one['candidate']} | {one['verdict']}" in page


@pytest.mark.parametrize("tool, name", sorted(BY_MEAN.items()))
def test_a_mean_of_one_launch_each_decides_nothing(
    call: Callable[..., Said], tool: str, name: str
) -> None:
    found = json.loads(call(*pair(tool, name), "--json").stdout)
    assert {one["verdict"] for one in found["comparisons"]} == {"not comparable"}
    assert all(one["ratio"] and one["low"] is None for one in found["comparisons"])


@pytest.mark.parametrize("tool, name", sorted(BY_REQUEST.items()))
def test_requests_of_one_launch_each_are_paired_and_decide_nothing(
    call: Callable[..., Said], tool: str, name: str
) -> None:
    found = json.loads(call(*pair(tool, name), "--json").stdout)
    (decode,) = (one for one in found["comparisons"] if one["metric"] == "decode")
    assert decode["verdict"] == "undecided" and decode["low"] < decode["ratio"] < decode["high"]
    assert decode["independent_units"] == decode["by_seed"]["units"] >= 3


def test_requests_that_failed_in_one_arm_leave_it_open(call: Callable[..., Said]) -> None:
    found = json.loads(call(*pair(*FAILING), "--json").stdout)
    (decode,) = (one for one in found["comparisons"] if one["metric"] == "decode")
    assert decode["verdict"] == "undecided" and decode["why"].startswith("attrition: 1 of 5 pairs")
    assert any(note.startswith("arm A: 1 of 5 requests failed") for note in found["notes"])


def test_a_reader_is_told_what_is_null_and_what_the_files_cannot_show(
    call: Callable[..., Said],
) -> None:
    told = call(*pair("llama-bench", "A.json")).stdout
    for words in (
        "null: TTFT: llama-bench times evaluations; nothing is streamed, so there is no first token (llama-bench)",
        "note: by the files' own stamps the arms ran in the order A, C: each ran once",
        "note: llama-bench evaluates random tokens without tokenizer, sampler, chat template and server",
        "no independent units: no interval, no verdict",
    ):
        assert words in told


def test_a_control_can_be_another(call: Callable[..., Said]) -> None:
    found = json.loads(call(*pair("guidellm", "A.json"), "--control", "C", "--json").stdout)
    assert (found["control"], found["candidates"]) == ("C", ["A"])


def test_the_same_file_is_no_second_round(call: Callable[..., Said], tmp_path: Path) -> None:
    first, second, *arms = pair("vllm", "A.json")
    assert "a file is named twice" in call(first, first, *arms).stderr
    copy = tmp_path / "copy.json"
    copy.write_bytes(Path(first).read_bytes())
    done = call(first, second, str(copy), *arms, "--arm", "A")
    assert done.returncode == 2 and "are the same to the byte; a copy is no round" in done.stderr


def test_a_csv_is_imported_alone_and_names_its_arms(call: Callable[..., Said]) -> None:
    csv = str(FOLDER / "interleave-16k.csv")
    assert "is imported alone" in call(csv, *pair("vllm", "A.json")[:1]).stderr
    assert "leave --arm out" in call(csv, "--arm", "A").stderr
    assert "no JSON, as vllm writes it" in call(csv, "--format", "vllm").stderr


def test_wrong_input_ends_with_2_in_one_line(call: Callable[..., Said], tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"tokens": 3}')
    for words, complaint in (
        ([str(path)], "no known format: its keys are tokens; known: aiperf"),
        ([str(path), "--format", "sglng"], "no format 'sglng'; did you mean 'sglang'?"),
        (pair("vllm", "A.json")[:1], "only arm 'A'; a comparison needs a second one"),
    ):
        done = call(*words)
        assert done.returncode == 2 and done.stdout == "" and complaint in done.stderr
        assert len(done.stderr.splitlines()) == 1


CUT = (FOLDER / "guidellm" / "A.json").read_text()[:4000]


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "it is empty"),
        (CUT, "was it cut while it was written or copied?"),
        ('{"n_prompt": 8, "n_gen": 0, "avg_ts": 1, "build_commit": "a", "samples_ts": [NaN]}', "nan is no measured"),
        ('[{"n_prompt": "8", "n_gen": 0, "avg_ts": 1, "build_commit": "a"}]', "n_prompt: a text where a number is due"),
        ('{"latency_mode": "none", "prefix_caching_enabled": false, "benchmarks": []}', "'timestamp' is missing"),
        ('{"completed": 1, "num_prompts": 1, "duration": NaN, "total_input_tokens": 1, "total_output_tokens": 1,'
         ' "mean_ttft_ms": 1e400, "max_concurrency": 1}', "mean_ttft_ms: inf is no measured value"),
        ("arm,context,seed,round,metric,value,tokens\nA,1,1,1,decode,nan,1\n", ":2: value 'nan' is no number"),
    ],
    ids=["empty", "cut", "nan", "type", "list", "infinite", "csv"],
)  # fmt: skip
def test_a_file_that_is_wrong_ends_with_2_and_no_traceback(
    call: Callable[..., Said], tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "wrong").write_text(text)
    done = call("wrong", "--json", "--report", "page.md")
    assert (done.returncode, done.stdout) == (2, "") and complaint in done.stderr
    assert done.stderr.startswith("battery: wrong") and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "page.md").exists()


def test_a_page_is_put_where_it_was_asked_for(call: Callable[..., Said], tmp_path: Path) -> None:
    done = call(*pair("vllm", "A.json"), "--json", "--report", "to/here/page.md")
    assert done.returncode == 0 and (tmp_path / "to" / "here" / "page.md").is_file()


def test_a_csv_has_a_page_too(call: Callable[..., Said], tmp_path: Path) -> None:
    done = call(str(FOLDER / "interleave-16k.csv"), "--claim", "15.1", "--report", "page.md")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "page.md"
    page = (tmp_path / "page.md").read_text()
    assert "| decode | 16,384 | C | undecided |" in page and "What was not measured" not in page
