"""Where each public case of anchors/FIELD.md, 47 to 58 (orchestration, receipts and reports), is tested.

A row is: number, what went wrong in public, and the tests that would fail if it went wrong here, as file::test.
"""

from __future__ import annotations

from known import known_tests

PROCESSES, STOPS, OUTSIDE, DISK, CLOCK, RUN = (
    f"bench/test_{name}.py::"
    for name in ("processes", "stops", "outside", "disk", "clock_steps", "run")
)

CASES: dict[int, tuple[str, tuple[str, ...]]] = {
    47: ("a killed parent left workers that held memory and port", (
        f"{PROCESSES}test_47_a_killed_parent_leaves_no_server_no_worker_no_leash",
        f"{PROCESSES}test_whatever_a_server_forked_is_gone_and_the_port_is_free",
        f"{OUTSIDE}test_47_51_stopped_anywhere_it_goes_on_and_is_complete")),
    48: ("a stale server answered for the one that died", (
        f"{PROCESSES}test_48_49_a_stale_server_is_refused_and_lives_on",
        "bench/test_launch.py::test_health_of_another_process_is_a_refusal")),
    49: ("unrelated servers were killed by a pattern", (
        f"{PROCESSES}test_48_49_a_stale_server_is_refused_and_lives_on",
        f"{PROCESSES}test_the_mark_finds_ours_and_nothing_else",
        "test_cli.py::test_a_port_in_use_is_exit_5_and_its_holder_is_left_alone")),
    50: ("one bad cell ended the whole matrix", (
        f"{RUN}test_each_fault_gets_its_outcome",
        f"{RUN}test_a_server_that_dies_mid_window_is_lost_and_the_rest_inherit",
        f"{DISK}test_50_a_server_that_dies_after_it_said_ready",
        f"{RUN}test_a_launch_that_fails_later_is_no_result_and_can_be_measured_again")),
    51: ("results came at the end and were lost by an interruption", (
        f"{STOPS}test_51_52_a_press_at_any_stage_loses_nothing_and_leaves_nothing",
        f"{DISK}test_a_disk_that_fills_up_is_told_and_loses_nothing",
        f"{DISK}test_a_torn_receipt_is_set_aside_and_its_block_is_measured_again")),
    52: ("dead workers, hung starts and stops were waited for without end", (
        f"{PROCESSES}test_52_health_that_never_comes_to_an_end_is_given_up",
        f"{PROCESSES}test_52_a_server_on_another_port_is_told",
        f"{PROCESSES}test_a_leash_that_died_or_hangs_holds_nobody_up",
        f"{PROCESSES}test_a_server_that_cannot_be_killed_is_an_error_that_names_it",
        f"{STOPS}test_a_second_press_ends_a_long_answer_at_once",
        f"{RUN}test_each_fault_gets_its_outcome")),
    53: ("one clock stood in for another", (
        f"{CLOCK}test_53_one_function_looks_at_the_wall_clock",
        f"{CLOCK}test_a_clock_that_jumps_changes_no_figure",
        f"{CLOCK}test_the_expected_time_survives_a_clock_that_was_set_back")),
    54: ("bare Infinity made results no JSON", (
        f"{CLOCK}test_54_what_is_no_number_is_null_and_read_again",
        f"{CLOCK}test_54_55_56_records_are_json_private_and_small")),
    55: ("paths broke records, keys stood in logs", (
        f"{PROCESSES}test_55_a_log_comes_without_secrets_and_terminal_codes",
        f"{CLOCK}test_54_55_56_records_are_json_private_and_small",
        f"{CLOCK}test_55_a_path_in_a_record_is_an_error_here_and_not_in_a_reader",
        f"{RUN}test_receipts_hold_no_path_of_this_machine_and_no_secret")),
    56: ("whole prompts and answers made files huge", (
        f"{CLOCK}test_54_55_56_records_are_json_private_and_small",)),
    57: ("no way to compare and to refuse", (  # the report is the comparison, exit codes are the refusal
        "test_cli.py::test_a_campaign_from_run_to_verify_and_back",
        "analyse/test_findings.py::test_planted_five_percent_is_found")),
    58: ("success was reported although what ran had crashed", (
        f"{OUTSIDE}test_58_a_crash_of_our_own_is_no_success",
        f"{STOPS}test_58_an_error_is_never_an_exit_of_zero",
        "test_cli.py::test_failed_cells_above_the_share_give_exit_4_and_the_report_is_there")),
}  # fmt: skip


def test_every_case_names_tests_that_exist() -> None:
    assert list(CASES) == list(range(47, 59))
    assert all(tests for _, tests in CASES.values())
    assert not {test for _, tests in CASES.values() for test in tests} - known_tests()
