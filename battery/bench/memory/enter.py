"""Put this process under a limit, then become the server.

Run as `python -I -S enter.py [--cgroup FILE] [--as BYTES] -- command…` between fork and exec, and not as Popen's
preexec_fn, which may lock up in a program with threads. What it becomes keeps the process id, the group, the
standard streams and the environment. Standard library only. Exit 120: the limit cannot be set; 127: the command is
not there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """Enter, limit, exec; a status only when one of them failed."""
    at = words.index("--")
    options = dict(zip(words[:at:2], words[1:at:2], strict=True))
    command = words[at + 1 :]
    try:
        if "--cgroup" in options:
            Path(options["--cgroup"]).write_text(str(os.getpid()))
        if "--as" in options:
            import resource

            most = int(options["--as"])
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (OSError, ValueError) as refused:
        print(f"battery: the server cannot be limited: {refused}", file=sys.stderr, flush=True)
        return 120
    try:
        os.execvp(command[0], command)
    except OSError as missing:
        print(f"battery: cannot start {command[0]}: {missing}", file=sys.stderr, flush=True)
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
