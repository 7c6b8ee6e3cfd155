"""The command line as a script sees it: exit codes, one clear line, and a whole campaign on the fake engine."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from calls import Said, battery

from battery.bench.lock import MachineLock
from battery.ledger.store import Campaign

ENGINE = Path(__file__).parent / "fake_engine.py"
PLAN = """
ladder = [64, 96]
blocks = 2
[sampler]
max_tokens = 12
min_tokens = 12
[gate]
wait_s = 5
max_busy = 1.0
max_pressure = 1.0
max_steal = 1.0
calibration = 5.0
[limits]
launch_s = 10
request_s = 10
"""


@pytest.fixture
def call(root: Path, say: Callable[..., Said]) -> Callable[..., Said]:
    return partial(say, root)


def arm_file(root: Path, name: str, *options: str, switches: Sequence[str] = ()) -> None:
    words = ["{python}", str(ENGINE), "--port", "{port}", "--model", "{model}", *options]
    words += [word for switch in switches for word in ("--switch", switch)]
    lines = ['backend = "command"', 'model = "tiny"', f"command = {json.dumps(words)}"]
    if switches:
        lines += ["[switches]", *(f"{switch} = true" for switch in switches)]
    (root / "arms" / f"{name}.toml").write_text("\n".join(lines) + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("arms", "plans"):
        (tmp_path / folder).mkdir()
    arm_file(tmp_path, "A")
    arm_file(tmp_path, "C", switches=["prompt_lookup"])
    (tmp_path / "plans" / "tiny.toml").write_text(PLAN)
    return tmp_path


def test_a_campaign_from_run_to_verify_and_back(root: Path) -> None:
    done = battery(root, "run", "--arms", "A,C", "--plan", "tiny", "--campaign", "first", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said == {
        "campaign": "first",
        "cells": 12,
        "outcomes": {"ok": 12},
        "bars": {},
        "report": "reports/first.md",
    }
    assert (root / "reports" / "first.md").is_file() and (
        root / "charts/first/decode.svg"
    ).is_file()

    assert (
        "as a campaign of this plan took here on"
        in battery(root, "plan", "--arms", "A,C", "--plan", "tiny").stdout
    )
    status = battery(root, "status")
    assert status.returncode == 0
    assert "2/2" in status.stdout and "12/12" in status.stdout and "sealed" in status.stdout

    before = {path: path.read_bytes() for path in (root / "charts").rglob("*") if path.is_file()}
    page = (root / "reports" / "first.md").read_bytes()
    assert battery(root, "charts").returncode == 0 and battery(root, "report").returncode == 0
    assert all(path.read_bytes() == data for path, data in before.items())
    assert (root / "reports" / "first.md").read_bytes() == page

    assert battery(root, "verify", "receipts/first").returncode == 0
    receipt = sorted((root / "receipts" / "first").glob("0003-*"))[0]
    receipt.chmod(0o644)
    text = receipt.read_text()
    receipt.write_text(text.replace('"sequence": 3', '"sequence": 4'))
    broken = battery(root, "verify", "first")
    assert broken.returncode == 8 and receipt.name in broken.stderr
    receipt.write_text(text)
    assert battery(root, "verify", "first").returncode == 0
    report = root / "reports" / "first.md"
    report.write_text(report.read_text().replace("n=2", "n=3", 1))
    broken = battery(root, "verify", "first")
    assert broken.returncode == 8 and "first.md" in broken.stderr


def test_a_second_run_of_a_finished_campaign_gets_a_name_of_its_own(root: Path) -> None:
    for _ in range(2):
        done = battery(root, "run", "--arms", "A", "--plan", "tiny")
        assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (root / "receipts").glob("*/")) == ["tiny-A", "tiny-A-2"]


def test_failed_cells_above_the_share_give_exit_4_and_the_report_is_there(root: Path) -> None:
    arm_file(root, "X", "--fault", "short:7", "--after", "5")
    done = battery(root, "run", "--arms", "A,X", "--plan", "tiny", "--campaign", "bad", "--json")
    assert done.returncode == 4 and "6 of 12 cells did not end ok (6 short)" in done.stderr
    assert "more than the 5 % that the plan allows" in done.stderr
    where = [line.strip() for line in done.stderr.splitlines() if line.startswith("  X at ")]
    assert len(where) == 2 and where[0].startswith(
        "X at 64 tokens, block 1 sentinel, block 1 seed "
    )
    assert where[1].startswith("X at 96 tokens, block 1 seed ") and ", block 2 seed " in where[1]
    assert all(": short: 7 of at least 12 tokens came (stop)" in line for line in where)
    assert json.loads(done.stdout.splitlines()[-1])["outcomes"] == {"ok": 6, "short": 6}
    assert (root / "reports" / "bad.md").is_file()


@pytest.mark.parametrize(("share", "code"), [(0.0, 4), (0.5, 0), (0.4, 4)])
def test_the_plan_says_how_much_may_fail(root: Path, share: float, code: int) -> None:
    """14: half of these cells fail; the run is an error exactly where that is above the plan's share."""
    arm_file(root, "X", "--fault", "error-in-stream:3", "--after", "5")
    (root / "plans" / "some.toml").write_text(f"{PLAN}failed_share = {share}\n")
    done = battery(root, "run", "--arms", "A,X", "--plan", "some", "--campaign", "bad")
    assert done.returncode == code, done.stderr
    told = "X at 96 tokens" in done.stderr and "error inside the stream" in done.stderr
    assert told == (code == 4)


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["run", "--arms", "A,Z"], 2, "no arm 'Z'; known: A, C"),
        (["run", "--arms", ""], 2, "no arm was named"),
        (["run", "--arms", "A,A"], 2, "each arm once"),
        (["run", "--plan", "quik"], 2, "did you mean 'quick'"),
        (["run", "--plan", "no.toml"], 2, "no.toml: no such file"),
        (["run", "--campaign", "../x"], 2, "campaign name"),
        (["run", "--sead", "4"], 2, "--sead"),
        (["plam"], 2, "plam"),
        (["verify", "nothing"], 2, "no campaign"),
        (["status"], 2, "no campaign yet; start one with"),
    ],
)
def test_wrong_input_is_one_line_and_a_code(
    root: Path, call: Callable[..., Said], words: list[str], code: int, complaint: str
) -> None:
    done = call(*words)
    assert done.returncode == code, done.stderr
    assert complaint in done.stderr and "Traceback" not in done.stderr
    assert not (root / "receipts").exists()


def test_an_unknown_key_names_file_key_and_nearest(root: Path, call: Callable[..., Said]) -> None:
    (root / "plans" / "odd.toml").write_text(PLAN.replace("wait_s", "wiat_s"))
    done = call("plan", "--plan", "odd")
    assert done.returncode == 2
    assert "odd.toml: unknown key 'gate.wiat_s'; did you mean 'wait_s'?" in done.stderr


def test_a_server_that_dies_at_start_is_exit_6_with_its_last_lines(root: Path) -> None:
    arm_file(root, "D", "--fault", "die-at-start")
    done = battery(root, "run", "--arms", "D", "--plan", "tiny")
    assert done.returncode == 6 and "exited with 3 while starting" in done.stderr
    assert "last lines" in done.stderr


def test_a_port_in_use_is_exit_5_and_its_holder_is_left_alone(root: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        done = battery(root, "run", "--arms", "A", "--plan", "tiny", "--port", port)
        assert done.returncode == 5 and f"port {port} is in use by another process" in done.stderr
        with socket.create_connection(holder.getsockname(), timeout=5):
            pass


def test_a_second_battery_is_exit_5(root: Path) -> None:
    with MachineLock("the-other-one", root / "battery.lock"):
        done = battery(root, "run", "--arms", "A", "--plan", "tiny")
    assert done.returncode == 5 and "the-other-one" in done.stderr


def test_a_corrupt_receipt_is_named_and_not_pooled(root: Path) -> None:
    assert battery(root, "run", "--arms", "A", "--plan", "tiny", "--campaign", "c").returncode == 0
    receipt = sorted((root / "receipts" / "c").glob("0002-*"))[0]
    receipt.chmod(0o644)
    receipt.write_text(receipt.read_text()[:200])
    status = battery(root, "status", "c")
    assert receipt.name in status.stderr
    header = root / "receipts" / "c" / "campaign.json"
    (root / "receipts" / "d").mkdir()
    (root / "receipts" / "d" / "campaign.json").write_bytes(header.read_bytes()[:80])
    both = battery(root, "status")
    assert "d/campaign.json: cannot be read" in both.stderr
    assert "damaged" in both.stdout and "sealed" in both.stdout
    verify = battery(root, "verify", "c")
    assert verify.returncode == 8 and receipt.name in verify.stderr
    again = battery(root, "run", "--arms", "A", "--plan", "tiny", "--campaign", "c")
    assert again.returncode == 7 and receipt.name in again.stderr


@pytest.mark.parametrize(
    "verb",
    [
        "plan",
        "run",
        "status",
        "charts",
        "report",
        "lint",
        "verify",
        "check",
        "import",
        "combine",
        "diff",
        "pack",
        "pr",
        "init",
        "arms",
        "doctor",
        "probe",
    ],
)
def test_every_verb_has_help_with_an_example(call: Callable[..., Said], verb: str) -> None:
    done = call(verb, "--help")
    assert done.returncode == 0 and f"battery {verb}" in done.stdout and "Example" in done.stdout


def test_plan_touches_nothing_and_shows_the_order(root: Path, call: Callable[..., Said]) -> None:
    done = call("plan", "--arms", "A,C", "--plan", "tiny")
    assert done.returncode == 0 and "A C | C A" in done.stdout and "12 receipts" in done.stdout
    assert "switches.prompt_lookup: None -> True" in done.stdout
    assert not (root / "receipts").exists()


def test_arms_and_doctor(call: Callable[..., Said]) -> None:
    assert "prompt_lookup" in call("arms").stdout
    facts = json.loads(call("doctor", "--json").stdout)
    assert facts["arms"] == "A, C" and "tiny" in facts["plans"]
    for kind in ("cgroup", "RLIMIT_AS"):
        assert kind in facts["memory limit"]
    for source in (
        "engine",
        "nvml",
        "nvml-device",
        "cgroup",
        "phys_footprint",
        "VmHWM",
        "pss",
        "rss",
    ):
        assert source in facts["peak memory"]


def test_a_knock_out_campaign_differs_in_one_switch_per_arm(
    root: Path, call: Callable[..., Said]
) -> None:
    words = ["{python}", str(ENGINE), "--port", "{port}", "--model", "{model}", "{switches}"]
    (root / "arms" / "K.toml").write_text(
        f'backend = "command"\nmodel = "tiny"\ncommand = {json.dumps(words)}\n'
        '[switches]\nfused_qkv = true\nprompt_lookup = { ngram = 3 }\n[env]\nSWITCHBOARD_X = "1"\n'
    )
    done = battery(root, "run", "--knockout", "K", "--plan", "tiny")
    assert done.returncode == 0, done.stderr
    kept = Campaign(root / "receipts" / "tiny-knockout-K")
    receipts = kept.receipts()
    assert kept.header().screen == "knockout"
    lines = {r.cell.arm: r.command[r.command.index("tiny") + 1 :] for r in receipts}
    assert lines == {
        "K": ("--switch", "fused_qkv", "--switch", "prompt_lookup:ngram=3"),
        "K-no-fused_qkv": ("--switch", "prompt_lookup:ngram=3"),
        "K-no-prompt_lookup": ("--switch", "fused_qkv"),
    }
    ran = {
        r.cell.arm: {s.name for s in r.engagement.switches if s.state == "engaged"}
        for r in receipts
    }
    assert ran["K-no-fused_qkv"] == {"prompt_lookup"} and ran["K-no-prompt_lookup"] == {"fused_qkv"}
    same = {(r.arm.backend, r.arm.model, tuple(r.environment.items())) for r in receipts}
    assert len(same) == 1 and ("SWITCHBOARD_X", "1") in same.pop()[2]
    blocks = {(r.cell.block, r.cell.arm) for r in receipts}
    assert len(blocks) == 2 * 3
    page = (root / "reports" / "tiny-knockout-K.md").read_text()
    assert "K-no-fused_qkv" in page and "K without fused_qkv" in page
    again = next(line for line in page.splitlines() if line.startswith("battery run "))
    said = call(*["plan" if word == "run" else word for word in again.split()[1:]])
    assert said.returncode == 0, said.stderr
    assert all(
        f"{name} differs from K in" in said.stdout
        for name in ("K-no-fused_qkv", "K-no-prompt_lookup")
    )


def test_one_choice_of_arms(call: Callable[..., Said]) -> None:
    said = call("plan", "--arms", "A", "--knockout", "C", "--plan", "tiny")
    assert said.returncode == 2 and "--arms and --knockout: give one of them" in said.stderr
    said = call("plan", "--isolate", "C", "--plan", "tiny")
    assert said.returncode == 2 and '"{switches}"' in said.stderr
