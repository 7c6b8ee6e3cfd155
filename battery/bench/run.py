"""The conductor: schedule, launch, gate, measure, receipt, store. The only place that knows there is a next stage.

Receipts are written the moment a cell ends. A campaign that was stopped goes on with the first block that is not
complete; a block that was cut off is measured again whole, and its first half is kept as abandoned.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from battery.bench import outcome, prompts, schedule, sensors
from battery.bench.backends import load_backend
from battery.bench.client import Client
from battery.bench.launch import Server
from battery.bench.lock import MachineLock
from battery.bench.measure import Measured, Measuring, WindowFailed
from battery.bench.progress import Interrupted, Progress, Stopper
from battery.bench.prompts import Prompt
from battery.bench.versions import versions
from battery.ledger import store, strict
from battery.ledger.arm import Arm
from battery.ledger.cell import Cell, Window
from battery.ledger.errors import LaunchError, PlanError, ReceiptError
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign, Header


class PromptFile(msgspec.Struct, frozen=True, kw_only=True):
    """How a campaign's prompts were sized: enough to compose each again."""

    workload: str
    corpus: str
    prompts: tuple[Prompt, ...]


class Conductor:
    """Carries out one campaign of a plan over arms, in `folder`."""

    def __init__(
        self,
        plan: Plan,
        arms: Sequence[Arm],
        folder: Path,
        progress: Progress | None = None,
        seed: int | None = None,
        port: int | None = None,
        lock: Path | None = None,
    ) -> None:
        self.plan = plan
        self.arms = {arm.name: arm for arm in arms}
        self.campaign = Campaign(folder)
        self.progress = progress or Progress()
        self._seed = random.SystemRandom().randrange(1000, 10_000) if seed is None else seed
        self._lock, self._port = lock, port
        self._launched: dict[str, str] = {}
        self._versions = versions()
        self._prompts: dict[tuple[int, int], Prompt] = {}
        self._sequence = 0

    def run(self) -> Counter[str]:
        """Measure until every block is complete, seal, and return how many cells had which outcome."""
        with (
            MachineLock(self.campaign.folder.name, self._lock),
            Stopper(self.progress.note) as stopper,
        ):
            header = self._open()
            try:
                self._ready_prompts(header, stopper)
                self._blocks(header, stopper)
            except KeyboardInterrupt:
                self.campaign.note("interrupted")
                raise
            except Exception as broken:
                self.campaign.note("failed", reason=str(broken).splitlines()[0][:300])
                raise
            self.campaign.note("finished")
            self.campaign.seal()
        pooled = store.complete_blocks(self.campaign.receipts(), header).values()
        return Counter(receipt.outcome for block in pooled for receipt in block)

    def _open(self) -> Header:
        """The header of a new campaign, or of the one that goes on; ReceiptError if that was another plan or arm."""
        if not self.campaign.exists:
            self.progress.phase(None, "calibration", "baseline of the idle machine")
            header = self._new_header()
            Campaign.create(self.campaign.folder, header)
            self.campaign.note("started")
            return header
        header = self.campaign.header()
        wanted = {name: arm.digest for name, arm in self.arms.items()}
        if header.plan_digest != self.plan.digest or header.arm_digests != wanted:
            what = "plan" if header.plan_digest != self.plan.digest else "arms"
            raise ReceiptError(
                f"{self.campaign.folder}: was started with other {what}; give this one a new name (--campaign)"
            )
        self.campaign.note("resumed")
        return header

    def _new_header(self) -> Header:
        """Everything that is fixed before the first window."""
        rng = random.Random(self._seed)
        coin = rng.randrange(len(self.arms))
        names = list(self.arms)
        baseline: dict[str, Any] = {"temp_c": sensors.hottest()[0]}
        if self.plan.gate.calibration is not None:
            baseline.update(sensors.calibration_baseline())
        return Header(
            campaign=self.campaign.folder.name,
            plan=self.plan,
            plan_digest=self.plan.digest,
            arms=tuple(arm.public() for arm in self.arms.values()),
            arm_digests={name: arm.digest for name, arm in self.arms.items()},
            order=schedule.orders(names, self.plan.blocks, coin),
            coin=f"{names[coin]} opens",
            seed=self._seed,
            created=store.utc_now(),
            machine=sensors.fingerprint(),
            battery=self._versions,
            baseline=baseline,
        )

    def _ready_prompts(self, header: Header, stopper: Stopper) -> None:
        """Read the sized prompts, or size them on a server of the control arm before any window opens."""
        path = self.campaign.folder / store.PROMPTS
        if not path.is_file():
            store.write_once(path, store.pretty(self._size_prompts(header, stopper)))
        sized = strict.read_json(path, PromptFile)
        for prompt in sized.prompts:
            messages = prompts.compose(
                sized.workload, prompt.seed, prompt.rung, prompt.words, prompt.letters
            )
            if strict.digest(messages) != prompt.digest:
                raise ReceiptError(
                    f"{path}: the prompt of seed {prompt.seed} can no longer be composed: the corpus changed"
                    f" ({sized.corpus} then, {prompts.corpus(sized.workload).source} now); start a new campaign"
                )
            self._prompts[prompt.rung, prompt.seed] = prompt

    def _size_prompts(self, header: Header, stopper: Stopper) -> PromptFile:
        """Size every prompt of the campaign with the control arm's own tokenizer."""
        arm = self.arms[header.control]
        self.progress.phase(None, "launch", f"{arm.name}, to size the prompts")
        with self._server(arm) as server, Client(server.url) as client:
            check_context(server, self.plan)

            def count(messages: prompts.Messages) -> list[int]:
                stopper.check()
                status, answer = client.post_json(server.backend.tokenize, {"messages": messages})
                tokens = answer.get("tokens") if isinstance(answer, dict) else None
                if status != 200 or not isinstance(tokens, list):
                    raise LaunchError(
                        f"arm {arm.name}: {server.backend.tokenize} answered {status} {str(answer)[:120]};"
                        " without it prompts cannot be sized exactly"
                    )
                return tokens

            self.progress.phase(None, "sizing prompts", "")
            needed = schedule.prompts_needed(self.plan, header.seed)
            sized = prompts.size_all(
                self.plan.workload, needed, count, self.plan.limits.prompt_tolerance
            )
        source = prompts.corpus(self.plan.workload).source
        return PromptFile(workload=self.plan.workload, corpus=source, prompts=tuple(sized))

    def _server(self, arm: Arm) -> Server:
        """A server for an arm, not started yet."""
        limits = self.plan.limits
        return Server(arm, load_backend(arm.backend), self._port, limits.launch_s, limits.stop_s)

    def _blocks(self, header: Header, stopper: Stopper) -> None:
        """Measure every block that is not complete yet."""
        receipts = self.campaign.receipts()
        store.check_pool(receipts, header)
        self._sequence = max((receipt.sequence for receipt in receipts), default=0)
        for receipt in receipts:
            digest = receipt.model.get("digest")
            if digest:
                self._launched.setdefault(receipt.cell.arm, digest)
        complete = store.complete_blocks(receipts, header)
        attempts = store.block_attempts(receipts, header)
        total = schedule.expected_cells(self.plan, len(self.arms))
        self.progress.started(header, [r for block in complete.values() for r in block], total)
        for row in schedule.windows(header.order):
            block = row[0].block
            if block in complete:
                continue
            attempt = max(attempts.get(block, {}), default=0) + 1
            if attempt > 1:
                self.campaign.note("abandoned", block=block, attempt=attempt - 1)
            for window in row:
                stopper.check()
                self.progress.window(window, attempt)
                self._window(header, window, attempt, stopper)

    def _window(self, header: Header, window: Window, attempt: int, stopper: Stopper) -> None:
        """One launch of one arm and its pass over the ladder; every cell leaves a receipt."""
        arm = self.arms[window.arm]
        cells = schedule.cells(window, self.plan, header.seed)
        self.progress.phase(None, "launch", arm.name)
        server = self._server(arm)
        try:
            server.start()
            self._same_model(arm, server)
            check_context(server, self.plan)
            with Client(server.url) as client:
                self._cells(header, cells, attempt, server, client, stopper)
        except LaunchError as failed:
            # an arm that never ran is a mistake to correct; one that ran before is a result
            if arm.name not in self._launched or server.ready:
                raise
            words = outcome.oom_words(str(failed))
            failure = WindowFailed("oom" if words else "lost", str(failed), {"phase": "load"})
            with Client(server.url) as client:
                measuring = Measuring(server, client, self.plan, header.baseline)
                for cell in cells:
                    self._keep(
                        header,
                        cell,
                        attempt,
                        server,
                        measuring.unsent(cell, self._prompt(cell), failure),
                    )
        finally:
            server.stop()

    def _same_model(self, arm: Arm, server: Server) -> None:
        """LaunchError if the arm's model is not the one it had in an earlier window."""
        digest = str(server.ready["model"]["digest"])
        before = self._launched.setdefault(arm.name, digest)
        if digest != before:
            raise LaunchError(
                f"arm {arm.name}: the model's digest is {digest[:12]} now and was {before[:12]} before in this"
                " campaign; its weights changed on disk: start a new campaign"
            )

    def _cells(
        self,
        header: Header,
        cells: Sequence[Cell],
        attempt: int,
        server: Server,
        client: Client,
        stopper: Stopper,
    ) -> None:
        """Warm up, then every cell in order; after a failure that ends the window the rest inherit it."""
        current: list[Cell | None] = [None]
        measuring = Measuring(
            server,
            client,
            self.plan,
            header.baseline,
            lambda phase, detail: self.progress.phase(current[0], phase, detail),
            lambda: stopper.asked,
        )
        failure: WindowFailed | None = None
        try:
            measuring.warm_up()
        except WindowFailed as failed:
            failure = failed
        for cell in cells:
            stopper.check()
            current[0] = cell
            prompt = self._prompt(cell)
            measured = (
                measuring.unsent(cell, prompt, failure) if failure else measuring.cell(cell, prompt)
            )
            if stopper.asked and measured.outcome == "refused":
                raise Interrupted  # the gate gave up because we were asked to stop: that is no result
            receipt = self._keep(header, cell, attempt, server, measured)
            failure = failure or ends_window(receipt)

    def _prompt(self, cell: Cell) -> Prompt:
        """The sized prompt of a cell."""
        return self._prompts[cell.rung, cell.seed]

    def _keep(
        self, header: Header, cell: Cell, attempt: int, server: Server, measured: Measured
    ) -> Receipt:
        """Write the receipt of a cell."""
        self._sequence += 1
        arm, ready = self.arms[cell.arm], server.ready
        receipt = Receipt(
            campaign=header.campaign,
            sequence=self._sequence,
            attempt=attempt,
            cell=cell,
            arm=arm.public(),
            arm_digest=arm.digest,
            plan_digest=header.plan_digest,
            command=public_command(server.command),
            machine=header.machine,
            versions={"battery": self._versions, "engine": engine_versions(ready)},
            model=ready.get("model") or {},
            **{name: getattr(measured, name) for name in measured.__struct_fields__},
        )
        self.campaign.write(receipt)
        self.progress.cell(receipt)
        return receipt


def engine_versions(health: dict[str, Any]) -> dict[str, Any]:
    """The engine's build and the packages of its interpreter, as its health tells them."""
    packages = health.get("packages")
    return {**(health.get("build") or {}), **({"packages": packages} if packages else {})}


def ends_window(receipt: Receipt) -> WindowFailed | None:
    """The failure that the rest of the window inherits from this cell, if it is of that kind."""
    if receipt.outcome not in ("oom", "lost", "disengaged"):
        return None
    cell = receipt.cell
    reason = f"inherited from receipt {receipt.sequence} ({cell.rung:,} tokens): {receipt.reason}"
    return WindowFailed(receipt.outcome, reason, {"inherited_from": receipt.sequence})


def check_context(server: Server, plan: Plan) -> None:
    """PlanError when the longest rung and its answer do not fit the model."""
    context = (server.ready.get("model") or {}).get("context")
    need = plan.ladder[-1] + plan.sampler.max_tokens
    if isinstance(context, int) and need > context:
        raise PlanError(
            f"plan {plan.name}: rung {plan.ladder[-1]:,} and {plan.sampler.max_tokens:,} new tokens need {need:,},"
            f" but {server.arm.model} holds {context:,}; shorten the ladder"
        )


def public_command(command: Sequence[str]) -> tuple[str, ...]:
    """A command line without the paths of this machine: programs and files by their last part."""
    return tuple(Path(word).name if word.startswith("/") else word for word in command)
