"""`python -m battery`, and the console script: what must hold from the first moment to the last is set up here.

SIGTERM is Ctrl-C for us, before the conductor listens and after it, and an interruption ends with 130 even while
modules are being loaded.
"""

from __future__ import annotations

import sys

from battery import interruption


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        interruption.listen()
        from battery.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # what is left is the interpreter's own end, which would make another exit code of a further press
        interruption.deafen()


if __name__ == "__main__":
    main()
