"""The wall clock may jump: no figure comes from it. Numbers, paths and texts in records stay what JSON can hold.

53 of the field's public defects: one clock used for another; 54: bare Infinity in results; 55: paths and secrets in
records; 56: whole prompts and answers in every record.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from stopped import complete

from battery import choices
from battery.analyse import findings
from battery.bench import lock, measure
from battery.bench.run import Conductor
from battery.ledger import store
from battery.ledger.arm import Arm
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign

Make = Callable[..., Arm]
ROOT = Path(__file__).parents[2]
WALL = {
    ("time", "time"), ("time", "time_ns"), ("time", "gmtime"), ("time", "localtime"), ("time", "strftime"),
    ("time", "ctime"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"),
}  # fmt: skip
JUMPS = (
    "2026-05-01T12:00:00Z",
    "2019-01-01T00:00:00Z",
    "2031-12-31T23:59:59Z",
    "1970-01-01T00:00:00Z",
    "2026-05-01T12:00:01Z",
)


def wall_clocks(source: str) -> list[str]:
    """Functions of a module that look at the wall clock."""
    found = []
    tree = ast.parse(source)
    for holder in ast.walk(tree):
        if not isinstance(holder, ast.FunctionDef | ast.Module | ast.ClassDef):
            continue
        for node in itertools.chain.from_iterable(
            ast.walk(child)
            for child in ast.iter_child_nodes(holder)
            if not isinstance(child, ast.FunctionDef | ast.ClassDef)
        ):
            if isinstance(node, ast.Attribute):
                owner = node.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if (name, node.attr) in WALL:
                    found.append(getattr(holder, "name", "module"))
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                found += [f"import {one.name}" for one in node.names if ("time", one.name) in WALL]
    return found


def test_53_one_function_looks_at_the_wall_clock() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "battery").rglob("*.py")
        for name in wall_clocks(path.read_text())
    }
    # the stamps of files, which an index is held to, are the wall clock's own
    assert found == {("battery/ledger/store.py", "utc_now"), ("battery/ledger/index.py", "look")}


@pytest.mark.parametrize(
    "planted",
    ["import time\ndef f():\n    return time.time()", "from time import time_ns",
     "import datetime\nclass A:\n    def f(self):\n        x = [datetime.datetime.now()]",
     "from datetime import datetime as datetime\nNOW = datetime.now()"],
)  # fmt: skip
def test_the_look_for_wall_clocks_finds_one(planted: str) -> None:
    assert wall_clocks(planted)


def test_a_clock_that_jumps_changes_no_figure(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.cycle(JUMPS)
    for module in (store, measure, lock):
        monkeypatch.setattr(module, "utc_now", lambda: next(times))
    folder = tmp_path / "jumping" / "c"
    arms = [fake_arm("A"), fake_arm("C", switches={"prompt_lookup": True})]
    Conductor(small_plan, arms, folder, None, 4821, lock=tmp_path / "lock").run()
    assert complete(folder) == {"ok": 12}
    receipts = Campaign(folder).receipts()
    assert any(one.started > one.ended for one in receipts), "the clock did jump back in a cell"
    assert all(0 < one.trace.events[-1].at_ns < 10e9 for one in receipts)
    assert all(0 <= one.gate.waited_s < 10 for one in receipts)

    steady = tmp_path / "steady" / "c"
    shutil.copytree(folder, steady)
    for path, receipt in zip(Campaign(steady).paths(), receipts, strict=True):
        path.chmod(0o644)
        same = msgspec.structs.replace(receipt, started=JUMPS[0], ended=JUMPS[0])
        path.write_bytes(store.by_field(same))
    journal = steady / store.JOURNAL
    journal.write_text(re.sub(r'"at":"[^"]*"', f'"at":"{JUMPS[0]}"', journal.read_text()))
    Campaign(steady).seal()
    jumping, calm = (msgspec.to_builtins(findings.analyse(one)) for one in (folder, steady))
    for shown in (
        "seal",
        "first_started",
        "last_ended",
    ):  # the dates are shown to people, and the seal covers them
        assert jumping.pop(shown) != calm.pop(shown)
    assert jumping == calm


@pytest.mark.parametrize(
    ("stamps", "words"),
    [
        (("2026-05-01T12:00:00Z", "2026-05-01T12:10:00Z"), "expected time: about 10 min"),
        (("2026-05-01T12:10:00Z", "2026-05-01T12:00:00Z"), "expected time: not known"),
        (("2026-05-01T12:10:00Z", "2026-05-01T12:10:00Z"), "expected time: not known"),
    ],
)
def test_the_expected_time_survives_a_clock_that_was_set_back(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, stamps: tuple[str, str], words: str
) -> None:
    plan = msgspec.structs.replace(small_plan, ladder=(64,), blocks=1, sentinel=False)
    folder = tmp_path / "receipts" / "c"
    Conductor(plan, [fake_arm("A")], folder, None, 4821, lock=tmp_path / "lock").run()
    lines = [
        f'{{"at":"{at}","event":"{event}"}}\n'
        for at, event in zip(stamps, ("started", "finished"), strict=True)
    ]
    (folder / store.JOURNAL).write_text("".join(lines))
    machine = Campaign(folder).header().machine
    told = choices.expected_time(plan, 1, 1, tmp_path, machine)
    assert told.startswith(words)
    if "about" in words:
        assert told.endswith(
            f"as a campaign of this plan took here on {Campaign(folder).header().created}"
        )
    again = choices.campaign_folder("", plan, [fake_arm("A")], "A", tmp_path, Console(quiet=True))
    assert again.name == "small-A"
    (folder / store.HEADER).chmod(0o644)
    (folder / store.HEADER).write_bytes(b"{")
    assert "not known" in choices.expected_time(plan, 1, 1, tmp_path, machine), (
        "damage elsewhere is no reason to stop"
    )


def strict_json(text: str) -> object:
    """JSON as its standard has it: Python's own reader takes Infinity and NaN."""

    def refuse(word: str) -> object:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_54_55_56_records_are_json_private_and_small(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    """A server that prints keys, dies, and is asked a prompt that is longer than its record may be."""
    plan = msgspec.structs.replace(small_plan, ladder=(64, 6000), blocks=1)
    arm = fake_arm("A", "--fault", "dirty-log", "--fault", "die-after:6")
    arm = msgspec.structs.replace(arm, env={"SERVICE_TOKEN": "hunter2hunter2"})
    folder = tmp_path / "receipts" / "c"
    Conductor(plan, [arm], folder, None, 4821, lock=tmp_path / "lock").run()
    counts = complete(folder)
    assert counts == {"ok": 1, "lost": 2}
    found = findings.analyse(folder)
    findings.write(found, tmp_path / "c.json")
    for path in (tmp_path / "c.json", *folder.glob("*.json")):
        text = path.read_text()
        strict_json(text)
        for private in ("hunter2", "sk-abcdef", str(tmp_path), "\x1b", "\\u001b"):
            assert private not in text, (path.name, private)
    for line in (folder / store.JOURNAL).read_text().splitlines():
        strict_json(line)
    for receipt in Campaign(folder).receipts():
        written = (len(receipt.text.head) + len(receipt.text.tail)) if receipt.text else 0
        assert written <= 400
    assert max(path.stat().st_size for path in Campaign(folder).paths()) < 24_000
    lost = [one for one in Campaign(folder).receipts() if one.outcome == "lost"]
    assert "lost the device" in lost[0].evidence["log_tail"], (
        "what was printed is kept all the same"
    )


def test_54_what_is_no_number_is_null_and_read_again(tmp_path: Path) -> None:
    text = store.pretty(
        {"rate": float("inf"), "share": float("nan"), "low": -float("inf")}
    ).decode()
    assert strict_json(text) == {"rate": None, "share": None, "low": None}
    with pytest.raises(ValueError, match="Infinity is no JSON"):
        strict_json('{"rate": Infinity}')


def test_55_a_path_in_a_record_is_an_error_here_and_not_in_a_reader(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    with pytest.raises(TypeError, match="unsupported"):
        campaign.note("event", where=tmp_path)
    assert not (tmp_path / store.JOURNAL).exists() and not list(tmp_path.iterdir())


def test_a_receipt_that_cannot_be_encoded_leaves_no_file(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    plan = msgspec.structs.replace(small_plan, ladder=(64,), blocks=1, sentinel=False)
    Conductor(plan, [fake_arm("A")], tmp_path / "c", None, 4821, lock=tmp_path / "lock").run()
    (receipt,) = Campaign(tmp_path / "c").receipts()
    other = Campaign(tmp_path / "d")
    broken: Receipt = msgspec.structs.replace(receipt, evidence={"path": tmp_path})
    with pytest.raises(TypeError):
        other.write(broken)
    assert not os.path.lexists(tmp_path / "d")
