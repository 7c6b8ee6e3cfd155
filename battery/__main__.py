"""`python -m battery`, and the console script."""

from __future__ import annotations

from battery.cli import main

if __name__ == "__main__":
    main()
