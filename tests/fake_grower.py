"""A process that touches as much memory as it is told: `grow BYTES`, `fork BYTES` (in a child), `free`, one per line.

Answers each with a line of its process id (a child's for `fork`) once it is done. Standard library only.
"""

from __future__ import annotations

import mmap
import os
import sys
import time

PAGE = mmap.PAGESIZE


def touched(size: int) -> mmap.mmap:
    """Fresh memory with a byte written into every page."""
    memory = mmap.mmap(-1, size)
    for at in range(0, size, PAGE):
        memory[at] = 1
    return memory


def answer(pid: int) -> None:
    """Say that it is done."""
    print(pid, flush=True)


def main() -> None:
    """Obey until the input ends."""
    held: list[mmap.mmap] = []
    answer(os.getpid())
    for line in sys.stdin:
        word, _, size = line.strip().partition(" ")
        if word == "grow":
            held.append(touched(int(size)))
            answer(os.getpid())
        elif word == "free":
            while held:
                held.pop().close()
            answer(os.getpid())
        elif word == "fork":
            parent = os.getpid()
            child = os.fork()
            if child == 0:
                own = touched(int(size))
                answer(os.getpid())
                # not the input: the parent reads it, and each line goes to one of the two
                while os.getppid() == parent:
                    time.sleep(0.02)
                own.close()
                os._exit(0)


if __name__ == "__main__":
    main()
