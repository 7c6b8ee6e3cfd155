"""Give MLX's CPU build a real BLAS, and say which one really runs.

The wheel of MLX for Linux links the reference BLAS (about 2 GFLOP/s). A BLAS preloaded into the process takes its
place (reports/LOG.md has the rates of both). That must happen before MLX is loaded, so the process replaces itself
once (execve keeps its pid). Nothing of MLX is imported here. SWITCHBOARD_BLAS=0 leaves MLX as shipped.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from switchboard import pages

MARK = "SWITCHBOARD_BLAS_PRELOADED"
KILL = "SWITCHBOARD_BLAS"
MAPS = Path("/proc/self/maps")


def preload(threads: int) -> None:
    """Replace this process by itself with a BLAS preloaded and memory in large pages, or return with nothing to do."""
    if MARK in os.environ:
        keep()
        return
    if not _helps_here():
        return
    library = None if os.environ.get(KILL) == "0" else find()
    environment = dict(os.environ) | pages.settings(os.environ)
    if library is not None:
        before = environment.get("LD_PRELOAD")
        environment["LD_PRELOAD"] = f"{library}:{before}" if before else str(library)
        environment.update(_settings(library, threads))
    if environment == dict(os.environ):
        return
    environment[MARK] = str(library or "")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def keep() -> None:
    """Let no child (git, pip) inherit what was preloaded into this process, or its kind of memory."""
    if os.environ.get(MARK):
        os.environ.pop("LD_PRELOAD", None)
    pages.keep()


@contextmanager
def handed_on() -> Iterator[None]:
    """Give processes that are started meanwhile the BLAS that was preloaded into this one, and its kind of memory."""
    library = os.environ.get(MARK)
    if library is not None:
        os.environ.update(pages.settings(os.environ))
        if library:
            os.environ["LD_PRELOAD"] = library
    try:
        yield
    finally:
        if library is not None:
            keep()


def find() -> Path | None:
    """The BLAS to preload: the `mkl` package of this environment, else Debian's OpenBLAS."""
    candidates = sorted((Path(sys.prefix) / "lib").glob("libmkl_rt.so*"))
    if platform.machine() in ("x86_64", "AMD64") and candidates:
        return candidates[-1]
    for pattern in (
        "*-linux-gnu/openblas-pthread/libopenblas.so.0",
        "*-linux-gnu/libopenblas.so.0",
    ):
        found = sorted(Path("/usr/lib").glob(pattern))
        if found:
            return found[0]
    return None


def _helps_here() -> bool:
    if sys.platform != "linux":
        return False
    try:
        metadata.distribution("mlx-cpu")
    except metadata.PackageNotFoundError:
        return False
    return True


def _settings(library: Path, threads: int) -> dict[str, str]:
    """Thread count for each BLAS; MKL also needs 32-bit integers and a threading layer that is there.

    One thread needs no OpenMP at all; more take Intel's, which the `mkl` package depends on.
    """
    count = str(threads)
    settings = {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    if "mkl" in library.name:
        settings["MKL_INTERFACE_LAYER"] = "LP64"
        settings["MKL_THREADING_LAYER"] = "SEQUENTIAL" if threads == 1 else "INTEL"
    return settings


def loaded() -> str | None:
    """The file that answers a matrix product of MLX in this process, from the process's own map.

    The address of `cblas_sgemm` is looked up as MLX's linker does it, and the mapping that holds it named. None
    where the system has no such map (macOS uses Accelerate there).
    """
    if not MAPS.exists():
        return None
    address = _address_of("cblas_sgemm")
    fallback = None
    for line in MAPS.read_text().splitlines():
        fields = line.split()
        if len(fields) < 6:
            continue
        name = Path(fields[5]).name
        low, high = (int(edge, 16) for edge in fields[0].split("-"))
        if address is not None and low <= address < high:
            return name
        if name.startswith("libblas"):
            fallback = name
    return f"{fallback} (reference)" if fallback else None


def _address_of(symbol: str) -> int | None:
    try:
        function = getattr(ctypes.CDLL(None), symbol)
    except AttributeError:
        return None
    return ctypes.cast(function, ctypes.c_void_p).value


def threads_in_use() -> int | None:
    """How many threads the loaded BLAS says it uses; None when it cannot be asked."""
    everything = ctypes.CDLL(None)
    for question in ("MKL_Get_Max_Threads", "openblas_get_num_threads"):
        if hasattr(everything, question):
            return int(getattr(everything, question)())
    return 1 if "reference" in (loaded() or "") else None
