"""An interruption at an awkward moment: inside an `exec`, swallowed on its way, before there is a conductor."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from stopped import command, nothing_left
from test_outside import RUN, done, root, start

from battery import interruption
from battery.bench.progress import Stopper
from battery.ledger.store import Campaign

__all__ = ["root"]

LOST = """
import os, signal
def swallow(where):
    try:
        os.kill(os.getpid(), signal.{signal})
        for _ in range(100):
            pass
    except KeyboardInterrupt:
        print("swallowed in", where, flush=True)
"""
AT = {
    "an exec of an import": "import battery.ledger\nexec('import os\\nos.kill(os.getpid(), signal.{signal})')\n",
    "an import": "swallow('an import')\n",
    "the drawing": "import battery.render.charts as charts\nkept = charts.render_charts\n"
    "def drawn(*given):\n    swallow('the drawing')\n    return kept(*given)\ncharts.render_charts = drawn\n",
    "the analysis": "import battery.analyse.indexed as indexed\nkept = indexed.analyse\n"
    "def analysed(*given):\n    swallow('the analysis')\n    return kept(*given)\nindexed.analyse = analysed\n",
}  # fmt: skip
"""Where a signal is planted: as a module is loaded, or in a function that is called much later."""


@pytest.fixture
def forgotten() -> Iterator[None]:
    """The process's own handlers and memory, as they were."""
    before = {number: signal.getsignal(number) for number in interruption.STOPS}
    yield
    interruption._Heard.ever = False
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("where", "name"), list(zip(AT, ["SIGINT", "SIGTERM"] * 2, strict=True)))
def test_an_interruption_that_is_lost_still_ends_with_130(
    root: Path, where: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted in a module that the command line loads: as it is loaded, or for later in a function it calls."""
    planted = (LOST + AT[where]).replace("{signal}", name)
    (root / "planted.py").write_text(planted)
    (root / "sitecustomize.py").write_text(
        "import importlib.abc, sys\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'battery.cli.publishing' and 'planted' not in sys.modules:\n"
        "            import planted\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]))
    line, environment = command(root, *RUN)
    ended = subprocess.run(line, cwd=root, env=environment, capture_output=True, text=True, timeout=60)  # fmt: skip
    told = ended.stdout + ended.stderr
    assert ended.returncode == 130, told
    assert "Traceback" not in told
    assert ("swallowed in" in told) == ("exec" not in where)
    assert not (root / "reports").exists()
    nothing_left(root, root / "battery.lock")
    measured = (root / "receipts" / "tiny-A").is_dir()
    assert measured == (where in ("the drawing", "the analysis"))
    if measured:
        assert Campaign(root / "receipts" / "tiny-A").sealed()
        monkeypatch.delenv("PYTHONPATH")
        code, told = done(start(root))
        assert code == 0 and (root / "reports" / "tiny-A.json").is_file(), told


@pytest.mark.parametrize("number", interruption.STOPS)
def test_a_conductor_does_not_begin_after_one(number: signal.Signals, forgotten: None) -> None:
    interruption.listen()
    with pytest.raises(interruption.Interrupted):
        os.kill(os.getpid(), number)
        for _ in range(1000):
            pass
    before = signal.getsignal(number)
    with pytest.raises(interruption.Interrupted), Stopper(print):
        raise AssertionError("it began")
    assert signal.getsignal(number) is before


def test_without_one_nothing_ends(forgotten: None) -> None:
    interruption.listen()
    interruption.check()
    with Stopper(print) as stopper:
        assert not stopper.asked
    interruption.deafen()
    for number in interruption.STOPS:
        os.kill(os.getpid(), number)
    interruption.check()
