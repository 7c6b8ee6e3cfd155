"""Whether NVML finds a known amount of GPU memory, and what allocators of a GPU really say when there is no more.

    python -m benchmarks.gpu_look

For torch and for MLX, each in a process of its own: takes 2 GiB and holds it, while our sources look; then takes more
than the card has, and its words go to our classifier. Prints a short table and, as its last line, one JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from battery.bench.judge import oom
from battery.bench.memory import nvml

KNOWN = 2 << 30
HOLD = {
    "torch": "import torch; a = torch.zeros({n}, dtype=torch.uint8, device='cuda'); torch.cuda.synchronize()",
    "mlx": "import mlx.core as mx; a = mx.zeros(({n} >> 20, 1 << 20), dtype=mx.uint8); mx.eval(a); mx.synchronize()",
}
START = {
    "torch": "import torch; b = torch.zeros(1, device='cuda'); torch.cuda.synchronize()",
    "mlx": "import mlx.core as mx; b = mx.zeros((1,)); mx.eval(b); mx.synchronize()",
}
MORE = 400 << 30


def main() -> None:
    """Every allocator in turn."""
    told = {name: {"found": found(name), "says": says(name)} for name in HOLD}
    for name, one in told.items():
        print(
            f"{name}: {one['found']}\n  when there is no more: {one['says']['family']}: {one['says']['words']}"
        )
    print(json.dumps(told))


def found(name: str) -> dict[str, Any]:
    """What each NVML source saw rise when a process took KNOWN bytes, as a share of it."""
    code = f"{START[name]}\nprint('started', flush=True)\ninput()\n{HOLD[name].format(n=KNOWN)}\n"
    code += "print('held', flush=True)\ninput()\n"
    idle = nvml.used()
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        if child.stdout.readline() != "started\n":
            return {"why": f"{name} did not start"}
        sources = (nvml.PerProcess(), nvml.PerDevice(idle))
        before = [_seen(source, child.pid) for source in sources]
        child.stdin.write("\n")
        child.stdin.flush()
        if child.stdout.readline() != "held\n":
            return {"why": f"{name} could not take {KNOWN} bytes"}
        after = [_seen(source, child.pid) for source in sources]
        return {
            source.name: {
                "before": one.bytes,
                "after": two.bytes,
                "share": (two.bytes - one.bytes) / KNOWN
                if one.bytes is not None and two.bytes is not None
                else None,
                "reason": two.reason,
            }
            for source, one, two in zip(sources, before, after, strict=True)
        }
    finally:
        child.kill()
        child.wait()


def _seen(source: Any, pid: int) -> Any:
    source.reset({pid})
    return source.read()


def says(name: str) -> dict[str, Any]:
    """The last words of a process that asked for more than there is, and whose words they are to our classifier."""
    done = subprocess.run(
        [sys.executable, "-c", HOLD[name].format(n=MORE)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    heard = oom.words({"stderr": done.stderr})
    return {
        "exit_status": done.returncode,
        "family": heard.family if heard else None,
        "words": heard.text if heard else None,
        "last_lines": done.stderr.strip().splitlines()[-3:],
    }


if __name__ == "__main__":
    main()
