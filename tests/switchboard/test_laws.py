"""The laws as they are served: chosen by a switch, told in /health, drawn from as the oracle sums them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from chances import answer, enumerated, p_value, session
from served import Engine, refused

from benchmarks.acceptance.oracle import Matched, outcomes, own
from benchmarks.acceptance.worlds import Kind, World, world
from switchboard.accept.exact import Block, OneByOne
from switchboard.accept.lossy import Cascade, Typical
from switchboard.accept.ruling import Drawn, Law
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.decode import Tally
from switchboard.errors import ConfigError, SwitchRefused
from switchboard.sampler import Sampler, Sampling
from switchboard.speculate import verified

TINY = ("--model", "synthetic:tiny-llama")


class Entry:
    """A cache entry that knows which tokens were read, so that a model of a table can look them up."""

    def __init__(self) -> None:
        self.state: list[int] = []

    def trim(self, count: int) -> int:
        del self.state[len(self.state) - count :]
        return count


class Table:
    """A model that reads its logits from a world; the first token it is given is no part of the text."""

    def __init__(self, one: World) -> None:
        self.rows = {text: np.log(np.maximum(row, 1e-30)) for text, row in one.target.items()}

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        said = []
        for token in tokens[0].tolist():
            cache[0].state.append(token)
            text = tuple(cache[0].state[1:])
            # after the last token of a text nothing is asked, but a pass reads one row more
            said.append(self.rows.get(text, np.zeros_like(self.rows[()])))
        return mx.array(np.array(said, dtype=np.float32))[None]


class Guesser:
    """Guesses from a world: drawn from the draft's rows, or the same for every text."""

    draws = True

    def __init__(self, one: World, sampler: Sampler, kind: Kind) -> None:
        self.one, self.sampler, self.kind = one, sampler, kind
        self.text: tuple[int, ...] = ()

    def begin(self, prompt: list[int]) -> None:
        self.text = ()

    def extend(self, tokens: list[int]) -> None:
        self.text += tuple(tokens)

    def judged(self, proposed: int, accepted: int) -> None:
        pass

    def propose(self, limit: int) -> list[int]:
        if self.kind == "certain":
            ((guesses, _, _),) = self.one.guesses(self.text, "certain")
            assert len(guesses) == limit
            return list(guesses)
        guesses, rows = [], []
        for _ in range(limit):
            logits = np.log(np.maximum(self.one.draft[(*self.text, *guesses)], 1e-30))
            guess, row = self.sampler.draw(mx.array(logits[None].astype(np.float32)), 0)
            guesses.append(int(guess.item()))
            rows.append(row)
        return Drawn(guesses, mx.stack(rows))


def spoken(one: World, kind: Kind, law: Law | None, runs: int) -> dict[tuple[int, ...], int]:
    """How often each text comes out of the verify loop."""
    counts: dict[tuple[int, ...], int] = {}
    model = Table(one)
    for seed in range(runs):
        sampler = Sampler(Sampling(seed=seed), (), law)
        stream = verified(
            model, [Entry()], 0, sampler, Guesser(one, sampler, kind), one.length, Tally()
        )
        text = tuple(token for tokens in stream for token in tokens)
        counts[text] = counts.get(text, 0) + 1
    return counts


def judged(one: World, kind: Kind, law: Law | None, runs: int) -> dict[tuple[int, ...], int]:
    """How often each beginning of a text comes out of one draft and its judgement."""
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(runs):
        sampler = Sampler(Sampling(seed=seed), (), law)
        draft = Guesser(one, sampler, kind).propose(one.depth)
        logits = Table(one)(mx.array([[0, *draft]]), [Entry()])[0]
        verdict = sampler.judge(logits, draft, 0)
        text = (*draft[: verdict.accepted], verdict.following)
        counts[text] = counts.get(text, 0) + 1
    return counts


ONE = world(np.random.default_rng(8), 4, 2, 0.7, Sampling())
LAWS: list[tuple[Law | None, Any, Kind]] = [
    (None, Matched(), "certain"),
    (None, OneByOne(), "drawn"),
    (Block(), Block(), "drawn"),
    (Typical(0.15, 0.4), Typical(0.15, 0.4), "certain"),
    (Typical(0.15, 0.4), Typical(0.15, 0.4), "drawn"),
    (Cascade(0.3, "token"), Cascade(0.3, "token"), "certain"),
    (Cascade(0.3, "token"), Cascade(0.3, "token"), "drawn"),
    (Cascade(0.2, "peak"), Cascade(0.2, "peak"), "drawn"),
]


@pytest.mark.parametrize(
    ("law", "summed", "kind"),
    LAWS,
    ids=[f"{type(summed).__name__}-{kind}" for _, summed, kind in LAWS],
)
def test_the_sampler_draws_what_the_law_says(law: Law | None, summed: Any, kind: Kind) -> None:
    chances: dict[tuple[int, ...], float] = {}
    for text, chance in outcomes(summed, ONE, (), kind):
        chances[text] = chances.get(text, 0.0) + chance
    assert p_value(judged(ONE, kind, law, 700), chances) > 1e-3


@pytest.mark.parametrize(
    ("law", "kind"), [(None, "certain"), (None, "drawn"), (Block(), "drawn")], ids=str
)
def test_the_verify_loop_writes_the_targets_distribution(law: Law | None, kind: Kind) -> None:
    one = world(np.random.default_rng(9), 3, 4, 0.7, Sampling())
    assert p_value(spoken(one, kind, law, 700), own(one)) > 1e-3


def test_keys_that_are_used_twice_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sampler, "_fresh", lambda self: mx.random.key(self._sampling.seed))
    one = world(np.random.default_rng(9), 3, 4, 0.7, Sampling())
    assert p_value(spoken(one, "drawn", Block(), 700), own(one)) < 1e-6


def test_at_temperature_zero_every_law_is_equality() -> None:
    logits = mx.array(np.random.default_rng(2).normal(size=(3, 8)).astype(np.float32))
    best = [int(one) for one in mx.argmax(logits, axis=-1).tolist()]  # type: ignore[union-attr]
    for law in (None, Block(), Typical(0.01, 0.01), Cascade(1.0, "token"), Cascade(1e6, "peak")):
        for draft in (best[:2], [best[0], (best[1] + 1) % 8], [(best[0] + 1) % 8, best[1]]):
            stands = next((i for i in range(2) if draft[i] != best[i]), 2)
            for guesses in (draft, Drawn(draft, mx.ones((2, 8)) / 8)):
                verdict = Sampler(Sampling(temperature=0.0), (), law).judge(logits, guesses, 0)
                assert (verdict.accepted, verdict.following) == (stands, best[stands])


def test_texts_of_a_session_with_drafts_follow_the_model() -> None:
    one = session("prompt_lookup:adaptive=false,least=1,ngram=1")
    # three tokens are possible, and the prompt has each: whatever comes, a draft is found
    only = {"top_k": 3, "logit_bias": dict.fromkeys((10, 11, 12), 60.0), "ignore_eos": True}
    prompt = [10, 11, 12, 10, 12, 11, 10]
    chances = enumerated(one, prompt, Sampling(**only), 4)
    assert len(chances) == 81
    counts: dict[tuple[int, ...], int] = {}
    tally = Tally()
    for seed in range(250):
        text = answer(one, prompt, Sampling(**only, seed=seed), 4, tally)
        counts[text] = counts.get(text, 0) + 1
    assert tally.proposed > 200 and 30 < tally.accepted < tally.proposed - 30
    assert p_value(counts, chances) > 1e-3


def test_two_laws_are_refused() -> None:
    asked = ["prompt_lookup", "typical", "cascade:alpha=0.5"]
    with pytest.raises(
        ConfigError, match="at most one acceptance law can be on, not cascade and typical"
    ):
        Board(parse_asked(asked, []), {})
    flags = [word for one in asked for word in ("--switch", one)]
    status, said = refused(*TINY, *flags)
    assert status == 2 and "not cascade and typical: each of them decides alone" in said
    killed = Board(parse_asked(asked, []), {"SWITCHBOARD_TYPICAL": "0"})
    assert killed.positions["typical"].state == "off"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cascade:alpha=-0.1", "alpha must be from 0 to 1"),
        ("cascade:alpha=1.5", "alpha must be from 0 to 1"),
        ("cascade:alpha=nan", "alpha must be"),
        ("cascade:alpha=0,rule=opt", "rule"),
        ("typical:epsilon=0", "epsilon"),
        ("typical:delta=2", "delta"),
    ],
)
def test_an_option_without_a_meaning_is_an_error(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Board(parse_asked([text], []), {})
    assert Board(parse_asked(["cascade:alpha=1.5,rule=peak"], []), {})


@pytest.mark.parametrize(
    ("switches", "says"),
    [
        (["typical"], "no draft switch is on"),
        (
            ["prompt_lookup", "cascade"],
            "alpha is not set, so the law is off; cascade:alpha=0 would",
        ),
        (["prompt_lookup", "cascade:alpha=0,rule=peak"], "guesses of this draft are certain"),
        (["prompt_lookup", "block_verify"], "guesses of this draft are certain"),
    ],
)
def test_a_law_that_cannot_judge_stays_off_and_says_why(switches: list[str], says: str) -> None:
    one = session(*switches)
    name = switches[-1].partition(":")[0]
    position = one.board.positions[name]
    assert position.state == "declined" and says in (position.reason or "")
    drafted = "exact" if "prompt_lookup" in switches else None
    assert one.board.acceptance() == {"law": drafted, "options": {}}
    with pytest.raises(SwitchRefused, match="is required"):
        session(*switches, required=True)


FEW = {"logit_bias": dict.fromkeys("56789", 50.0), "ignore_eos": True, "seed": 3}


def ask(engine: Engine, temperature: float) -> dict[str, Any]:
    body = {**FEW, "max_tokens": 24, "temperature": temperature}
    return engine.complete([5, 6, 7, 8] * 4, **body)["timings"]


def test_alpha_zero_is_on_and_unset_is_off_and_health_says_so(
    shared: Callable[..., Engine],
) -> None:
    lookup = ("--switch", "prompt_lookup:adaptive=false,least=1")
    off = shared(*TINY, *lookup).health()
    assert off["acceptance"] == {"law": "exact", "options": {}}
    assert off["switches"]["cascade"]["state"] == "off"
    assert off["switches"]["cascade"]["options"]["alpha"] is None
    engine = shared(*TINY, *lookup, "--switch", "cascade:alpha=0")
    on = engine.health()
    assert on["acceptance"] == {"law": "cascade", "options": {"alpha": 0.0, "rule": "token"}}
    assert on["switches"]["cascade"]["state"] == "armed"
    assert on["switches"]["cascade"]["exactness"] == "lossy"
    assert ask(engine, 0.0)["proposed"] > 0
    assert engine.switch("cascade")["state"] == "armed", "greedy: no law is asked"
    assert ask(engine, 1.0)["proposed"] > 0
    told = engine.switch("cascade")
    assert told["state"] == "engaged" and told["counters"]["runs"] > 0


def test_a_lossy_law_accepts_more_and_greedy_texts_stay(shared: Callable[..., Engine]) -> None:
    lookup = ("--switch", "prompt_lookup:adaptive=false,least=1")
    exact, loose = shared(*TINY, *lookup), shared(*TINY, *lookup, "--switch", "cascade:alpha=1")
    plain = shared(*TINY)
    accepted = [ask(engine, 1.0)["accepted"] for engine in (exact, loose)]
    assert accepted[1] > accepted[0]
    body = {**FEW, "max_tokens": 24, "temperature": 0.0}
    texts = [one.complete([5, 6, 7, 8] * 4, **body)["choices"] for one in (plain, exact, loose)]
    assert texts[0] == texts[1] == texts[2]
