"""The conductor: schedule, launch, gate, measure, receipt, store. The only place that knows there is a next stage.

Receipts are written the moment a cell ends. A campaign that was stopped goes on with the first block that is not
complete; a block that was cut off is measured again whole, and its first half is kept as abandoned.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from battery.bench import gate, memory, preflight, replaying, schedule, sensors
from battery.bench.backends import load_backend
from battery.bench.client import Client
from battery.bench.judge import oom
from battery.bench.launch import Server
from battery.bench.leaves import ends_window, receipt_of
from battery.bench.lock import MachineLock
from battery.bench.measure import Measured, Measuring, WindowFailed
from battery.bench.memory import settle
from battery.bench.progress import Progress, Stopper
from battery.bench.prompts import Prompt
from battery.bench.versions import versions
from battery.interruption import Interrupted
from battery.ledger import disk, history, store
from battery.ledger.arm import Arm
from battery.ledger.cell import Cell, Window
from battery.ledger.claims import looks
from battery.ledger.errors import LaunchError, PlanError
from battery.ledger.journal import noted_looks
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign, Earlier, Header, Screen
from battery.ledger.trajectories import Trajectories


class Disturbed(Exception):
    """The machine was disturbed in a cell, so that its block is to be measured again."""


Enough = Callable[[Path, int], str | None]
"""Asked after a block at which the plan's rule looks: why the campaign in this folder ends there, or None."""


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
        sensor_root: Path = sensors.ROOT,
        screen: Screen = "",
        enough: Enough | None = None,
        recorded: Trajectories | None = None,
    ) -> None:
        if plan.stopping.rule != "fixed" and enough is None:
            raise PlanError(
                f"plan {plan.name}: its stopping rule needs somebody who looks, and nobody was given"
            )
        self.plan, self._screen, self._enough = plan, screen, enough
        self._glances = sensors.Glances(sensor_root, gate.steady_s(plan.gate))
        self.arms = {arm.name: arm for arm in arms}
        self.campaign = Campaign(folder)
        self.progress = progress or Progress()
        self._recorded = recorded
        seed = recorded.header.seed if recorded else seed  # of its prompts
        self._seed = random.SystemRandom().randrange(1000, 10_000) if seed is None else seed
        self._lock, self._port = lock, port
        self._launched: dict[str, str] = {}
        self._versions, self._machine = versions(), sensors.fingerprint()
        self._prompts: dict[tuple[int, int], Prompt] = {}
        self._sequence = 0
        self._may_rerun = False
        self._died: tuple[int, int] | None = None
        """Window and attempt in which a server last ran out of memory or was lost, until it was waited for."""

    def run(self) -> Counter[str]:
        """Measure until every block is complete, seal, and return how many cells had which outcome."""
        with (
            Stopper(self.progress.note) as stopper,
            MachineLock(self.campaign.folder.name, self._lock),
        ):
            self.campaign.clean()
            folder, arms = self.campaign.folder, list(self.arms.values())
            known = self.campaign.header() if self.campaign.exists else None
            if known:
                preflight.check_same(folder, known, self.plan, arms, self._machine)
            if known and self.campaign.sealed() is not None:
                self.progress.note(
                    f"{self.campaign.folder} is finished and sealed; nothing is measured again"
                )
                return self._counts(known)
            kinds = [arm.kind for arm in arms]
            before = None if known else history.earlier(folder.parent, kinds)
            with history.listed(self.campaign, self.plan, arms):
                header = known or self._open(stopper, before)
                self._measure(header, stopper)
        return self._counts(header)

    def _measure(self, header: Header, stopper: Stopper) -> None:
        """Every block that is missing, the end in the journal, and the seal."""
        self.campaign.note("resumed" if self.campaign.journal() else "started")
        try:
            self._prompts = preflight.load_prompts(self.campaign)
            replaying.held(self.campaign.folder, self._prompts, self._recorded, self.plan)
            for complaint in self.campaign.set_aside():
                self.progress.note(complaint)
            self._blocks(header, stopper)
        except KeyboardInterrupt:
            self.campaign.try_note("interrupted")
            raise
        except Exception as broken:
            first = (str(broken) or type(broken).__name__).splitlines()[0]
            self.campaign.try_note("failed", reason=first[:300])
            raise
        self.campaign.note("finished")
        self.campaign.seal()

    def _counts(self, header: Header) -> Counter[str]:
        """How many cells of complete blocks had which outcome."""
        pooled = store.complete_blocks(self.campaign.receipts(), header).values()
        return Counter(receipt.outcome for block in pooled for receipt in block)

    def _open(self, stopper: Stopper, before: Earlier | None) -> Header:
        """The header of a new campaign, which is written once every arm has started."""
        folder, arms = self.campaign.folder, list(self.arms.values())
        needed = schedule.prompts_needed(self.plan, self._seed)
        replaying.check(self.plan, self._recorded, needed)
        disk.try_writing(folder / store.HEADER)  # said now, not when every arm has been tried
        preflight.wait_quiet(self.plan, self.progress, stopper, self._glances)
        header = msgspec.structs.replace(self._new_header(stopper), earlier=before)
        sized = preflight.try_arms(
            self._tried(arms, stopper), self.plan, header.seed, self.progress, stopper
        )
        sized = replaying.continued(sized, self._recorded, self.plan.sampler.max_tokens)
        # the header comes last: with it the campaign exists
        store.replace(folder / store.PROMPTS, store.pretty(sized))
        Campaign.create(folder, header)
        return header

    def _new_header(self, stopper: Stopper) -> Header:
        """Everything that is fixed before the first window."""
        rng = random.Random(self._seed)
        coin = rng.randrange(len(self.arms))
        names = list(self.arms)
        limits = self.plan.gate
        self.progress.phase(None, "calibration", "baseline of the idle machine")
        baseline = sensors.baseline(
            self._glances.root,
            limits.baseline_s,
            limits.calibration is not None,
            lambda: stopper.asked,
        )
        stopper.check()
        baseline.update(settle.level())
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
            machine=self._machine,
            battery=self._versions,
            baseline=baseline,
            screen=self._screen,
        )

    def _tried(self, arms: Sequence[Arm], stopper: Stopper) -> Iterator[Server]:
        """A server for each arm, remembered as one that could be loaded once the taker asks for the next."""
        for arm in arms:
            server = self._server(arm, stopper)
            yield server
            self._launched[arm.name] = str(server.ready["model"]["digest"])

    def _server(self, arm: Arm, stopper: Stopper) -> Server:
        """A server for an arm, not started yet."""
        limits = self.plan.limits
        most = limits.memory_limit_gb
        return Server(
            arm, load_backend(arm.backend), self._port, limits.launch_s, limits.stop_s, lambda: stopper.asked,
            memory_limit=None if most is None else int(most * 1e9),
        )  # fmt: skip

    def _blocks(self, header: Header, stopper: Stopper) -> None:
        """Measure every block that is not complete yet, up to where the plan's rule ends the campaign."""
        receipts = self.campaign.receipts()
        store.check_pool(receipts, header)
        self._sequence = self.campaign.last_sequence()
        for receipt in receipts:
            digest = receipt.model.get("digest")
            if digest:
                self._launched.setdefault(receipt.cell.arm, digest)
        complete = store.complete_blocks(receipts, header)
        attempts = store.block_attempts(receipts, header)
        total = schedule.expected_cells(self.plan, len(self.arms))
        self.progress.started(header, [r for block in complete.values() for r in block], total)
        looking = looks(self.plan, len(self.arms))
        for row in schedule.windows(header.order):
            block = row[0].block
            if block not in complete:
                self._block(header, row, attempts.get(block, {}), stopper)
            if block in looking and self._ends(block):
                return

    def _ends(self, block: int) -> bool:
        """Look as the plan's rule says, note it once, and tell whether the campaign ends here.

        A campaign that goes on passes its earlier looks again. One that a crash forgot is made up for; one that was
        noted is binding and not taken twice, even where a block was measured again since: a second look at other
        receipts would be one more chance to find something.
        """
        noted = noted_looks(self.campaign.journal()).get(block)
        if noted is not None:
            why = (noted.why or "as noted") if noted.ends else None
        else:
            self.progress.phase(None, "look", f"after block {block}, as the plan declares")
            why = self._enough(self.campaign.folder, block) if self._enough else None
            told = why or "it goes on"
            self.campaign.note(
                "look", block=block, ends=why is not None, why=told, after=self._sequence
            )
        if why and block < self.plan.blocks:
            self.progress.note(
                f"ended by the plan's rule after {block} of at most {self.plan.blocks} blocks: {why}"
            )
        return why is not None

    def _block(
        self,
        header: Header,
        row: Sequence[Window],
        before: dict[int, list[Receipt]],
        stopper: Stopper,
    ) -> None:
        """Measure one block, again and whole when the machine is disturbed in it, as often as the plan allows."""
        block, attempt = row[0].block, max(before, default=0)
        disturbances = sum(any(cell.breach for cell in cells) for cells in before.values())
        while True:
            attempt += 1
            self._abandoned(block, attempt - 1)
            self._may_rerun = disturbances < self.plan.limits.reruns
            try:
                for window in row:
                    stopper.check()
                    self._settle(header, stopper)
                    self.progress.window(window, attempt)
                    self._window(header, window, attempt, stopper)
            except Disturbed as seen:
                disturbances += 1
                self.progress.note(f"block {block} is measured again: {seen}")
            else:
                return

    def _abandoned(self, block: int, attempt: int) -> None:
        """Note once that an attempt was given up."""
        left = {"block": block, "attempt": attempt}
        told = [event for event in self.campaign.journal() if event["event"] == "abandoned"]
        if attempt and not any(left.items() <= event.items() for event in told):
            self.campaign.note("abandoned", **left)

    def _settle(self, header: Header, stopper: Stopper) -> None:
        """After a window whose server died, wait until the memory it held is free again, and note how that went."""
        if self._died is not None:
            (window, attempt), self._died = self._died, None
            self.progress.phase(None, "memory", "until what the dead server held is free again")
            came = settle.wait(header.baseline, stop=lambda: stopper.asked)
            self.campaign.note("settled", window=window, attempt=attempt, **came)

    def _window(self, header: Header, window: Window, attempt: int, stopper: Stopper) -> None:
        """One launch of one arm and its pass over the ladder; every cell leaves a receipt."""
        arm = self.arms[window.arm]
        cells = schedule.cells(window, self.plan, header.seed)
        self.progress.phase(None, "launch", arm.name)
        server = self._server(arm, stopper)
        try:
            server.start()
            self._same_model(arm, server)
            preflight.check_context(server, self.plan)
            with (
                Client(server.url, apart=True) as client,
                sensors.Sampler(self._glances.root) as sampler,
            ):
                self._cells(header, cells, attempt, server, client, sampler, stopper)
        except LaunchError as failed:
            words = oom.words({"in the server's log": server.log_since()})
            words = words or server.kills.word(server.exit_status)
            # no memory to load an arm that loaded before is a result; anything else is to be mended, and measured then
            if words is None or server.ready or arm.name not in self._launched:
                raise
            evidence = {
                "phase": "load", "log_tail": server.log_tail(), "why": str(failed), "oom": words._asdict(),
            }  # fmt: skip
            failure = WindowFailed(
                "oom", f"during load: {words.text} ({words.where})", evidence, memory.at_death(server.limit)
            )  # fmt: skip
            with Client(server.url) as client:
                measuring = Measuring(server, client, self.plan, header.baseline)
                for cell in cells:
                    unsent = measuring.unsent(cell, self._prompt(cell), failure)
                    self._keep(header, cell, attempt, server, unsent)
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
        sampler: sensors.Sampler,
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
            self._glances,
            sampler,
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
            self._mind_breach(receipt)
            failure = failure or ends_window(receipt)

    def _mind_breach(self, receipt: Receipt) -> None:
        """Disturbed when the machine was disturbed in this cell and its block may be measured again."""
        if not receipt.breach:
            return
        self.campaign.note(
            "disturbed",
            block=receipt.cell.block,
            attempt=receipt.attempt,
            receipt=receipt.sequence,
            why=list(receipt.breach),
            then="measured again" if self._may_rerun else "stands",
        )
        if self._may_rerun:
            raise Disturbed("; ".join(receipt.breach))

    def _prompt(self, cell: Cell) -> Prompt:
        """The sized prompt of a cell."""
        return self._prompts[cell.rung, cell.seed]

    def _keep(
        self, header: Header, cell: Cell, attempt: int, server: Server, measured: Measured
    ) -> Receipt:
        """Write the receipt of a cell."""
        self._sequence += 1
        here = (self._machine, self._versions)
        receipt = receipt_of(
            header, self._sequence, attempt, cell, self.arms[cell.arm], server, measured, here
        )
        self.campaign.write(receipt)
        if receipt.outcome in ("oom", "lost"):
            self._died = (cell.window.number, attempt)
        self.progress.cell(receipt)
        return receipt
