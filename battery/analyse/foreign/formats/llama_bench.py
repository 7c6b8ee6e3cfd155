"""llama-bench -o json or jsonl: prefill and decode as bare evaluations, with the samples of every repetition.

One object a test. `pp` tests (n_prompt, n_gen 0) are a prefill of n_prompt tokens into an emptied context; `tg` tests
(n_gen, n_prompt 0) a decode of n_gen tokens that begins behind n_depth tokens; samples_ns are the wall time of one
repetition each, samples_ts = 10⁹ · (n_prompt + n_gen) / samples_ns, avg_ts their mean. A file that measured several
settings holds several things: each is told by the settings in which they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from battery.analyse.foreign.formats import Format
from battery.analyse.foreign.reading.document import Document, Node, agree, mean
from battery.analyse.foreign.reading.settings import file_name, made_with, shown
from battery.analyse.foreign.reading.taken import Run, Taken, Value, moment, several
from battery.ledger.errors import InputError

_TEST = ("n_prompt", "n_gen", "avg_ts", "build_commit")
_RESULTS = {
    "n_prompt", "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns",
    "samples_ts",
}  # fmt: skip
"""Keys of a test that are no settings of what was measured."""
_ROUNDED = 1e-4
"""Share by which its own figures differ by rounding: it prints six digits."""


def recognises(found: Document) -> bool:
    """Whether every object is a test of llama-bench."""
    return found.all(*_TEST)


def read(found: Document) -> Taken:
    """Prefill and decode of every setting that the file measured."""
    apart = _apart(found.nodes)
    labels, settings = _labels(found.nodes, apart), _settings(found.nodes[0], apart)
    runs = []
    for label in dict.fromkeys(labels):
        tests = [node for node, own in zip(found.nodes, labels, strict=True) if own == label]
        runs.append(_run(label, tests, settings))
    if not any(run.values for run in runs):
        raise InputError(
            f"{found.nodes[0].file}: neither a pp test of an empty context nor a tg test; run it with -p and -n"
        )
    return Taken(
        runs=tuple(runs), version=_version(found.nodes), absent=_ABSENT, notes=(*_NOTES, *_left_out(found.nodes))
    )  # fmt: skip


def _run(label: str, tests: Sequence[Node], settings: dict[str, str]) -> Run:
    """All tests of one setting."""
    stamps = [moment(node["test_time"].text()) for node in tests if node.get("test_time")]
    return Run(
        label=label,
        started=min((stamp for stamp in stamps if stamp), default=None),
        values=tuple(value for node in tests for value in _values(node)),
        settings=settings,
    )


def _values(node: Node) -> Iterator[Value]:
    """The value of a test that is one of our metrics."""
    prompt, made = node["n_prompt"].count(), node["n_gen"].count()
    depth = depth_of(node)
    if bool(prompt) == bool(made) or (prompt and depth):
        return
    metric, context = ("prefill", prompt) if prompt else ("decode", depth)
    yield several(metric, _samples(node, prompt + made), context, made or None)


def _samples(node: Node, tokens: int) -> list[float]:
    """The rate of every repetition, held against its time and against the mean."""
    samples = node["samples_ts"]
    rates = [one.positive() for one in samples.items()]
    times = [one.positive() for one in node["samples_ns"].items()]
    if not rates or len(rates) != len(times):
        raise InputError(
            f"{samples.at}: {len(rates)} rates of {len(times)} repetitions; run the test with -r 1 or more"
        )
    for one, nanoseconds in zip(samples.items(), times, strict=True):
        agree(one, 1e9 * tokens / nanoseconds, "tokens over its samples_ns", _ROUNDED)
    agree(node["avg_ts"], mean(rates), "the mean of samples_ts", _ROUNDED)
    return rates


def depth_of(node: Node) -> int:
    """Tokens that stand in the context before the test; versions before -d existed have none."""
    depth = node.get("n_depth")
    return depth.count() if depth else 0


def _apart(nodes: Sequence[Node]) -> list[str]:
    """The settings in which the file's tests differ."""
    keys = [
        key
        for key in dict.fromkeys(key for node in nodes for key in node.value)
        if key not in _RESULTS and len({str(node.value.get(key)) for node in nodes}) > 1
    ]
    # a model's name, size and type change together: its file alone tells it
    if "model_filename" in keys:
        keys = [key for key in keys if key not in ("model_type", "model_size", "model_n_params")]
    return keys


def _labels(nodes: Sequence[Node], keys: Sequence[str]) -> list[str]:
    """For every test the settings in which the file's tests differ, as text."""
    kinds: dict[str, list[tuple[str, ...]]] = {}
    return [_label({key: node.value.get(key) for key in keys}, kinds) for node in nodes]


def _settings(node: Node, apart: Sequence[str]) -> dict[str, str]:
    """The settings that all tests of the file share."""
    keys = [key for key in node.value if key not in {*_RESULTS, *apart}]
    settings = made_with(node, keys)
    if "model_filename" in settings:
        settings["model_filename"] = shown(file_name(node["model_filename"].value))
    return settings


def _label(own: dict[str, object], kinds: dict[str, list[tuple[str, ...]]]) -> str:
    """Settings in words, with a number behind those whose words other settings have: two folders, names not shown."""
    words = ", ".join(_setting(key, value) for key, value in own.items())
    kind, known = tuple(map(str, own.values())), kinds.setdefault(words, [])
    if kind not in known:
        known.append(kind)
    place = known.index(kind)
    return f"{words} ({place + 1})" if place else words


def _setting(key: str, value: object) -> str:
    """One setting in words; of a model's file the name without its folders."""
    if key == "model_filename":
        name = shown(file_name(value))
        return name if not name.startswith("sha256 ") else f"{key} {name}"
    return f"{key} {shown(value)}"


def _version(nodes: Sequence[Node]) -> str:
    """The builds that wrote the file; empty where it was built outside a checkout: number 0 of commit `unknown`."""
    builds: dict[str, None] = {}
    for node in nodes:
        number, commit = node.get("build_number"), node["build_commit"].text()
        counted = number.count() if number else 0
        if counted or commit != "unknown":
            builds[f"build {counted or '?'} ({commit})"] = None
    return ", ".join(builds)


def _left_out(nodes: Sequence[Node]) -> list[str]:
    """Tests that are no metric of ours."""
    mixed = sum(bool(node["n_prompt"].count()) and bool(node["n_gen"].count()) for node in nodes)
    behind = sum(
        bool(node["n_prompt"].count()) and not node["n_gen"].count() and bool(depth_of(node)) for node in nodes
    )  # fmt: skip
    found = []
    if mixed:
        found.append(
            f"llama-bench: {mixed} pg tests are left out: prompt and answer over their whole time is neither a prefill"
            " nor a decode rate"
        )
    if behind:
        found.append(
            f"llama-bench: {behind} pp tests at a depth are left out: a prefill behind tokens that are there already is"
            " not that of a whole prompt"
        )
    return found


_ABSENT = {
    "ttft": "llama-bench times evaluations; nothing is streamed, so there is no first token",
    "tpot": "its decode rate is the same figure turned over",
    "e2e": "llama-bench sends no requests",
    "peak_memory": "model_size is the weights' size; the highest memory is not measured",
}
_NOTES = (
    "llama-bench evaluates random tokens without tokenizer, sampler, chat template and server: its rates may be set"
    " beside those of llama-bench, not beside those of a client",
    "llama-bench: the context of a prefill is its prompt, that of a decode the tokens before it (-d), none by default;"
    " the prompt is evaluated into an emptied context, so it is cold by the way it is made",
    "llama-bench: the repetitions of a file follow each other in one process, so they are no independent evidence and"
    " one mean is taken of them; whether a warm-up ran is not told (--no-warmup)",
)
FORMAT = Format(title="llama-bench -o json or jsonl", recognises=recognises, read=read)
