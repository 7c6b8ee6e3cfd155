"""Follow switches through a server's life, in a process of its own: import first, configure after, then load and ask.

    python arming.py '{"only": […], "options": {…}, "models": […], "extra": "FOLDER"}'

Everything that the server imports is imported before a switch is asked for or killed. Then, with the functions that
`serve` calls: nothing asked; all asked and all killed; each asked alone, on the first model that it does not decline.
The last line is one JSON object: the states of each switch, and why.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import queue
import sys
from pathlib import Path
from typing import Any

import switchboard


def import_everything() -> None:
    """All modules of the package, as they are long before a request comes."""
    for module in pkgutil.walk_packages(switchboard.__path__, "switchboard."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def ask(worker: Any, prompt: list[int], **sampling: Any) -> None:
    """One request through the worker, waited for."""
    from switchboard.sampler import Sampling
    from switchboard.text import Piece
    from switchboard.worker import Finish, Job

    told: queue.Queue[Any] = queue.Queue()
    worker.submit(Job(prompt, Sampling(seed=1, ignore_eos=True, **sampling), 24, [], told.put))
    while isinstance(event := told.get(timeout=120), Piece):
        pass
    assert isinstance(event, Finish), event


def requests(worker: Any, after: Any) -> list[Any]:
    """What `after` says behind a greedy, a drawn and a long request."""
    short = [97, 98, 99] * 8
    seen = []
    for prompt, temperature in ((short, 0.0), (short, 0.7), (short * 30, 0.0)):
        ask(worker, prompt, temperature=temperature)
        seen.append(after())
    return seen


def opened(asked: list[str], model: str) -> tuple[Any, Any]:
    """Board and worker of a server that was started with these switches, once it is loaded."""
    from switchboard.config import Config, parse_asked
    from switchboard.serve import loading

    board, _, worker = loading(Config(model, asked=parse_asked(asked, [])))
    worker.session()
    return board, worker


def together(names: list[str], asked: list[str], model: str) -> dict[str, Any]:
    """State, reason and runs of each of these switches, at load and after three requests."""
    board, worker = opened(asked, model)

    def look() -> dict[str, Any]:
        told = {name: board.positions[name].told() for name in names}
        return {
            name: (one["state"], one["reason"], one["counters"]["runs"])
            for name, one in told.items()
        }

    first, *rest = [look(), *requests(worker, look)]
    worker.stop(30)
    return {name: [first[name], *(one[name] for one in rest)] for name in names}


def alone(name: str, options: dict[str, list[str]], models: list[str]) -> dict[str, Any]:
    """One switch asked for, with each of its options and companions, until it is armed somewhere."""
    from switchboard.errors import SwitchboardError

    refusals = []
    for model in models:
        for words in options.get(name, [name]):
            try:
                board, worker = opened(words.split(), model)
            except SwitchboardError as error:
                refusals.append(f"{words}: {error}")
                continue
            position = board.positions[name]
            state = position.state
            if state != "declined":
                after = requests(worker, lambda position=position: position.state)
                worker.stop(30)
                return {"model": model, "asked": words, "armed": state, "after": after}
            refusals.append(f"{model}: {position.reason}")
            worker.stop(30)
    return {"model": None, "refusals": refusals}


def with_a_kernel() -> None:
    """Let the kernel of fused_epilogue run here, as operations of MLX (see emulated)."""
    import emulated

    from switchboard.epilogue import kernel

    if kernel.language() is None:
        kernel.language = lambda: "cuda"
        kernel.launch = emulated.launch


def main() -> None:
    """Do what the one argument says."""
    wanted = json.loads(sys.argv[1])
    if wanted["extra"]:
        import switchboard.switches

        switchboard.switches.__path__.append(wanted["extra"])
    import_everything()
    from switchboard.registry import known

    with_a_kernel()
    names = wanted["only"] or list(known())
    for name in names:
        os.environ[known()[name].kill] = "0"
    plain = wanted["models"][0]
    killed = together(names, [name.split(":")[0] for name in names], plain)
    for name in names:
        del os.environ[known()[name].kill]
    off = together(names, [], plain)
    each = {name: alone(name, wanted["options"], wanted["models"]) for name in names}
    print(json.dumps({"killed": killed, "off": off, "alone": each}), flush=True)
    # As the server leaves: taking the interpreter down under MLX's threads can end in an abort.
    os._exit(0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
