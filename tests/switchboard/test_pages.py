"""Large pages: asked for only where Linux waits to be asked, never handed to children, and counted as they lie."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from switchboard import blas, pages

ASK = "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"


@pytest.fixture
def asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Linux that gives large pages to those who ask, and a C library that can."""
    mode = tmp_path / "enabled"
    mode.write_text("always [madvise] never\n")
    monkeypatch.setattr(pages, "MODE", mode)
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.36")


def test_the_library_is_told_once_and_beside_what_stood_there(asked_for: None) -> None:
    assert pages.settings({}) == {"GLIBC_TUNABLES": ASK}
    given = {"GLIBC_TUNABLES": "glibc.malloc.check=1"}
    assert pages.settings(given) == {"GLIBC_TUNABLES": f"glibc.malloc.check=1:{ASK}"}
    assert pages.settings({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}) == {}
    assert pages.settings({"SWITCHBOARD_HUGE_PAGES": "0"}) == {}


@pytest.mark.parametrize(("mode", "library"), [
    ("[always] madvise never", "glibc 2.36"), ("always madvise [never]", "glibc 2.36"),
    ("always [madvise] never", "glibc 2.34"), ("always [madvise] never", "musl 1.2"), ("always [madvise] never", None),
])  # fmt: skip
def test_nothing_is_asked_where_it_does_nothing(
    asked_for: None, mode: str, library: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.MODE.write_text(mode)
    monkeypatch.setattr(os, "confstr", lambda name: library)
    assert pages.settings({}) == {}


def test_no_file_that_tells_is_no_large_pages(
    asked_for: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MODE", tmp_path / "none")
    monkeypatch.setattr(pages, "OWN", tmp_path / "none")
    assert pages.settings({}) == {}
    assert pages.held() is None


@pytest.mark.parametrize(
    ("inside", "left"), [(ASK, None), (f"a.b=1:{ASK}", "a.b=1"), ("a.b=1", "a.b=1"), (None, None)]
)
def test_children_do_not_inherit_it(
    inside: str | None, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(pages.TUNABLES, raising=False)
    if inside is not None:
        monkeypatch.setenv(pages.TUNABLES, inside)
    pages.keep()
    assert os.environ.get(pages.TUNABLES) == left


def test_a_process_of_the_pool_gets_it_again(
    asked_for: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(blas.MARK, "")
    monkeypatch.delenv(pages.TUNABLES, raising=False)
    monkeypatch.setenv("LD_PRELOAD", "theirs.so")
    with blas.handed_on():
        assert os.environ[pages.TUNABLES] == ASK
        assert os.environ["LD_PRELOAD"] == "theirs.so"
    assert pages.TUNABLES not in os.environ
    assert os.environ["LD_PRELOAD"] == "theirs.so"


@pytest.mark.skipif(
    not pages.settings({}), reason="this Linux or its C library gives no large pages on request"
)
def test_what_is_asked_for_comes() -> None:
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "import threading\n"
        "pieces = []\n"
        "bytearray(b'x') * (24 << 20)\n"
        "def fill(): pieces.extend(bytearray(b'x') * (3 << 19) for _ in range(40))\n"
        "[t.start() or t.join() for t in [threading.Thread(target=fill)]]\n"
        "from switchboard import pages; print(pages.held())"
    )

    def held(environment: dict[str, str]) -> int:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    plain = {name: value for name, value in os.environ.items() if name != pages.TUNABLES}
    assert held(plain) == 0
    assert held(plain | pages.settings({})) > 32 << 20
