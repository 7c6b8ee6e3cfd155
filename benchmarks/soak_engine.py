"""The fake engine with faults that chance picks anew at every launch, the same for the same seed.

    python benchmarks/soak_engine.py FOLDER SEED ARM --port … --model …

FOLDER holds the number of launches so far. It replaces itself by tests/fake_engine.py, so that the process that was
started is the server.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

ENGINE = Path(__file__).parents[1] / "tests" / "fake_engine.py"
LASTING = (
    "ignores-sigterm", "forks-worker", "worker-away", "worker-orphan", "keeps-port:30", "zombie", "dirty-log",
    "floods-log:8", "reads-stdin", "incoherent", "warm-cache", "lies-cold", "dies-soon:{ms}", "die-at-start",
    "never-ready",
)  # fmt: skip
OF_REQUEST = (
    "http-500", "die-after:{after}", "oom-at:96", "no-usage", "no-done", "no-terminal", "error-in-stream:3",
    "finish-error", "close-mid-stream:3", "stall:3", "trickle:3", "bad-json", "empty-answer", "role-only", "short:7",
    "wrong-prompt-count:30", "wrong-total:2", "sampler-changed", "clamp-max-tokens:7",
)  # fmt: skip
RARE = ("die-at-start", "never-ready")
"""These end the whole run, which is then started again."""


def faults(seed: int, arm: str, launch: int) -> list[str]:
    """Options of the fake engine for one launch: about every second one has a fault, some have two."""
    chance = random.Random(f"{seed} {arm} {launch}")
    options: list[str] = []
    if chance.random() < 0.35:
        name = chance.choice(LASTING)
        if name not in RARE or chance.random() < 0.4:
            options += ["--fault", name.format(ms=chance.randrange(20, 900))]
    if chance.random() < 0.35:
        after = chance.randrange(5, 10)  # the five untimed requests of a window come first
        options += ["--fault", chance.choice(OF_REQUEST).format(after=after), "--after", str(after)]
    return options


def main() -> None:
    """Count the launch and become the engine."""
    folder, seed, arm = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    counter = folder / "launches"
    launch = int(counter.read_text() or 0) if counter.exists() else 0
    part = folder / "launches.new"
    part.write_text(str(launch + 1))
    part.replace(counter)
    words = [sys.executable, str(ENGINE), *sys.argv[4:], *faults(seed, arm, launch)]
    os.execv(sys.executable, words)


if __name__ == "__main__":
    main()
