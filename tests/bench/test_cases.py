"""Where each public case of anchors/FIELD.md, 1 to 38, is tested; and every body of the tables at random splits.

A row is: number, what went wrong in public, and the tests that would fail if it went wrong here, as file::test.
"""

from __future__ import annotations

import itertools

import pytest
from byte_server import ByteServer, check, chunked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from known import known_tests
from test_client import BAD, GOOD
from test_dialects import BAD as BAD_DIALECT
from test_dialects import GOOD as GOOD_DIALECT

from battery.bench.client import Client

SSE, CLIENT, CLOCK, DIALECTS = (
    f"bench/test_{name}.py::" for name in ("sse", "client", "client_clock", "dialects")
)
LIARS, RUN, PROBE, TRACE = (
    "bench/test_liars.py::", "bench/test_run.py::", "bench/test_probe.py::", "ledger/test_trace.py::",
)  # fmt: skip
GOOD_TEST, BAD_TEST = f"{CLIENT}test_success_in_every_chunking", f"{CLIENT}test_failure_keeps_what_came"  # fmt: skip

CASES: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("a character split over reads raised", (
        f"{SSE}test_any_text_comes_back_as_it_was", f"{CLIENT}test_random_splits_change_nothing_but_times")),
    2: ("or was replaced without a word", (
        f"{SSE}test_bytes_that_are_no_text_are_marked_and_not_passed_off", f"{DIALECTS}test_failure_keeps_what_came")),
    3: ("`data:` without a blank", (f"{SSE}test_framing_is_the_same_in_every_chunking",)),
    4: ("events of several fields and lines", (f"{SSE}test_any_split_gives_the_same_events", GOOD_TEST)),
    5: ("huge events, events over packets", (f"{SSE}test_a_huge_event_is_not_copied_once_per_read", GOOD_TEST)),
    6: ("raw separators and split lines at once", (
        f"{SSE}test_framing_is_the_same_in_every_chunking", f"{DIALECTS}test_success_in_every_chunking")),
    7: ("usage with empty choices", (GOOD_TEST,)),
    8: ("null, missing and empty", (GOOD_TEST,)),
    9: ("an error inside 200 was a success", (BAD_TEST, f"{PROBE}test_every_answer_has_its_word_and_its_code")),
    10: ("an empty answer was complete", (BAD_TEST, f"{RUN}test_each_fault_gets_its_outcome")),
    11: ("a short stream was a success", (
        f"{LIARS}test_a_length_that_is_clamped_behind_an_honest_echo_is_seen",
        f"{RUN}test_each_fault_gets_its_outcome")),
    12: ("what came before a break was lost", (f"{CLOCK}test_tokens_before_a_break_are_kept",)),
    13: ("chunks that are no JSON did not count", (BAD_TEST,)),
    14: ("failed requests were hidden", (
        "test_cli.py::test_the_plan_says_how_much_may_fail",
        "test_cli.py::test_failed_cells_above_the_share_give_exit_4_and_the_report_is_there")),
    15: ("figures over the survivors looked fine", (
        "analyse/test_findings.py::test_one_failed_pair_is_counted_and_more_forbid_a_verdict",)),
    16: ("a model is listed and every request refused", (
        f"{LIARS}test_a_server_that_refuses_every_completion_ends_its_window",)),
    17: ("the role chunk was the first token", (
        f"{DIALECTS}test_role_and_empty_chunks_are_no_tokens", f"{CLOCK}test_times_are_those_of_the_token_events")),
    18: ("reasoning was ignored", (GOOD_TEST, f"{DIALECTS}test_tokens_that_are_not_shown_make_no_rate")),
    19: ("several tokens of an event counted as one", (GOOD_TEST, f"{TRACE}test_formula")),
    20: ("the first event's tokens raised the rate", (
        f"{TRACE}test_formula", f"{PROBE}test_rates_are_those_of_the_formulas",
        f"{DIALECTS}test_tokens_that_are_not_shown_make_no_rate")),
    21: ("[DONE], role and usage were stamped as tokens", (f"{CLOCK}test_times_are_those_of_the_token_events",)),
    22: ("tokens were counted by tokenising pieces", (  # we never tokenise: counts are the server's, or a guess
        GOOD_TEST, f"{TRACE}test_a_guessed_token_count_gives_no_rate")),
    23: ("TTFT stood in the list of gaps", (f"{TRACE}test_the_wait_for_the_first_token_is_in_no_rate",)),
    24: ("0 stood for what was not measured", (f"{TRACE}test_nothing_is_divided_by_zero",)),
    25: ("a missing stamp gave a negative time", (
        f"{TRACE}test_nothing_is_divided_by_zero", f"{CLOCK}test_nobody_at_home",
        f"{CLOCK}test_the_deadline_holds_before_the_head")),
    26: ("the usage chunk moved the last token", (f"{CLOCK}test_times_are_those_of_the_token_events",)),
    27: ("the usage chunk moved the first token", (f"{CLOCK}test_times_are_those_of_the_token_events",)),
    28: ("a batch's TTFT held others' decode", (  # one request at a time, so there are no others
        f"{RUN}test_the_whole_order_is_told_while_it_runs",)),
    29: ("division by zero", (f"{TRACE}test_nothing_is_divided_by_zero",)),
    30: ("client and server count a prompt differently", (f"{RUN}test_each_fault_gets_its_outcome",)),
    31: ("a prompt of no token", (
        "bench/test_prompts.py::test_a_rung_too_short_for_the_frame_is_an_error",
        "ledger/test_plan.py::test_a_wrong_plan_names_file_and_key")),
    32: ("joining texts moved the length", ("bench/test_prompts.py::test_a_prompt_has_the_length_of_its_rung",)),
    33: ("a length that was asked for and not given", (
        f"{LIARS}test_a_length_that_is_clamped_behind_an_honest_echo_is_seen",
        "bench/test_outcome.py::test_what_came_is_held_against_max_tokens")),
    34: ("filler that repeats flattered drafts", (
        "bench/test_prompts.py::test_text_is_natural_and_does_not_repeat_itself",
        "analyse/test_findings.py::test_speculation_has_its_factors")),
    35: ("one seed and a prefix cache", (
        "bench/test_schedule.py::test_seeds_are_new_in_every_block_and_shared_by_its_arms",
        f"{LIARS}test_a_server_that_caches_and_says_nought_is_not_cold")),
    36: ("every prompt shared its beginning", (
        "bench/test_prompts.py::test_the_same_seed_gives_the_same_bytes_and_another_seed_another_beginning",
        "bench/test_prompts.py::test_shared_beginnings_are_measured")),
    37: ("warm-up and flush ran into what was measured", (
        f"{RUN}test_the_whole_order_is_told_while_it_runs", f"{RUN}test_a_cache_that_says_so_is_warm")),
    38: ("prompt figures of a cached prompt", (
        "bench/test_outcome.py::test_cold_has_three_values_from_the_servers_figures",)),
}  # fmt: skip


def test_every_case_names_tests_that_exist() -> None:
    assert list(CASES) == list(range(1, 39))
    assert all(tests for _, tests in CASES.values())
    assert not {test for _, tests in CASES.values() for test in tests} - known_tests()


SPLIT = {
    **{f"{name} (good)": (body, "ok", want) for name, (body, want) in {**GOOD, **GOOD_DIALECT}.items()},
    **{f"{name} (bad)": (body, "error", want) for name, (body, _, want) in {**BAD, **BAD_DIALECT}.items()},
}  # fmt: skip


def test_no_two_bodies_share_a_name() -> None:
    assert not GOOD.keys() & GOOD_DIALECT.keys() and not BAD.keys() & BAD_DIALECT.keys()


@pytest.mark.parametrize("name", [name for name, (body, _, _) in SPLIT.items() if len(body) > 1])
def test_every_body_at_random_splits(name: str) -> None:
    body, outcome, want = SPLIT[name]
    server = ByteServer()

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.integers(1, len(body) - 1), max_size=25, unique=True))
    def splits(at: list[int]) -> None:
        edges = [0, *sorted(at), len(body)]
        server.script = chunked(*(body[a:b] for a, b in itertools.pairwise(edges)))
        done = client.stream("/x", {}, deadline_s=10)
        assert done.outcome == outcome, done.reason
        check(done, want)

    with Client(server.url) as client:
        splits()
    server.close()
