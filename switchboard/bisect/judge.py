"""The verdict of each rung: what the switch shows beside what the plain model showed."""

from __future__ import annotations

from copy import deepcopy

import mlx.core as mx

from switchboard.bisect import audit, rungs
from switchboard.bisect.calls import Known, missing, replaced
from switchboard.bisect.compare import SHARE, Comparison, Observation, bound, compare
from switchboard.bisect.outcome import Outcome, skip
from switchboard.bisect.rungs import Reference
from switchboard.bisect.subject import Subject
from switchboard.decode import forward
from switchboard.parity import number
from switchboard.sampler import Sampler, Sampling


class Judge:
    """One subject with its switch on, held against the reference rung by rung."""

    def __init__(self, subject: Subject, reference: Reference, before: Known, exact: bool) -> None:
        self._subject = subject
        self._reference = reference
        self._before = before
        self._exact = exact

    def modules(self) -> Outcome:
        """Rung 1: every module that was replaced."""
        parts, model = self._reference.inputs.parts, self._subject.model
        lost = missing(parts, model, self._before)
        if lost is not None:
            return Outcome("modules", "failed", f"{lost}: missing with the switch on")
        there = replaced(parts, model, self._before)
        if not there:
            return skip("modules", "it replaces no module that is called on its own")
        paths = {call.path for call in there}
        old = self._reference.modules.items()
        off = {name: array for name, array in old if rungs.path_of(name) in paths}
        found = compare(off, rungs.modules(self._subject, there), self._exact)
        return self._judged("modules", found, f"{len(paths)} × {len(rungs.MAGNITUDES)} magnitudes")

    def blocks(self) -> Outcome:
        """Rung 2: attention and MLP of every layer."""
        on = rungs.blocks(self._subject, self._reference.inputs.large)
        found = compare(self._reference.blocks, on, self._exact)
        return self._judged("blocks", found, "attention and MLP")

    def prefill(self) -> Outcome:
        """Rung 3: the whole model."""
        found = compare(self._reference.whole, rungs.whole(self._subject), self._exact)
        lengths = ", ".join(map(str, rungs.LENGTHS))
        return self._judged("prefill", found, f"logits and cache of {lengths} tokens")

    def rows(self) -> Outcome:
        """Rung 3 of a draft: a pass of several rows beside passes of one."""
        found = compare(*rungs.widths(self._subject), exact=self._exact)
        return self._judged("prefill", found, f"passes of {', '.join(map(str, rungs.WIDTHS))} rows")

    def resumed(self) -> Outcome:
        """Rung 3 of a pool: a prompt whose beginning is taken from a slot, and steps after it, beside a cold one."""
        old, new, reused = rungs.resumed(self._subject)
        what = (
            f"logits after {rungs.FILLED} tokens, {reused} of them taken from a slot, and of steps"
        )
        if not reused:
            return Outcome("prefill", "failed", f"{what}: nothing was taken, so nothing is proved")
        return self._judged("prefill", compare(old, new, self._exact), what)

    def decode(self) -> Outcome:
        """Rung 4: twenty steps over a filled cache."""
        old, new = self._reference.walk, rungs.walk(self._subject)
        found = compare(old, new, self._exact)
        for step in range(rungs.STEPS):
            name = f"logits of step {step}"
            flip = flipped(old[name], new[name])
            if flip and found.difference is None:
                return Outcome("decode", "failed", f"step {step}: {flip}", found.worst)
        what = f"logits and cache of {rungs.STEPS} steps over {rungs.FILLED} tokens"
        return self._judged("decode", found, what)

    def loop(self) -> Outcome:
        """Rung 4 of a draft: the verify loop, its tokens and the cache it leaves, beside the plain loop.

        With the switch's own guesses and with scripted ones, greedy and drawn.
        """
        subject, proposed, accepted = self._subject, 0, 0
        prompt, off, on = subject.ids(rungs.FILLED + 1), Observation(), Observation()
        cache = rungs.filled(subject, prompt[:-1])
        for temperature in rungs.TEMPERATURES:
            sampling = Sampling(temperature=temperature, seed=self._reference.plan.seed)
            wanted = rungs.loop(subject, deepcopy(cache), sampling, None)
            scripted = rungs.Scripted(wanted.tokens, subject.loaded.text.vocabulary)
            for label, proposer in (("own", subject.proposer), ("scripted", scripted)):
                where = f"{label} guesses, temperature {temperature:g}"
                told = rungs.loop(subject, deepcopy(cache), sampling, proposer)
                wrong = self._strays(told.tokens, wanted.tokens, prompt, sampling)
                if wrong:
                    return Outcome("decode", "failed", f"{where}: {wrong}")
                proposed, accepted = proposed + told.proposed, accepted + told.accepted
                # After a near-tie that flipped the cache rightly holds other rows.
                if told.tokens == wanted.tokens:
                    off |= {f"{name}, {where}": array for name, array in wanted.cache.items()}
                    on |= {f"{name}, {where}": array for name, array in told.cache.items()}
        what = f"{accepted} of {proposed} guesses stood; the cache after {rungs.LOOPED} tokens"
        return self._judged("decode", compare(off, on, self._exact), what)

    def answers(self) -> Outcome:
        """Rung 5: whole texts."""
        plan, encode = self._reference.plan, self._subject.loaded.text.encode
        made, near = rungs.answers(self._subject, plan), 0
        for old, new, (prompt, sampling) in zip(
            self._reference.answers, made, plan.battery(), strict=True
        ):
            where = f"temperature {sampling.temperature:g}, '{prompt[:24]}…'"
            wrong = self._strays(new, old, encode(prompt), sampling)
            if wrong:
                return Outcome("answers", "failed", f"{where}: {wrong}")
            near += new != old
            if new == old and self._subject.spell(new) != self._subject.spell(old):
                return Outcome("answers", "failed", f"{where}: other bytes for the same ids")
        told = f"{len(made) - near} of {len(made)} texts of {plan.tokens} tokens are the same"
        if near:
            told += f"; {near} differ from a near-tie on"
        return Outcome("answers", "passed", told)

    def audit(self) -> Outcome:
        """What /health says, beside what was seen to run."""
        wrong, told = audit.hold(self._subject, self._before)
        return Outcome("audit", "failed" if wrong else "passed", wrong or told)

    def _strays(
        self, new: list[int], old: list[int], prompt: list[int], sampling: Sampling
    ) -> str | None:
        """What is wrong with a text beside the plain one, or None; under `rounding` a near-tie may flip."""
        if new == old:
            return None
        pairs = zip(new, old, strict=False)
        place = next((at for at, (one, two) in enumerate(pairs) if one != two), None)
        if place is None:
            return f"{len(new)} tokens instead of {len(old)}"
        said = f"token {place} is {new[place]} instead of {old[place]}"
        if self._exact:
            return said
        *fed, last = [*prompt, *old[:place]]
        cache = rungs.filled(self._subject, fed)
        row = forward(self._subject.model, cache, mx.array([last]))
        sampler = Sampler(sampling, self._subject.loaded.text.eos)
        gap = max(sampler.margin(row, place, token) for token in (old[place], new[place]))
        # A share of the distribution moves by as much as the logits over the temperature.
        allowed = 2 * bound(row) / (sampling.temperature or 1.0)
        if gap <= allowed:
            return None
        return f"{said}, and that was decided by {gap:.3g}; near-ties end at {allowed:.3g}"

    def _judged(self, rung: str, found: Comparison, what: str) -> Outcome:
        if found.difference is not None:
            return Outcome(rung, "failed", found.difference.told(), found.worst)
        if not found.elements:
            return Outcome(rung, "failed", f"{what}: nothing was compared, so nothing is proved")
        how = "bitwise"
        if found.worst > 0:
            how = f"worst {found.worst:.2g}, allowed {SHARE[mx.float32]:.2g} of the largest in fp32"
        told = f"{what}: {found.arrays} arrays, {found.elements} numbers, {how}"
        return Outcome(rung, "passed", told, found.worst)


def flipped(old: mx.array, new: mx.array) -> str | None:
    """Whether a decided token became another one; decided means that it led by more than twice the bound."""
    before, after = int(number(mx.argmax(old[-1]))), int(number(mx.argmax(new[-1])))
    gap = number(old[-1, before] - old[-1, after])
    if before != after and gap > 2 * bound(old):
        return f"token {after} instead of {before}, which led by {gap:.3g}"
    return None
