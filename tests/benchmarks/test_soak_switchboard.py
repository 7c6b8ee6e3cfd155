"""A short soak of a real server on a tiny model; a leak that is planted is found."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks import soak_switchboard as soaking
from benchmarks.soak_switchboard import Found, Look, growth, judge, soak

REPORT = Path(__file__).parents[2] / "reports" / "soak-switchboard.json"


def test_three_hundred_requests_leave_memory_as_it_was() -> None:
    found = soak(soaking.MODEL, soaking.SWITCHES, 300, every=15)
    assert found.wrong == []
    assert set(found.kinds) == set(soaking.EXPECTED), "every kind was sent"
    assert found.grew == [], (found.growth, found.looks)


def test_a_leak_of_a_hundred_kilobytes_a_request_is_found() -> None:
    found = soak(soaking.MODEL, soaking.SWITCHES, 150, every=10, plant=100_000)
    assert "rss" in found.grew, found.growth


def looks(**last: int) -> list[Look]:
    calm = {"rss": 1000, "fds": 9, "threads": 4, "active": 50, "cache": 0}
    return [Look(number, **(calm if number < 16 else {**calm, **last})) for number in range(20)]


@pytest.mark.parametrize(
    ("last", "grew"),
    [
        ({}, []),
        ({"rss": 1019}, []),
        ({"rss": 1021}, ["rss"]),
        ({"rss": 500, "fds": 8}, []),
        ({"fds": 10}, ["fds"]),
        ({"threads": 5, "active": 51}, ["threads", "active"]),
        ({"cache": 1}, ["cache"]),
    ],
)
def test_what_counts_as_growth(last: dict[str, int], grew: list[str]) -> None:
    assert judge(growth(looks(**last))) == grew


def test_a_spike_in_the_middle_is_no_growth_and_warm_up_is_left_out() -> None:
    seen = looks()
    seen[0] = msgspec.structs.replace(seen[0], rss=100)
    seen[10] = msgspec.structs.replace(seen[10], rss=9999)
    assert judge(growth(seen)) == []


def test_the_committed_figure_is_of_two_thousand_requests_and_follows_from_its_looks() -> None:
    found = msgspec.json.decode(REPORT.read_bytes(), type=Found)
    assert found.requests >= 2000 and sum(found.kinds.values()) == found.requests
    assert found.growth == growth(found.looks)
    assert found.grew == judge(found.growth) == [] == found.wrong
