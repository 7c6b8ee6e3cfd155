"""The entry of `switchboard` and `python -m switchboard`.

A server replaces its process once, to have a BLAS preloaded, and so does a bisect, which proves what a server would
run; that is done before anything slow is imported. An
error is one line on stderr and an exit status: 2 for what was asked, 5 for a port that is taken.
"""

from __future__ import annotations

import sys

from switchboard import blas
from switchboard.errors import SwitchboardError


def main() -> None:
    """Run the command line."""
    words = sys.argv[1:]
    if words[:1] in (["serve"], ["bisect"]) and "--help" not in words:
        blas.preload(threads_of(words))
    from switchboard.cli import app

    try:
        app()
    except SwitchboardError as error:
        print(f"switchboard: {error}", file=sys.stderr)
        raise SystemExit(error.exit_status) from None


def threads_of(words: list[str]) -> int:
    """The value of --threads, read before the real parser is; what does not parse is left to it."""
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == "--threads":
            value = value if equals else "".join(words[place + 1 : place + 2])
            return int(value) if value.isdigit() and int(value) > 0 else 1
    return 1


if __name__ == "__main__":
    main()
