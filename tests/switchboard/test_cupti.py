"""Kernels are counted from the driver's records: here from a library that tells known ones, in CUPTI's own calls."""

from __future__ import annotations

import subprocess
from pathlib import Path

import emulated
import mlx.core as mx
import pytest

from switchboard import census, cupti
from switchboard.config import Asked

FAKE = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef void (*Ask)(uint8_t **, size_t *, size_t *);
typedef void (*Give)(void *, uint32_t, uint8_t *, size_t, size_t);
static Ask ask; static Give give;
enum { RECORD = 216 };
static int pending[64], count, at, dropped;
static const char *names[] = {"rope", "sdpa", NULL};
int cuptiActivityRegisterCallbacks(Ask a, Give g) { ask = a; give = g; return REFUSE; }
int cuptiActivityEnable(int kind) { return kind == 10 || kind == 1 || kind == 2 ? 0 : 1; }
int cuptiGetResultString(int status, const char **said) { *said = "said so"; return 0; }
int cuptiActivityGetNumDroppedRecords(void *c, uint32_t s, size_t *n) { *n = dropped; return 0; }
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record) {
  if (at * RECORD >= (int)valid) return 12;
  *record = buffer + RECORD * at++;
  return 0;
}
int cuptiActivityFlushAll(uint32_t flag) {
  uint8_t *buffer; size_t size, most;
  if (!count) return 0;
  ask(&buffer, &size, &most);
  if ((uintptr_t)buffer % 8 || size < RECORD * 64) return 1;
  memset(buffer, 0, RECORD * count);
  for (int i = 0; i < count; i++) {
    *(uint32_t *)(buffer + RECORD * i) = pending[i] % 100;
    *(const char **)(buffer + RECORD * i + 104) = names[pending[i] / 100];
  }
  at = 0;
  give(NULL, 0, buffer, size, RECORD * count);
  count = 0;
  return 0;
}
void start(int kind, int name) { pending[count++] = kind + 100 * name; }
void drop(int some) { dropped = some; }
"""
pytestmark = pytest.mark.skipif(emulated.compiler() is None, reason="no C compiler here")


def build(folder: Path, refuse: int = 0) -> cupti.Library:
    text, library = folder / "fake.c", folder / f"fake{refuse}.so"
    text.write_text(FAKE)
    words = ["gcc", f"-DREFUSE={refuse}", "-shared", "-fPIC", str(text), "-o", str(library)]
    subprocess.run(words, check=True)
    return cupti.Library(str(library))


def test_records_are_counted_by_kind_and_name_and_from_the_start_of_the_run(tmp_path: Path) -> None:
    library = build(tmp_path)
    fake = library._calls
    fake.start(10, 0)  # What was there before is not the run's.

    def run() -> None:
        for kind, name in ((10, 0), (10, 1), (3, 1), (1, 0), (2, 0), (99, 0), (10, 2)):
            fake.start(kind, name)

    seen = library.during(run)
    assert seen.kinds == {"kernels": 4, "copies": 1, "fills": 1}
    assert seen.names == {"rope": 1, "sdpa": 2, "without a name": 1}
    assert library.during(lambda: None).kinds == {}
    assert not library._buffers, "buffers are let go"


def test_dropped_records_and_a_refusal_are_no_count(tmp_path: Path) -> None:
    library = build(tmp_path)
    library._calls.drop(3)
    with pytest.raises(cupti.Absent, match="3 records were dropped"):
        library.during(lambda: library._calls.start(10, 0))
    with pytest.raises(cupti.Absent, match="RegisterCallbacks answered 7: said so"):
        build(tmp_path, refuse=7)
    with pytest.raises(cupti.Absent, match="cannot be loaded"):
        cupti.Library(str(tmp_path / "none.so"))


def test_without_a_gpu_the_reason_is_told() -> None:
    if mx.cuda.is_available():
        pytest.skip("a GPU is here")
    assert "NVIDIA" in str(cupti.each(lambda: None, 1))


def test_the_census_tells_launches_where_they_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = build(tmp_path)
    fake, real = library._calls, census.forward
    monkeypatch.setattr(cupti, "library", lambda: library)

    def forward(*given: object) -> mx.array:
        fake.start(10, 0)
        fake.start(10, 1)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(census, "forward", forward)
    taken = census.take("synthetic:tiny-llama-none", "auto", [Asked("fused_qkv")])
    assert (taken.launches, taken.launches_unknown) == (2, None)
    assert taken.kernels == {"rope": 1, "sdpa": 1}
    assert taken.changes[0].launches == 2
    assert census.table(taken)[-1] == "kernel launches: 2 a step; fused_qkv 2 (+0)"
