"""Measure switchboard beside mlx_lm and llama.cpp, and write it down.

    python -m benchmarks.engine [--quick] [--blocks N] [--rungs 64,256] [--model M] [--derive] [--out FOLDER]

`reports/engine.md` follows from `reports/engine.json` alone; `--derive` writes it again without measuring. How long it
will take is told before the first block and after each. Ctrl-C, or an engine that dies, ends it early: the blocks that
are done are written as `reports/engine.stopped.json` and `.md`, so that a whole report is not replaced by half a one.
The last line is one JSON object. Exit codes: 0 whole, 130 interrupted, 1 an engine died.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from battery import interruption
from battery.bench.sensors import fingerprint
from battery.ledger.disk import replace
from benchmarks.engine import arms as kinds
from benchmarks.engine import machine, ratios, report, rounds, weights
from benchmarks.engine.arms import PLAIN, Arm
from benchmarks.engine.pipes import ROOT, Failed, Remote
from benchmarks.engine.rounds import Sample
from benchmarks.peers import NotDriven
from benchmarks.peers.environment import python_of
from switchboard.models import Source, resolve

RUNGS, BLOCKS, SLICE, SEED = (128, 512), 5, 8, 5
DISTURBED = 0.05
ROUTE_RUNG, ROUTE_BLOCKS, ROUTE_SLICE = 16, 3, 4
LLAMA_WHEEL = "xllamacpp"
INTERRUPTED = "interrupted"


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def start(arm: Arm, source: Source, longest: int) -> Remote:
    """Start an arm with its weights and its interpreter; Failed or NotDriven says why it cannot be."""
    python, place = sys.executable, None
    if arm.engine == "llama.cpp":
        if source.kind != "gguf":
            raise Failed(f"llama.cpp reads GGUF files, and {source.name} is none")
        python, place = str(python_of(LLAMA_WHEEL)), source.place
    if arm.engine == "mlx_lm":
        place = weights.folder(source.name, source.digest, arm.format)
    return kinds.start(arm, source.name, place, longest, python)


def open_all(
    wanted: Sequence[Arm], source: Source, longest: int, room: contextlib.ExitStack
) -> tuple[list[Arm], dict[str, Remote], dict[str, str]]:
    """The arms that run, their processes, and why each other one does not."""
    running: dict[str, Remote] = {}
    absent: dict[str, str] = {}
    for arm in wanted:
        try:
            engine = start(arm, source, longest)
        except (Failed, NotDriven) as error:
            if arm.name == PLAIN:
                raise
            absent[arm.name] = str(error)
            say(f"{arm.name}: not measured: {error}")
            continue
        room.callback(engine.close)
        states = engine.facts.get("switches", {})
        refused = [one["reason"] for one in states.values() if one["state"] == "declined"]
        if refused and len(refused) == len(states):
            absent[arm.name] = f"declined: {refused[0]}"
            engine.close()
            say(f"{arm.name}: {absent[arm.name]}")
            continue
        running[arm.name] = engine
        say(f"{arm.name}: ready, BLAS {engine.facts['blas']}")
    return [arm for arm in wanted if arm.name in running], running, absent


def described(taken: Sequence[Arm], running: dict[str, Remote]) -> list[dict[str, Any]]:
    """Each arm with what its process says of itself now: its switches as they stood in the latest text."""
    return [{**msgspec.to_builtins(arm), "facts": running[arm.name].ask("facts")} for arm in taken]


def gather(
    taken: Sequence[Arm], running: dict[str, Remote], texts: rounds.Prompts, size: int
) -> dict[str, Any]:
    """The blocks that were measured and the arms after the last of them; `stopped` says what ended it early."""
    blocks = max(block for block, _ in texts)

    def renew() -> None:
        """Every arm in a process of its own once more, warm."""
        for arm in taken:
            running[arm.name].again()
        rounds.expected(taken, running, texts, size)

    pace = rounds.expected(taken, running, texts, size)
    say(
        f"about {blocks * pace / 60:.1f} minutes for {blocks} blocks, and launches before each; Ctrl-C keeps those done"
    )
    samples: list[Sample] = []
    arms: list[dict[str, Any]] = []
    stopped, done, began = None, 0, time.monotonic()
    try:
        for block in rounds.measure(taken, running, texts, size, renew):
            samples, arms, done = [*samples, *block], described(taken, running), done + 1
            left = (time.monotonic() - began) / done * (blocks - done)
            say(f"block {done} of {blocks}; about {left / 60:.1f} minutes left")
            interruption.check()
    except (KeyboardInterrupt, Failed) as error:
        if not done:
            raise
        stopped = str(error) or INTERRUPTED
        say(f"stopped after {done} of {blocks} blocks: {stopped}")
    return {"arms": arms, "blocks": done, "planned": blocks, "stopped": stopped,
            "samples": msgspec.to_builtins(samples)}  # fmt: skip


def compare(wanted: Sequence[Arm], source: Source, asked: argparse.Namespace) -> dict[str, Any]:
    """The main comparison."""
    with contextlib.ExitStack() as room:
        longest = max(asked.rungs) + 1 + 2 * kinds.SLICES * asked.slice
        taken, running, absent = open_all(wanted, source, longest, room)
        texts = rounds.passages(encoder(running[PLAIN]), asked.rungs, asked.blocks, SEED)
        watch = machine.Watch()
        found = gather(taken, running, texts, asked.slice)
        others = watch.others()
    if others > DISTURBED:
        say(
            f"WARNING: other processes took {100 * others:.0f} % of the processor: measure on a quiet machine"
        )
    ratios.refuse(ratios.samples_of(found), [arm.name for arm in taken if arm.twin])
    facts = {one["name"]: one["facts"] for one in found["arms"]}[PLAIN]
    return {
        "model": {"name": source.name, "digest": source.digest, "parameters": facts["parameters"],
                  "mlx": facts["mlx"]},
        "absent": absent, "rungs": asked.rungs, "slice": asked.slice, "tokens": 1 + kinds.SLICES * (asked.slice + 1),
        "seed": SEED, "others": others, **found,
    }  # fmt: skip


def encoder(engine: Remote) -> Callable[[str], list[int]]:
    """What turns text into tokens, in an engine's process."""
    return lambda text: list(engine.ask("encode", text=text)["tokens"])


def routes(source: Source, blocks: int, cores: int) -> dict[str, Any]:
    """The formats, BLAS and threads that MLX could run with here; empty where none was measured."""
    with contextlib.ExitStack() as room:
        taken, running, absent = open_all(kinds.routes(cores), source, 512, room)
        if not taken:
            return {}
        with contextlib.closing(start(kinds.standard(1, 1)[0], source, 512)) as plain:
            texts = rounds.passages(encoder(plain), [ROUTE_RUNG], blocks, SEED)
        return {"rung": ROUTE_RUNG, "absent": absent, **gather(taken, running, texts, ROUTE_SLICE)}


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Everything, raw."""
    began, source, cores = time.monotonic(), resolve(asked.model), os.cpu_count() or 1
    wanted = kinds.standard(1, cores)
    if asked.arms:
        wanted = [arm for arm in wanted if arm.name in {PLAIN, *asked.arms}]
    passes, size = (2, 16 << 20) if asked.quick else (machine.PASSES, machine.BYTES)
    read = [machine.bandwidth(passes, size)]
    document = compare(wanted, source, asked)
    document["absent"] |= {} if asked.arms else kinds.usable()[1]
    if not document["stopped"]:
        try:
            read.append(machine.bandwidth(passes, size))
            if not asked.arms:
                say("formats, BLAS and threads of MLX")
                document["routes"] = routes(source, 1 if asked.quick else ROUTE_BLOCKS, cores)
            document["stopped"] = document.get("routes", {}).get("stopped")
        except (KeyboardInterrupt, Failed) as error:
            document["stopped"] = str(error) or f"{INTERRUPTED} after the comparison"
    return {
        "command": "make bench-engine", "machine": fingerprint(), **document,
        "bandwidth": {key: max(one[key] for one in read) for key in read[0]},
        "minutes": (time.monotonic() - began) / 60,
    }  # fmt: skip


def rounded(value: Any) -> Any:
    """The same document with floats at six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def text(document: dict[str, Any]) -> str:
    """The document as it is kept: indented, each sample on a line of its own."""
    lists: dict[str, list[Any]] = {"SAMPLES": document["samples"]}
    holder = {**document, "samples": "SAMPLES"}
    if document.get("routes"):
        lists["ROUTES"] = document["routes"]["samples"]
        holder["routes"] = {**document["routes"], "samples": "ROUTES"}
    whole = json.dumps(holder, indent=1, ensure_ascii=False)
    for mark, samples in lists.items():
        lines = ",\n  ".join(json.dumps(one) for one in samples)
        whole = whole.replace(f'"{mark}"', f"[\n  {lines}\n ]")
    return whole + "\n"


def keep(document: dict[str, Any], root: Path) -> None:
    """Write the document and the page that follows from it."""
    kept = text(document)
    page = report.page(json.loads(kept))
    stem = "engine.stopped" if document["stopped"] else "engine"
    for name, data in ((f"{stem}.json", kept), (f"{stem}.md", page)):
        replace(root / "reports" / name, data.encode())
        say(f"wrote reports/{name}")


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.engine", description=__doc__.splitlines()[0])  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true", help="one rung, two blocks; written only with --out"
    )
    parser.add_argument(
        "--blocks", type=int, default=None, help=f"prompts for each rung ({BLOCKS})"
    )
    parser.add_argument(
        "--rungs", help=f"tokens of context, with commas ({','.join(map(str, RUNGS))})"
    )
    parser.add_argument("--slice", type=int, default=None, help=f"tokens of one turn ({SLICE})")
    parser.add_argument("--model", default="smollm2-135m", help="as `switchboard serve --model`")
    parser.add_argument("--arms", action="append", help="only this one beside `plain`; repeatable")
    parser.add_argument(
        "--derive", action="store_true", help="measure nothing: write the page again"
    )
    parser.add_argument("--out", type=Path, help="folder for reports/ instead of the repository")  # fmt: skip
    asked = parser.parse_args(argv)
    asked.blocks = asked.blocks or (2 if asked.quick else BLOCKS)
    asked.slice = asked.slice or (2 if asked.quick else SLICE)
    rungs = asked.rungs.split(",") if asked.rungs else RUNGS[:1] if asked.quick else RUNGS
    asked.rungs = sorted({int(rung) for rung in rungs})
    if asked.rungs[0] < 2 or asked.blocks < 1 or asked.slice < 1:
        parser.error(
            "a rung has at least two tokens, and there is at least one block and one token a slice"
        )
    return asked


def main(argv: list[str] | None = None) -> int:
    """Measure or derive, write, print."""
    asked = parsed(argv)
    root = asked.out or ROOT
    kept = root / "reports" / "engine.json"
    if kept.exists() and not asked.derive:
        last = json.loads(kept.read_text())
        say(f"the run in reports/{kept.name} took {last['minutes']:.1f} minutes in all")
    document = json.loads(kept.read_text()) if asked.derive else rounded(measure(asked))
    if asked.out or asked.derive or document["stopped"] or not (asked.quick or asked.arms):
        keep(document, root)
    print(report.page(document))
    for name, why in document["absent"].items():
        say(f"{name}: not measured: {why}")
    print(json.dumps(ratios.headline(document)))
    stopped = document["stopped"]
    return 0 if not stopped else 130 if stopped.startswith(INTERRUPTED) else 1


if __name__ == "__main__":
    interruption.listen()
    sys.exit(main())
