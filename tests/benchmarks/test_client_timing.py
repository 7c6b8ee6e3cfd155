"""The arithmetic of the timing benchmark, on dates made by hand."""

from __future__ import annotations

import pytest

from benchmarks.client_timing import better_half, judge, quantile, summary
from benchmarks.peers import NotDriven

TOLD = {"r0": {"key": "r0", "arrived_ns": 1_000, "sent_ns": [11_000, 21_000, 31_000]}}


def test_lateness_gaps_and_ttft_of_known_dates() -> None:
    record = {"key": "r0", "send_ns": 0, "event_ns": [12_000, 24_000, 33_000]}
    told = judge([record], TOLD)
    # late 1, 3, 2 µs; gaps off by 2 and 1; TTFT 12 as the client has it, 10 as the server has it
    assert (told["median_us"], told["p99_us"], told["stamps"]) == (2.0, 3.0, 3)
    assert (told["gap_median_us"], told["gap_p99_us"]) == (1.0, 2.0)
    assert told["ttft_median_us"] == 2.0


def test_a_client_that_dates_first_and_last_only_has_no_gaps() -> None:
    record = {"key": "r0", "send_ns": None, "event_ns": [], "ends_ns": [13_000, 36_000]}
    told = judge([record], TOLD)
    assert (told["median_us"], told["p99_us"], told["stamps"]) == (2.0, 5.0, 2)
    assert told["gap_median_us"] is None and told["ttft_median_us"] is None


def test_events_that_are_missing_are_no_figures() -> None:
    with pytest.raises(NotDriven, match="2 events seen of 3"):
        judge([{"key": "r0", "send_ns": 0, "event_ns": [12_000, 24_000]}], TOLD)


def test_quantiles_and_the_better_half() -> None:
    assert quantile([], 0.5) is None
    assert [quantile(range(1, 101), share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert better_half([4.0, 1.0, 3.0, 2.0]) == 1.5 and better_half([5.0, 1.0, 3.0]) == 2.0
    rounds = [judge([{"key": "r0", "send_ns": 0, "event_ns": [e + late for e in (11_000, 21_000, 31_000)]}], TOLD)
              for late in (9_000, 1_000, 3_000, 7_000)]  # fmt: skip
    assert summary(rounds)["median_us"] == 2.0 and summary(rounds)["rounds"] == 4
