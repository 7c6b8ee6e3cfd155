"""Every switch from off to armed to engaged, configured after everything was imported; and no module that would not."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from published import with_heads
from test_text_only import checkpoint

from switchboard.registry import known
from switchboard.sources import tiny

HERE = Path(__file__).parent
OPTIONS = {
    "adaptive_depth": ["prompt_lookup adaptive_depth"],
    "block_verify": ["draft_model:coupled=false block_verify"],
    "cascade": ["draft_model cascade:alpha=0.5"],
    "prewarm": ["prompt_cache:least=4 prewarm:file=prefix.txt"],
    "quantized_kv": ["quantized_kv:group=32"],
    "typical": ["draft_model typical"],
}
"""What to ask with, where the name alone cannot engage: several tries of words as --switch takes them."""

FROZEN = '''
import os
from switchboard.registry import Applied, Counter, NoOptions, switch

ASKED = os.environ.get("FROZEN_IS_ON") == "1"

@switch(stage="weights", exactness="exact")
def frozen(model, options: NoOptions, counter: Counter) -> Applied:
    """On where the environment said so when this module was imported."""
    layer = model.model.layers[0]
    plain = type(layer).__call__

    def counted(self, *given, **named):
        counter.runs += ASKED
        return plain(self, *given, **named)

    layer.__class__ = type("Counted", (type(layer),), {"__call__": counted})
    return Applied(1, 1, 4, lambda: None)
'''


def audit(
    folder: Path, models: list[str], only: list[str] | None = None, extra: str = ""
) -> dict[str, Any]:
    wanted = {"only": only, "options": OPTIONS, "models": models, "extra": extra}
    done = subprocess.run(
        [sys.executable, str(HERE / "arming.py"), json.dumps(wanted)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("vision")
    checkpoint(folder, "qwen3_vl", "model.visual")
    (folder / "prefix.txt").write_text("abcabcabcabc")
    with_heads(heads := tmp_path_factory.mktemp("heads"), "qwen3_5")
    models = [f"synthetic:tiny-{family}" for family in tiny.FAMILIES]
    return audit(folder, [*models, f"path:{folder}", f"path:{heads}"])


def engages(found: dict[str, Any]) -> str | None:
    """What is wrong with the life of one switch, or None."""
    if found["model"] is None:
        return f"declined everywhere; say in OPTIONS what it needs: {found['refusals']}"
    if found["armed"] != "armed":
        return f"{found['armed']} after the load, before any request"
    if "engaged" not in found["after"]:
        return f"asked for as {found['asked']}, and never ran: {found['after']}"
    return None


@pytest.mark.parametrize("name", list(known()))
def test_off_armed_engaged(followed: dict[str, Any], name: str) -> None:
    assert engages(followed["alone"][name]) is None
    assert followed["off"][name] == [["off", None, 0]] * 4
    kill = known()[name].kill
    assert followed["killed"][name] == [["off", f"killed by {kill}=0", 0]] * 4


def test_a_switch_that_was_frozen_at_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "frozen.py").write_text(FROZEN)
    found = audit(tmp_path, ["synthetic:tiny-llama"], ["frozen"], str(tmp_path))
    told = engages(found["alone"]["frozen"])
    assert told is not None and told.endswith("never ran: ['armed', 'armed', 'armed']")


TRAP = textwrap.dedent('''
    import importlib, json, os, pkgutil, sys

    seen = []

    class Trap(type(os.environ)):
        """The environment, and who asks it."""

        def __init__(self, plain):
            self.__dict__.update(plain.__dict__)

        def asked(self):
            frame = sys._getframe(2)
            while frame is not None:
                name = frame.f_globals.get("__name__", "")
                # The standard library asks for others: for whoever called it.
                if name.partition(".")[0] not in sys.stdlib_module_names | {"__main__"}:
                    break
                frame = frame.f_back
            if frame is not None and name.partition(".")[0] == "switchboard":
                seen.append(f"{name}:{frame.f_lineno}")

        def __getitem__(self, key):
            self.asked()
            return super().__getitem__(key)

        def __contains__(self, key):
            self.asked()
            return super().__contains__(key)

        def __iter__(self):
            self.asked()
            return super().__iter__()

    os.environ = Trap(os.environ)
    import switchboard

    switchboard.__path__ += sys.argv[1:]
    names = [one.name for one in pkgutil.walk_packages(switchboard.__path__, "switchboard.")]
    for name in names:
        importlib.import_module(name)
    print(json.dumps({"modules": len(names), "seen": seen}))
''')


def trapped(*folders: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", TRAP, *folders], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_no_module_reads_the_environment_when_it_is_imported() -> None:
    found = trapped()
    assert found["modules"] > 50
    assert found["seen"] == []


@pytest.mark.parametrize(
    "line",
    [
        "import os; ON = os.environ.get('X') == '1'",
        "import os; ON = os.getenv('X', '0')",
        "from os import environ; ON = 'X' in environ",
        "import os; ALL = dict(os.environ)",
        "import os\ndef f(home=os.environ.get('X')): ...",
        "import os\nclass Options:\n    on = os.getenv('X') or 'no'",
        "from pathlib import Path; HOME = Path('~').expanduser()",
    ],
)
def test_a_module_that_does_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "planted.py").write_text(line)
    (seen, *_) = trapped(str(tmp_path))["seen"]
    assert seen.startswith("switchboard.planted:")
