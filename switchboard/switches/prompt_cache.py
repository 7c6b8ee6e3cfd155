"""Keep the prompts that were read, and read a new one only from where it differs (switchboard/pool.py says how).

For conversations that go on, and for prompts that begin alike. Off unless asked for, and no arm of a measurement may
carry it: a prefill that was partly spared is no cold one, which the usage tells (`cached_tokens`).

Rounding: the rest of a prompt is read in chunks with other borders than a cold prefill has. On a CPU the logits then
differ by up to some 1e-6 of the largest, as the probe at load tells of the model at hand. With `exact=true` only
whole chunks are taken (128 tokens on a CPU, 2,048 elsewhere), and the logits are bitwise the cold ones: then /health
says `exact`.

Fits caches of rows (plain, in place, quantised), of windows and of states; another class declines with its name.
`bytes` and `slots` bound it; memory in use beyond --memory-limit is taken from it first. `least` is the shortest prefix
worth taking. Costs: the bytes; a copy of the rows that are taken; and where a text ended by itself, the step that
was ahead of it is computed to its end. `runs` counts look-ups, `hits` those that found something, `asked` and `reused`
prompt tokens, `stored` and `evicted` slots. Turned off by not asking for it, or by SWITCHBOARD_PROMPT_CACHE=0.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import msgspec

from switchboard import parity
from switchboard.bisect.compare import bound
from switchboard.decode import Tally, forward, prefill
from switchboard.errors import Declined
from switchboard.pool import Pool, cannot_hold
from switchboard.registry import CacheFactory, Counter, Exactness, Room, Started, switch

CHUNK = 4
FIRST = (5, 11, 3, 250, 7, 19, 42, 9, 8, 21, 4)
THEN = (*FIRST, 17, 30, 2)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    bytes: int = 1 << 30
    slots: int = 4
    least: int = 16
    exact: bool = False

    @property
    def exactness(self) -> Exactness:
        """Whole chunks are read as a cold prefill reads them."""
        return "exact" if self.exact else "rounding"

    def __post_init__(self) -> None:
        """Refuse bounds that nothing fits into."""
        if self.bytes < 1 or self.slots < 1 or self.least < 1:
            raise ValueError("bytes, slots and least must be 1 or more")


@switch(stage="start", exactness="rounding", options=Options)
def prompt_cache(session: Any, options: Options, counter: Counter) -> Started:
    """Give the session a pool."""
    wrong = cannot_hold(session.make_cache(Room(1, 1)))
    if wrong is not None:
        raise Declined(wrong)
    worst = prove(session.loaded.model, session.make_cache, options.exact)
    session.pool = Pool(
        chunk=session.chunk,
        exact=options.exact,
        most=options.slots,
        limit=options.bytes,
        least=options.least,
        counter=counter,
    )
    note = f"taken up in the midst of a prompt the logits differ by up to {worst:.2g}"
    return Started(None if options.exact else note)


def prove(model: Any, make: CacheFactory, exact: bool) -> float:
    """How far logits after taken rows are from cold ones; Declined where that is more than is claimed."""
    pool = Pool(
        chunk=CHUNK, exact=exact, most=2, limit=1 << 40, least=1, counter=Counter()
    )  # fmt: skip
    room, resumed, end = Room(len(THEN), 1), list[int](), mx.array([THEN[-1]])
    cold = make(room)
    prefill(model, cold, THEN, CHUNK, Tally(), lambda: None)
    wanted = forward(model, cold, end)
    for prompt in (FIRST, THEN, THEN):
        turn = pool.begin(prompt, make(room))
        pool.read(model, turn, Tally(), lambda: None)
        pool.keep(turn, [])
        resumed.append(turn.reused)
    if not all(resumed[1:]):
        raise Declined(f"parity probe failed: took {resumed[1:]} tokens of a prompt read before")
    seen = forward(model, turn.cache, end)
    found = parity.gap(wanted, seen)
    worst = parity.number(mx.max(mx.abs(wanted - seen)))
    if found is not None and (exact or not worst <= bound(wanted)):
        raise Declined(f"parity probe failed: logits after rows taken: {found.told()}")
    return worst
