"""Each formula against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from battery.ledger.trace import METRICS, Event, Trace, decode_over, prompt_processed

MS = 1_000_000


def of(name: str, trace: Trace) -> float | None:
    return METRICS[name].of(trace)


# four events of 2, 3, 1, 4 tokens at 200, 300, 350, 600 ms
SPECULATED = Trace(
    events=(Event(200 * MS, 2), Event(300 * MS, 3), Event(350 * MS, 1), Event(600 * MS, 4)),
    end_ns=650 * MS,
    prompt_tokens=100,
    completion_tokens=10,
    cached_tokens=0,
    count_source="server",
    timings={
        "prompt_s": 0.16,
        "prompt_tokens": 100,
        "decode_s": 0.5,
        "decode_tokens": 9,
        "steps": 4,
        "proposed": 12,
        "accepted": 6,
    },
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ttft", 0.2),
        ("decode", (10 - 2) / 0.4),
        ("prefill", 100 / 0.16),
        ("tpot", 0.4 / 9),
        ("e2e", 0.65),
        ("decode_server", 9 / 0.5),
        ("tokens_per_step", 9 / 4),
        ("seconds_per_step", 0.5 / 4),
        ("acceptance", 0.5),
    ],
)
def test_formula(name: str, value: float) -> None:
    found = of(name, SPECULATED)
    assert found is not None and math.isclose(found, value)


def test_common_prefix_cuts_at_the_last_event_within_it() -> None:
    # 6 tokens end with the third event: 6 - 2 tokens in 150 ms
    assert math.isclose(decode_over(SPECULATED, 6) or 0, 4 / 0.15)
    # 7 tokens would cut the fourth event, so the cut stays at the third
    assert decode_over(SPECULATED, 7) == decode_over(SPECULATED, 6)
    assert decode_over(SPECULATED, 10) == of("decode", SPECULATED)
    assert decode_over(SPECULATED, 2) is None


def test_what_cannot_be_computed_is_null_never_zero() -> None:
    empty = Trace()
    assert all(metric.of(empty) is None for metric in METRICS.values())
    one = Trace(events=(Event(5, 1),), completion_tokens=1, count_source="server", end_ns=6)
    assert of("decode", one) is None and of("tpot", one) is None
    together = Trace(events=(Event(5, 3),), completion_tokens=3, count_source="server")
    assert of("decode", together) is None


@pytest.mark.parametrize("wait_ms", [1, 200, 90_000])
def test_the_wait_for_the_first_token_is_in_no_rate(wait_ms: int) -> None:
    """FIELD 23: TTFT may be anything, the gaps after it are what decode and TPOT tell."""
    events = tuple(Event((wait_ms + gap) * MS, 1) for gap in (0, 10, 20, 30))
    later = Trace(events=events, completion_tokens=4, count_source="server", end_ns=100_000 * MS)
    assert of("decode", later) == pytest.approx(100) and of("tpot", later) == pytest.approx(0.01)
    assert of("ttft", later) == wait_ms / 1e3


@pytest.mark.parametrize("tokens", [None, 0, 1, 5])
@pytest.mark.parametrize("events", [0, 1, 3])
@pytest.mark.parametrize("seconds", [0, 0.0, None, -1, True, "1"])
def test_nothing_is_divided_by_zero(tokens: int | None, events: int, seconds: object) -> None:
    """FIELD 24, 25, 29: no tokens, no time, a server's clock at nought: null, never 0, infinite or below 0."""
    timings = dict.fromkeys(("prompt_s", "decode_s", "steps", "proposed", "decode_tokens"), seconds)
    at_once = Trace(
        events=(Event(5 * MS, tokens),) * events, completion_tokens=tokens, prompt_tokens=0, cached_tokens=0,
        count_source="server", timings=timings, end_ns=None,
    )  # fmt: skip
    for name, metric in METRICS.items():
        value = metric.of(at_once)
        assert value is None or (name == "ttft" and value == 0.005), name


def test_a_guessed_token_count_gives_no_rate() -> None:
    guessed = Trace(
        events=(Event(5 * MS, None), Event(9 * MS, None)),
        completion_tokens=2,
        count_source="estimate",
    )
    assert of("decode", guessed) is None and of("tpot", guessed) is None
    assert of("ttft", guessed) == 0.005


def test_usage_counts_give_a_rate_but_no_cut() -> None:
    total_only = Trace(
        events=(Event(0, None), Event(100 * MS, None)), completion_tokens=5, count_source="usage"
    )
    assert of("decode", total_only) == 40.0
    assert decode_over(total_only, 3) is None


def test_prompt_processed_never_takes_the_clients_own_length() -> None:
    assert prompt_processed(Trace(prompt_tokens=50)) is None
    assert prompt_processed(Trace(prompt_tokens=50, cached_tokens=20)) == 30
    assert prompt_processed(Trace(prompt_tokens=50, timings={"prompt_tokens": 41})) == 41
    assert prompt_processed(Trace(prompt_tokens=50, cached_tokens=51)) is None
    assert prompt_processed(Trace(timings={"prompt_tokens": -1})) is None


def test_every_metric_has_a_formula_and_a_unit() -> None:
    for metric in METRICS.values():
        assert metric.formula and metric.unit and metric.title
