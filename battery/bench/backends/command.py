"""Any server with an OpenAI-compatible API that is started by the command line in the arm.

`{port}`, `{host}`, `{model}` and `{python}` in the command are filled in, and a word that is `{switches}` becomes one
`--switch NAME` or `--switch NAME:key=value` for each switch of the arm. The server must answer `/health` (pid, model,
switches; see Backend) and `/tokenize`; what it cannot tell is `unobservable` or `unverified` in the receipts.
"""

from __future__ import annotations

import sys

from battery.bench.backends import Backend, switch_words
from battery.ledger.arm import Arm
from battery.ledger.errors import ArmError


def command(arm: Arm, host: str, port: int) -> list[str]:
    """The arm's own command line with its blanks filled in."""
    if not arm.command:
        raise ArmError(
            f'arm {arm.name}: backend \'command\' needs command = ["…", "--port", "{{port}}"]'
        )
    if not any("{port}" in word for word in arm.command):
        raise ArmError(
            f"arm {arm.name}: no word of its command holds {{port}}; the server must take its port from us"
        )
    if arm.flags:
        raise ArmError(f"arm {arm.name}: 'flags' are for other backends; write them into 'command'")
    blanks = {"port": str(port), "host": host, "model": arm.model, "python": sys.executable}
    words = []
    for word in arm.command:
        if word == "{switches}":
            words += switch_words(arm)
            continue
        for blank, value in blanks.items():
            word = word.replace(f"{{{blank}}}", value)
        words.append(word)
    return words


BACKEND = Backend(command=command, reset_peak="/admin/memory/reset_peak")
