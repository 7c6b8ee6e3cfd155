"""What reports say of gates, disturbances and the inside of cells, from receipts of known truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from synthetic import World, build

from battery.analyse.findings import Findings, analyse
from battery.ledger.plan import Limits
from battery.ledger.receipt import Gpu, Reading, Receipt
from battery.render import gating, report

INFEASIBLE = "INFEASIBLE: three deviations of the idle machine itself (45%) exceed the limit 25%"


def found(tmp_path: Path, change: Callable[[Receipt], Receipt], **world: Any) -> Findings:
    return analyse(build(tmp_path, World(change=change, **world)))


def with_gate(receipt: Receipt, **changes: Any) -> Receipt:
    return msgspec.structs.replace(receipt, gate=msgspec.structs.replace(receipt.gate, **changes))


def row(findings: Findings, limit: str) -> str:
    lines = gating.gates(findings).splitlines()
    return next((line for line in lines if line.startswith(f"| `{limit}`")), "")


def test_receipts_from_before_a_limit_do_not_claim_it(tmp_path: Path) -> None:
    old = found(tmp_path, lambda receipt: receipt)
    assert old.gates.applied is None
    assert "gated" in row(old, "max_busy") and "no sensor" in row(old, "max_temp_c")
    for later in ("max_pressure", "need_steady", "need_own_gpu", "min_clock_share", "baseline_s"):
        assert row(old, later) == "", later


def test_what_was_applied_is_told_by_sensor_and_the_rest_with_its_reason(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        applied = ("max_busy", "need_steady (processor)", "need_steady (swap)")
        if receipt.sequence == 1:
            applied = applied[1:]
        ungated = {
            "need_steady (gpu)": "no NVML",
            "calibration": INFEASIBLE,
            "max_steal": "not told",
        }
        return with_gate(receipt, applied=applied, ungated=ungated)

    now = found(tmp_path, change)
    assert row(now, "need_steady") == (
        "| `need_steady` | True | gated (processor, swap); not gated: gpu: no NVML (60 cells) |"
    )
    assert "gated in 59 cells" in row(now, "max_busy")
    assert row(now, "max_steal").endswith("| not told (60 cells) |")
    assert row(now, "temp_band_c").endswith("| not told |"), "silence is no gate"


def test_an_infeasible_calibration_never_reads_as_passed(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        return with_gate(receipt, applied=("max_busy",), ungated={"calibration": INFEASIBLE})

    now = found(tmp_path, change)
    assert row(now, "calibration").endswith(f"| {INFEASIBLE} (60 cells) |")
    assert any(f"not gated: calibration: {INFEASIBLE}" in doubt.what for doubt in now.doubts)
    assert INFEASIBLE in report.markdown(now)


def test_the_readings_of_a_refused_gate_opened_none(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        hot = Reading(at_s=-0.2, busy=0.9, temp_c=99.0)
        return (
            with_gate(receipt, verdict="refused", reading=hot) if receipt.sequence == 7 else receipt
        )

    ranges = found(tmp_path, change).gates.ranges
    assert ranges["busy"] == (0.1, 0.1) and "temp_c" not in ranges


def sampled(receipt: Receipt, *samples: Reading) -> Receipt:
    return msgspec.structs.replace(receipt, samples=samples)


def test_samples_are_split_at_the_first_token(tmp_path: Path) -> None:
    """The synthetic prefill ends after 0.14 or 0.43 s, decode goes on for more than a second."""

    def change(receipt: Receipt) -> Receipt:
        if receipt.cell.rung != 384 or receipt.cell.sentinel:
            return receipt
        return sampled(
            receipt,
            Reading(at_s=-0.01, busy=0.9, temp_c=10.0),
            Reading(at_s=0.5, busy=0.25, temp_c=50.0),
            Reading(at_s=1.0, busy=0.5, temp_c=60.0),
            Reading(at_s=1.5, busy=0.75, temp_c=70.0),
        )

    phases = {(one.arm, one.phase): one for one in found(tmp_path, change).phases}
    assert set(phases) == {(arm, phase) for arm in "AC" for phase in ("prefill", "decode")}
    prefill, decode = phases["A", "prefill"], phases["A", "decode"]
    assert prefill.means == {"busy": 0.25, "temp_c": 50.0}, (
        "the first half second was mostly prefill"
    )
    assert decode.samples > prefill.samples == 12
    assert 0.5 <= decode.means["busy"] <= 0.75 and decode.means["temp_c"] >= 60


def test_cells_without_a_first_token_or_samples_are_in_no_phase(tmp_path: Path) -> None:
    assert found(tmp_path, lambda receipt: receipt).phases == ()


@pytest.mark.parametrize(
    ("clock", "bits", "words"),
    [
        (1980.0, 0, None),
        (1965.0, 0, None),
        (1900.0, 0, "its GPU ran at 1,900 MHz, the control's at 1,980 MHz (-4.0 %)"),
        (1980.0, 4, "its GPU was under a power cap in 100 % of the samples, the control's in 0 %"),
    ],
)
def test_gpus_that_ran_otherwise_are_told_beside_the_ratio(
    tmp_path: Path, clock: float, bits: int, words: str | None
) -> None:
    def change(receipt: Receipt) -> Receipt:
        mine = receipt.cell.arm == "C"
        gpu = Gpu(index=0, event_bits=bits if mine else 0)
        reading = Reading(at_s=1.0, gpu_clock_mhz=clock if mine else 1980.0, gpus=(gpu,))
        return sampled(receipt, Reading(at_s=-0.1), reading)

    told = [doubt for doubt in found(tmp_path, change).doubts if "GPU" in doubt.what]
    assert [doubt.what.partition(": ")[2] for doubt in told] == ([words] if words else [])
    assert all(doubt.severity == "warning" and doubt.arm == "C" for doubt in told)


def test_a_complete_attempt_that_was_disturbed_counts_only_once_the_reruns_are_used_up(
    tmp_path: Path,
) -> None:
    def change(receipt: Receipt) -> Receipt:
        if receipt.sequence != 1:
            return receipt
        return msgspec.structs.replace(receipt, breach=("the machine was on fire",))

    given_up = found(tmp_path / "two", change)
    assert given_up.blocks_complete == 5 and not given_up.disturbances[0].counted
    stands = found(tmp_path / "none", change, plan={"limits": no_reruns()})
    assert stands.blocks_complete == 6 and stands.disturbances[0].counted
    assert any("block 1 stands although" in doubt.what for doubt in stands.doubts)
    assert "stands: reruns used up" in gating.disturbances(stands)


def no_reruns() -> Limits:
    return Limits(reruns=0)
