"""A file of results by case name that is complete from the start: what was not reached says so."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

NOT_REACHED = {"error": "not reached: the time was over, or its process ended before"}


class Sheet:
    """Results of one section, written whole after every case."""

    def __init__(self, path: Path, planned: Iterable[str], **about: Any) -> None:
        self.path = path
        self.cases: dict[str, Any] = {name: dict(NOT_REACHED) for name in planned}
        self.about = about
        self.save()

    def save(self) -> None:
        """Write it; the old file stands until the new one is whole."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"about": self.about, "cases": self.cases}, default=str))
        fresh.replace(self.path)

    def take(self, name: str, run: Callable[[], dict[str, Any]]) -> None:
        """Run one case and keep what it told, or its error; and how long it took."""
        started = time.perf_counter()
        try:
            told = run()
        except Exception as error:
            traceback.print_exc()
            told = {"error": f"{type(error).__name__}: {error}"[:600]}
        self.cases[name] = {**told, "took_s": round(time.perf_counter() - started, 2)}
        print(f"{name}: {str(told)[:300]}", flush=True)
        self.save()
