"""From a wheel to a campaign: what `init` writes, and that it works outside the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from calls import Said

from battery import starter
from battery.bench.backends import load_backend
from battery.ledger.arm import known_arms, load_arm
from battery.ledger.plan import load_plan

ROOT = Path(__file__).parents[1]
ENGINE = Path(__file__).parent / "fake_engine.py"
NAMES = (*starter.ENGINE, *starter.OWN, *starter.REST)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> bool:
    """Whether switchboard is there, as the test wants it; finding it is a test of its own."""
    monkeypatch.setattr(starter, "engine", lambda: request.param)
    return bool(request.param)


def test_every_file_loads_and_the_arms_are_those_of_the_repository(tmp_path: Path) -> None:
    assert {one.name for one in starter.write(tmp_path, True) if one.fresh} == set(NAMES)
    assert known_arms(tmp_path / "arms") == ["A", "C", "mine", "mine-fast"]
    for name in known_arms(tmp_path / "arms"):
        arm = load_arm(name, tmp_path / "arms")
        assert arm.why and load_backend(arm.backend).command(arm, "127.0.0.1", 1)
    for name in ("A", "C"):
        ours = load_arm(name, ROOT / "arms")
        assert load_arm(name, tmp_path / "arms").digest == ours.digest
    mine, fast = (load_arm(name, tmp_path / "arms") for name in ("mine", "mine-fast"))
    assert load_backend("command").command(fast, "h", 1)[-2:] == ["--switch", "my_switch"]
    assert load_backend("command").command(mine, "h", 1)[-1] == "my-model"
    assert load_plan("first", tmp_path / "plans").blocks >= 6


def test_what_stands_in_comments_loads_too(tmp_path: Path) -> None:
    """A comment that is uncommented and refused would be the first thing a newcomer meets."""
    list(starter.write(tmp_path, True))
    for name in ("arms/mine.toml", "arms/mine-fast.toml", "plans/first.toml"):
        path = tmp_path / name
        text = re.sub(r"^# (?=\[|\w+ = )", "", path.read_text(), flags=re.M)
        assert text != path.read_text()
        path.write_text(
            text.replace("[switches]\nmy_switch = true\n", "") if "fast" in name else text
        )
    assert load_arm("mine", tmp_path / "arms").env
    assert load_plan("first", tmp_path / "plans").bars[0].at_least == 0.03


@pytest.mark.parametrize("engine", [True, False], indirect=True)
def test_it_writes_once_and_says_what_to_do(
    tmp_path: Path, say: Callable[..., Said], engine: bool
) -> None:
    said = say(tmp_path, "init", "new/project")
    assert said.returncode == 0, said.stderr
    made = tmp_path / "new" / "project"
    wanted = set(NAMES) - (set() if engine else set(starter.ENGINE))
    files = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    assert files == wanted and said.stdout.count("wrote ") == len(wanted)
    arms = "A,C" if engine else "mine,mine-fast"
    assert "cd new/project" in said.stdout
    assert f"battery run --arms {arms} --plan first" in said.stdout
    assert ("switchboard fetch smollm2-135m" in said.stdout) == engine
    assert ("is not installed here" in said.stdout) == (not engine)
    assert say(made, "plan", "--arms", arms, "--plan", "first").returncode == 0
    (made / "arms" / "mine.toml").write_text("of the user's own\n")
    (made / "plans" / "first.toml").unlink()
    (made / "plans" / "first.toml").symlink_to("nowhere.toml")
    said = say(made, "init")
    assert said.returncode == 0 and "wrote" not in said.stdout and "cd " not in said.stdout
    assert said.stdout.count(", which is there already") == len(wanted)
    assert (made / "arms" / "mine.toml").read_text() == "of the user's own\n"
    assert (made / "plans" / "first.toml").is_symlink() and not (
        made / "plans" / "nowhere.toml"
    ).exists()


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path, say: Callable[..., Said]) -> None:
    (tmp_path / "taken").write_text("x")
    said = say(tmp_path, "init", "taken")
    assert said.returncode == 2 and "taken: is no folder" in said.stderr
    (tmp_path / "arms").write_text("x")
    said = say(tmp_path, "init")
    assert said.returncode == 2 and "arms: is no folder" in said.stderr


def test_the_engine_is_found_by_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"switchboard": object(), "mlx": object()}
    monkeypatch.setattr(starter, "find_spec", there.get)
    assert starter.engine()
    for name in list(there):
        gone = there.pop(name)
        assert not starter.engine()
        there[name] = gone


def installed(folder: Path) -> Path:
    """The `bin` of an environment of its own that has battery from a wheel, and its dependencies from this one."""
    wheels = folder / "wheels"
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as made:
        names = set(made.namelist())
    assert {f"battery/starter/{name.removeprefix('.')}" for name in NAMES} <= names
    venv.create(folder / "venv", with_pip=True)
    (library,) = (folder / "venv").glob("lib/python*/site-packages")
    python = folder / "venv" / "bin" / "python"
    line = [
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        str(wheel),
    ]
    done = subprocess.run(line, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    # a path file in a path file is not followed, so the checkout that is installed here is not found through it
    (library / "others.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return python.parent


def test_a_campaign_from_an_installed_wheel(tmp_path: Path) -> None:
    bin = installed(tmp_path)
    project = tmp_path / "project"
    kept = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")
    }
    kept["BATTERY_LOCK"] = str(tmp_path / "battery.lock")

    def battery(*words: str, at: Path = project) -> str:
        done = subprocess.run(
            [str(bin / "battery"), *words],
            cwd=at,
            env=kept,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = subprocess.run(
        [str(bin / "python"), "-c", "import battery; print(battery.__file__)"],
        cwd=tmp_path,
        env=kept,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(tmp_path), "the wheel is what runs"
    assert "next:" in battery("init", "project", at=tmp_path)
    arm = project / "arms" / "mine.toml"
    words = json.dumps(
        ["{python}", str(ENGINE), "--port", "{port}", "--model", "{model}", "{switches}"]
    )
    arm.write_text(re.sub(r"^command = .*$", f"command = {words}", arm.read_text(), flags=re.M))
    fast = project / "arms" / "mine-fast.toml"
    fast.write_text(fast.read_text().replace("my_switch", "prompt_lookup"))
    (project / "plans" / "tiny.toml").write_text(
        'why = "Two short blocks."\nladder = [64]\nblocks = 2\n[sampler]\nmax_tokens = 8\nmin_tokens = 8\n'
        "[gate]\nwait_s = 5\nmax_busy = 1.0\nmax_pressure = 1.0\nmax_steal = 1.0\ncalibration = 5.0\nbaseline_s = 0\n"
    )
    assert "mine mine-fast | mine-fast mine" in battery(
        "plan", "--arms", "mine,mine-fast", "--plan", "first"
    )
    said = battery("run", "--arms", "mine,mine-fast", "--plan", "tiny", "--campaign", "c", "--json")
    assert json.loads(said.splitlines()[-1])["outcomes"] == {"ok": 8}
    assert (project / "charts" / "c" / "decode.svg").is_file()
    assert "c: holds" in battery("verify")
