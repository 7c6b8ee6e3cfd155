"""What a prompt sent twice before the clock shows: whether the server keeps prompts, and whether a seed means anything.

The cache. A repeat that comes much faster than a new prompt of the same length was not processed again. One pair
proves nothing: a spike makes the first slow, and so does a server that compiles for each new length. So a collapse is
only taken for one after three prompts, each sent new, again, and once more with another beginning (the same length, but
nothing to be found in a cache): the slowest of the repeats must be under half of the fastest of the six that were new.
A server whose first pair shows nothing is asked no further. The rule is blind where a prompt of this length costs less
than the rest of the time to the first token. With log-normal noise of 30 % it accused none of 20,000 honest windows and
caught 99.9 % whose repeats took a tenth; at 60 %, none or two of 20,000 and 70 % (benchmarks/cache_rule.py).

The seed. The same prompt and seed at a temperature above 0 must give the same tokens. That they do proves little; that
they do not disproves the server's word that it applied the seed.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from battery.bench import prompts
from battery.bench.client import Completion
from battery.bench.judge import outcome
from battery.bench.prompts import Messages

COLLAPSE = 0.5
"""A repeat below this share of a new prompt's time to first token was not processed."""
LEAST_S = 0.005
"""And by no less than this: differences below it are the network's."""
ROUNDS, TRIES = 3, 5
"""Prompts that must agree, and how many are tried for them."""
TOKENS = 8
WORDS = (48, 512)
_TURNED = str.maketrans("0123456789abcdef", "1234567890bcdefa")

Ask = Callable[[Messages], Completion]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the repeats of one window showed."""

    words: str = "the cache probe was not run"
    """For the receipts of a server that says nothing of its cache."""
    cache: str | None = None
    """Why its word on cached tokens cannot be believed; None where nothing speaks against it."""
    seed: str | None = None
    """Why its word on the seed cannot be believed; None where nothing speaks against it."""


class _Round(msgspec.Struct, frozen=True):
    """One prompt: new, again, and with another beginning; seconds to the first token."""

    new: float
    again: float
    other: float


def words_for(rung: int) -> int:
    """Words of a prompt that stays near or below the lowest rung, so that its memory is nobody's peak."""
    least, most = WORDS
    return max(least, min(most, (rung - 64) // 2))


def look(ask: Ask, seed: int, words: int, sampled: bool) -> Shown:
    """Send prompts twice; `ask` streams one that must succeed, `sampled` says whether the seed decides anything."""
    messages = prompts.compose("prose", seed, 0, words)
    first, second = ask(messages), ask(messages)
    seconds = [_seconds(first), _seconds(second)]
    told = (
        f"cache probe: the same prompt took {seconds[0]:.3f} s and then {seconds[1]:.3f} s to its first token,"
        f" the server said cached {first.trace.cached_tokens} and {second.trace.cached_tokens}"
    )
    cache, whole = None, outcome.cold(second.trace, "").value
    if whole == "cold" and collapsed(seconds[1:], seconds[:1]):
        cache = _confirmed(ask, seed, words)
    # a repeat out of the cache is computed otherwise, and rounding alone may then turn a draw
    drawn = sampled and whole != "warm"
    return Shown(words=told, cache=cache, seed=_other_text(first, second) if drawn else None)


def collapsed(again: list[float], new: list[float]) -> bool:
    """Whether repeats took so much less than new prompts that they were not processed."""
    most, least = max(again), min(new)
    return most < COLLAPSE * least and least - most > LEAST_S


def _confirmed(ask: Ask, seed: int, words: int) -> str | None:
    """The evidence that repeats are fast again and again; None where they are not."""
    rounds: list[_Round] = []
    for number in range(1, TRIES + 1):
        messages = prompts.compose("prose", seed, number, words)
        new, again, other = ask(messages), ask(messages), ask(_beginning_changed(messages))
        if outcome.cold(again.trace, "").value != "cold":
            return None  # now it says that it caches
        # only a prompt of the very same length is its equal: some servers compile for each
        if new.trace.prompt_tokens == other.trace.prompt_tokens:
            rounds.append(_Round(_seconds(new), _seconds(again), _seconds(other)))
        if len(rounds) == ROUNDS:
            break
    else:
        return None
    repeats = [one.again for one in rounds]
    fresh = [seconds for one in rounds for seconds in (one.new, one.other)]
    if not collapsed(repeats, fresh):
        return None
    return (
        f"the server keeps prompts, whatever it says: over {ROUNDS} prompts a repeat took at most"
        f" {max(repeats):.3f} s to its first token and a new one of the same length at least {min(fresh):.3f} s,"
        " though it said each time that it processed every token"
    )


def _beginning_changed(messages: Messages) -> Messages:
    """The same prompt with other digits at its very beginning, of which prompts have ten."""
    head, *rest = messages
    opening, text = head["content"][:10], head["content"][10:]
    return [{**head, "content": opening.translate(_TURNED) + text}, *rest]


def _seconds(done: Completion) -> float:
    """Seconds to the first token."""
    return done.trace.events[0].at_ns / 1e9


def _other_text(first: Completion, second: Completion) -> str | None:
    """How the same prompt and seed gave two texts; None where they gave one."""
    one, other = ((done.token_ids or done.reasoning + done.text) for done in (first, second))
    if one == other:
        return None
    heads = [(done.reasoning + done.text)[:60] for done in (first, second)]
    return f"the same prompt and seed gave {heads[0]!r} and then {heads[1]!r}"
