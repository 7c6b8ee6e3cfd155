"""Draft only as deep as pays on this machine, for these guesses; not at all where nothing does.

Goes together with any draft switch and stands around it: declines where none is on. At load it measures what a verify
pass over 2, 4, 8 … tokens costs beside the plain loop's step, over a cache of `rows` tokens with all switches on, and
what the guesses themselves cost (switchboard/verify_cost.py). While a text is written it follows how often the guess
at every depth stands, and takes the depth with the most tokens for its time (switchboard/depth.py has the formulas),
if that is expected to be better than the plain loop by `margin`. At depth 0 the verify loop is the plain one, with
the next step begun ahead. How much can be lost at worst is bounded, and what is tried when (switchboard/paced.py).

`prompt_lookup` stops resting by its own rule beside it. `/health` tells under `pace`: the cost of a pass by width and
of guessing by depth, in plain steps; the tokens a pass from which on each depth pays (`break_even`); the chances as
they stand now; the depth in use; what may still be lost (`allowance`, in plain steps, `start` at first). `runs` counts
choices, so engaged means that one was made, be it for 0; `drafts` and `guesses` what was verified, `watched` guesses
that were compared with the text.

The law that judges is not touched. Under a law that couples guesses to the target's own choices the text for a seed is
the plain loop's but for rounding. Drawn guesses (`draft_model:coupled=false`) make another text at another depth: then
a seed's text depends on what the machine was measured to cost, and on the texts before.

Costs: at load `rounds` of passes, none begun after `seconds` once there were two, and the cache of `rows` tokens
meanwhile: SmolLM2-135M takes 1.5 s more to load on a CPU (processor time). A cost that changes later, at much longer
texts, is not noticed; on a machine that was busy at load passes are taken for dearer, so that less is drafted. Turned
off by not asking for it, or by SWITCHBOARD_ADAPTIVE_DEPTH=0.
"""

from __future__ import annotations

from typing import Any

import msgspec

from switchboard.errors import Declined
from switchboard.paced import Paced
from switchboard.registry import Counter, Started, switch
from switchboard.sampler import Sampling
from switchboard.verify_cost import Bench, measure

TYPICAL = Sampling(temperature=0.7, top_p=0.95)
"""What the timed passes draw with: filtering sorts every row, which is part of what a row costs."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    most: int = 8
    rows: int = 256
    rounds: int = 3
    seconds: float = 1.0
    margin: float = 0.05
    start: float = 3.0

    def __post_init__(self) -> None:
        """Refuse what could never draft, or never end to measure."""
        if not 1 <= self.most <= 32:
            raise ValueError("most must be 1 to 32")
        if not 64 <= self.rows <= 65536 or not 2 <= self.rounds <= 100 or self.seconds < 0:
            raise ValueError("rows must be 64 to 65536, rounds 2 to 100, seconds 0 or more")
        if self.margin < 0 or self.start < 0:
            raise ValueError("margin and start must not be negative")


@switch(stage="start", exactness="rounding", options=Options)
def adaptive_depth(session: Any, options: Options, counter: Counter) -> Started:
    """Measure, and stand around the proposer."""
    if session.proposer is None:
        raise Declined("no draft switch is on, so there is no depth to choose")
    costs = measure(
        Bench(
            model=session.loaded.model,
            make_cache=session.make_cache,
            sampler=session.sampler(TYPICAL),
            proposer=session.proposer,
            most=options.most,
            rows=min(options.rows, session.loaded.context // 2),
            rounds=options.rounds,
            limit_s=options.seconds,
        )
    )
    session.draft_with(Paced(session.proposer, costs, options.margin, options.start, counter))
    dearest = costs.ratios[-1]
    return Started(f"verifying {costs.widths[-1]} tokens costs {dearest:.2f} steps")
