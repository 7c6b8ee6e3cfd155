"""An environment for each peer under `.peers/`, built from its pinned list, and a way to run its command there.

Peers are never installed beside battery: one of them needs torch, and their pins would bind ours. `uv` is used where it
is found, else venv and pip; both take the package index that this machine is set up for. A package folder named by
PIP_FIND_LINKS is shown to uv too: that is how a CPU build of torch is found where there is one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.peers import NotDriven

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".peers"
INSTALL_S = 1200
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
"""What of our environment a peer sees: nothing with a key in it."""


def pins(peer: str) -> Path:
    """The exact versions of a peer and of all that it needs."""
    return Path(__file__).with_name(f"{peer}.txt")


def version(peer: str) -> str:
    """The peer's own version, which its list pins."""
    for line in pins(peer).read_text().splitlines():
        name, _, rest = line.partition("==")
        if name == peer:
            return rest.split(";")[0].strip()
    raise NotDriven(f"{pins(peer).name} does not pin {peer}")


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment, built first where it is missing or its list has changed."""
    place = HOME / peer
    python = place / "bin" / "python"
    mark = place / ".ready"
    wanted = hashlib.sha256(pins(peer).read_bytes() + sys.version.encode()).hexdigest()
    if python.exists() and mark.exists() and mark.read_text() == wanted:
        return python
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(exist_ok=True)
    for command in _builders(place, python, pins(peer)):
        _installed(peer, command)
    mark.write_text(wanted)
    return python


def _builders(place: Path, python: Path, wanted: Path) -> list[list[str]]:
    """Commands that make an environment and fill it."""
    beside = ROOT / ".uv" / "bin" / "uv"
    uv = shutil.which("uv") or (str(beside) if beside.exists() else None)
    if uv:
        return [
            [uv, "venv", "-q", "--python", sys.executable, str(place)],
            [uv, "pip", "install", "-q", "--python", str(python), "-r", str(wanted)],
        ]
    return [
        [sys.executable, "-m", "venv", str(place)],
        [
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "-r",
            str(wanted),
        ],
    ]


def _installed(peer: str, command: list[str]) -> None:
    """Run one step of an installation; NotDriven with its last words where it fails."""
    environment = dict(os.environ)
    if "PIP_FIND_LINKS" in environment:
        environment.setdefault("UV_FIND_LINKS", environment["PIP_FIND_LINKS"])
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_S
        )
    except subprocess.TimeoutExpired:
        raise NotDriven(f"installing {peer} took more than {INSTALL_S} s") from None
    if done.returncode != 0:
        raise NotDriven(f"installing {peer} failed: {done.stderr.strip()[-600:]}")


def quiet(workdir: Path) -> dict[str, str]:
    """The environment variables of a peer: its own home, no network, no telemetry, no proxy."""
    home = workdir / "home"
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "HF_HOME": str(home / "hub-home"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONUNBUFFERED": "1",
    }


def run(peer: str, arguments: list[str], workdir: Path, limit_s: float) -> None:
    """Run `python …arguments` of a peer to its end in `workdir`; NotDriven where it fails or takes too long.

    What it prints goes to output.txt there. Its whole process group ends with it, whatever happens.
    """
    said = workdir / "output.txt"
    command = [str(python_of(peer)), *arguments]
    with said.open("wb") as sink:
        child = subprocess.Popen(
            command,
            cwd=workdir,
            env=quiet(workdir),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise NotDriven(f"{peer} did not end within {limit_s:.0f} s; see {said}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if code != 0:
        tail = said.read_text(errors="replace").strip()[-600:]
        raise NotDriven(f"{peer} exited with {code}: {tail}")
