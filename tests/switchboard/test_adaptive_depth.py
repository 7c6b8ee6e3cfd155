"""The depth follows what guesses are worth: 0 when they are wrong, all the way when right; the text is unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from chances import answer, session
from oracle import Oracle
from served import Engine

from switchboard import cache as kv
from switchboard import decode, speculate
from switchboard.accept.ruling import Drawn
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.decode import Tally, prefill
from switchboard.depth import Costs
from switchboard.paced import Paced
from switchboard.registry import Counter
from switchboard.sampler import Sampler, Sampling
from switchboard.session import Session
from switchboard.sources import synthetic
from switchboard.speculate import verified
from switchboard.switches.prompt_lookup import Options, PromptLookup

PROMPT = [97, 98, 99, 100] * 6
CPU = Costs((1, 2, 4, 6), (1.0, 1.7, 1.8, 2.3), (1, 3, 5), (0.0, 0.0, 0.0))
DEAR = Costs((1, 2, 4), (1.0, 1.2, 1.4), (1, 3), (0.2, 0.6), reading=0.01)
STEEP = Costs((1, 2, 4, 6), (1.0, 2.0, 4.0, 6.0), (1, 3, 5), (0.0, 0.0, 0.0))


def written(model: Any, proposer: Any, count: int, tally: Tally, temperature: float) -> list[int]:
    """A text by the verify loop."""
    cache = kv.make(model)
    prefill(model, cache, PROMPT, 64, Tally(), lambda: None)
    sampler = Sampler(Sampling(temperature=temperature, seed=3), ())
    proposer.begin(list(PROMPT))
    stream = verified(model, cache, PROMPT[-1], sampler, proposer, count, tally)
    return [token for tokens in stream for token in tokens]


class Nothing(Oracle):
    """Guesses nothing, so that the loop is the plain one."""

    def propose(self, limit: int) -> list[int]:
        return []


COUNT = 120


@pytest.fixture(scope="module")
def model() -> Any:
    return synthetic.build("tiny-llama")[0]


@pytest.fixture(scope="module")
def texts(model: Any) -> dict[float, list[int]]:
    return {heat: written(model, Nothing([], bool), COUNT, Tally(), heat) for heat in (0.0, 0.9)}


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("costs", [CPU, DEAR], ids=["free", "dear"])
def test_guesses_that_are_never_right_end_at_depth_0_and_waste_a_bounded_number_of_rows(
    model: Any, texts: dict[float, list[int]], costs: Costs, temperature: float
) -> None:
    inner = Oracle(texts[temperature], lambda at: False)
    counter, tally = Counter(), Tally()
    paced = Paced(inner, costs, 0.05, 3.0, counter)
    assert written(model, paced, COUNT, tally, temperature) == texts[temperature]
    assert paced.depth == 0 and tally.accepted == 0
    # free guesses are watched before one is verified; dear ones are tried until the account is empty
    drafts = counter.more.get("drafts", 0)
    assert tally.proposed == drafts and (drafts == 0) == (costs is CPU)
    assert drafts * costs.worst(1) <= 3.0 + 0.01 * COUNT
    assert inner.asked == (COUNT - 2 if costs is CPU else drafts)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("costs", [CPU, DEAR], ids=["free", "dear"])
def test_guesses_that_are_always_right_are_made_as_deep_as_they_go(
    model: Any, texts: dict[float, list[int]], costs: Costs, temperature: float
) -> None:
    tally, counter = Tally(), Counter()
    paced = Paced(Oracle(texts[temperature], lambda at: True), costs, 0.05, 3.0, counter)
    assert written(model, paced, COUNT, tally, temperature) == texts[temperature]
    assert tally.accepted == tally.proposed > 0.6 * COUNT
    assert len(tally.accepted_by_depth) == costs.deepest
    assert counter.more["guesses"] == tally.proposed
    assert min(paced.told()["chances"].values()) > 0.7


def test_a_cost_that_rises_with_the_width_keeps_even_right_guesses_at_0(
    model: Any, texts: dict[float, list[int]]
) -> None:
    for costs in (STEEP, Costs((1, 2), (1.0, 1.5), (1,), (0.6,))):
        inner, tally = Oracle(texts[0.0], lambda at: True), Tally()
        paced = Paced(inner, costs, 0.05, 3.0, Counter())
        assert written(model, paced, COUNT, tally, 0.0) == texts[0.0]
        assert (tally.proposed, paced.depth) == (0, 0)
    assert inner.asked == 0, "guesses that cost something are not even made"


def test_it_goes_down_where_guesses_fall_and_up_again_where_they_stand(
    model: Any, texts: dict[float, list[int]]
) -> None:
    tally = Tally()
    paced = Paced(Oracle(texts[0.0], lambda at: not 40 <= at < 80), CPU, 0.05, 3.0, Counter())
    depths = []
    honest = paced.propose
    paced.propose = lambda limit: depths.append((paced._inner.made, len(made := honest(limit)))) or made  # type: ignore[attr-defined, method-assign]  # fmt: skip
    assert written(model, paced, COUNT, tally, 0.0) == texts[0.0]
    by_place = dict(depths)
    assert max(depth for at, depth in depths if at < 40) == 5
    assert all(depth == 0 for at, depth in depths if 50 <= at < 80)
    assert max(depth for at, depth in depths if 85 <= at < 110) == 5
    assert len(by_place) > 50


def test_what_earlier_texts_taught_is_kept_of_a_model_and_forgotten_of_a_lookup() -> None:
    for costs, kept in ((CPU, False), (DEAR, True)):
        text = list(range(100, 140))
        paced = Paced(Oracle(text, lambda at: True), costs, 0.05, 3.0, Counter())
        begun = paced.told()["chances"]
        paced.begin([1])
        for _ in range(6):
            draft = paced.propose(8)
            paced.judged(len(draft), len(draft))
            paced.extend([*draft, text[paced._inner.made + len(draft)]])  # type: ignore[attr-defined]
        assert paced.told()["chances"] != begun
        paced.begin([])
        assert paced.told()["chances"] != begun, (
            "/health tells of the latest text until the next begins"
        )
        paced.begin([2])
        assert (paced.told()["chances"] == begun) is not kept


def test_of_drawn_guesses_only_what_is_verified_is_made() -> None:
    class Drawing(Oracle):
        draws = True

        def sample_with(self, sampler: Any) -> None:
            self.sampler = sampler

        def propose(self, limit: int) -> list[int]:
            made = super().propose(limit)
            return Drawn(made, mx.ones((len(made), 4)) / 4)

    inner = Drawing(range(50), lambda at: True)
    paced = Paced(inner, CPU, 0.05, 3.0, Counter())
    paced.begin([1])
    paced.sample_with("the request's")
    draft = paced.propose(8)
    assert paced.draws and inner.sampler == "the request's"
    assert isinstance(draft, Drawn) and len(draft.chances) == len(draft) == 1, (
        "a try, as shallow as pays"
    )
    assert not Paced(Oracle([], bool), CPU, 0.05, 3.0, Counter()).draws


def test_a_proposer_that_was_silent_when_it_was_measured_is_not_watched() -> None:
    quiet = Costs((1, 2), (1.0, 1.1), (1,), (0.0,), silent=True)
    paced = Paced(Oracle(range(9), lambda at: True), quiet, 0.05, 0.0, Counter())
    paced.begin([1])
    assert paced.propose(5) == [] and not paced.hopes(5), (
        "there is nothing on the account for a try"
    )
    assert not paced.told()["watches"]


def test_a_lookup_stops_resting_by_its_own_rule() -> None:
    lookup = PromptLookup(Options(), Counter())
    Paced(lookup, CPU, 0.05, 3.0, Counter())
    lookup.begin([1, 2, 3] * 4)
    for _ in range(9):
        assert lookup.propose(5)
        lookup.judged(5, 0)


def paced(one: Session) -> Paced:
    assert isinstance(one.proposer, Paced)
    return one.proposer


@pytest.mark.parametrize(
    ("model", "switches"),
    [
        ("tiny-llama", ()), ("tiny-llama-q4", ("in_place_kv",)), ("tiny-qwen3", ("quantized_kv:group=32",)),
        ("tiny-gemma3", ()), ("tiny-qwen3_5", ()), ("tiny-qwen3_moe", ("prompt_cache",)),
    ],
)  # fmt: skip
def test_costs_are_measured_over_every_kind_of_cache_and_the_text_is_the_plain_one(
    model: str, switches: tuple[str, ...]
) -> None:
    name = f"synthetic:{model}"
    one = session(*switches, "prompt_lookup:least=1,ngram=2", "adaptive_depth:rows=200", model=name)
    told = paced(one).told()
    assert list(told["verify_cost"]) == ["1", "2", "4", "6"] and told["verify_cost"]["1"] == 1
    assert all(cost > 0 for cost in told["verify_cost"].values())
    assert paced(one).costs.replays == ("qwen3_5" in model)
    assert one.board.positions["adaptive_depth"].state == "armed"
    assert all(position.counter.runs == 0 for position in one.board.positions.values())
    plain = session(*switches, model=name)
    # cheap passes, whatever this machine has: so that drafts are verified
    cheap = Costs((1, 2, 6), (1.0, 1.0, 1.0), (1, 5), (0.0, 0.0))
    counter = one.board.positions["adaptive_depth"].counter
    one.draft_with(Paced(paced(one)._inner, cheap, 0.05, 3.0, counter))
    tally = Tally()
    asked = Sampling(temperature=0.0, ignore_eos=True)
    assert answer(one, PROMPT, asked, 60, tally) == answer(plain, PROMPT, asked, 60)
    assert tally.proposed > 0
    states = {name: position.state for name, position in one.board.positions.items()}
    assert states["adaptive_depth"] == states["prompt_lookup"] == "engaged"


def test_at_depth_0_every_step_is_begun_ahead_as_in_the_plain_loop(
    monkeypatch: pytest.MonkeyPatch, model: Any, texts: dict[float, list[int]]
) -> None:
    begun: list[int] = []
    passes: list[int] = []

    def ahead(tokens: mx.array, cache: list[Any]) -> None:
        begun.append(1)
        decode.start_ahead(tokens, cache)

    def seen(tokens: mx.array, cache: Any) -> Any:
        passes.append(tokens.size)
        return model(tokens, cache=cache)

    monkeypatch.setattr(speculate, "start_ahead", ahead)
    for costs, right in ((CPU, False), (STEEP, True)):
        begun.clear()
        paced = Paced(Oracle(texts[0.0], lambda at, right=right: right), costs, 0.05, 0.0, Counter())  # type: ignore[misc]  # fmt: skip
        cache = kv.make(model)
        prefill(model, cache, PROMPT, 64, Tally(), lambda: None)
        passes.clear()
        paced.begin(list(PROMPT))
        sampler = Sampler(Sampling(temperature=0.0), ())
        made = list(verified(seen, cache, PROMPT[-1], sampler, paced, COUNT, Tally()))
        assert [token for (token,) in made] == texts[0.0]
        assert len(begun) == COUNT - 1 and passes == [1] * COUNT


@pytest.mark.parametrize(
    ("switches", "says"),
    [
        (["adaptive_depth"], "no draft switch is on, so there is no depth to choose"),
        (["draft_model:layers=9", "adaptive_depth"], "no draft switch is on"),
    ],
)
def test_it_declines_where_nothing_is_drafted(switches: list[str], says: str) -> None:
    one = session(*switches)
    position = one.board.positions["adaptive_depth"]
    assert position.state == "declined" and says in (position.reason or "")
    assert one.proposer is None


def test_it_is_no_second_draft_and_can_be_killed() -> None:
    asked = parse_asked(["prompt_lookup", "adaptive_depth"], [])
    killed = Board(asked, {"SWITCHBOARD_ADAPTIVE_DEPTH": "0"})
    assert killed.positions["adaptive_depth"].state == "off"
    assert Board(asked, {}).positions["adaptive_depth"].asked


def test_a_draft_model_is_paced_too() -> None:
    one, plain = session("draft_model:layers=3,depth=4", "adaptive_depth:margin=0"), session()
    told = paced(one).told()
    assert told["deepest"] == 4 and not told["watches"]
    for temperature in (0.0, 0.8):
        asked = Sampling(temperature=temperature, seed=6, ignore_eos=True)
        assert answer(one, PROMPT, asked, 40) == answer(plain, PROMPT, asked, 40)


def test_served_it_tells_what_it_measured_and_what_it_does(shared: Callable[..., Engine]) -> None:
    engine = shared(
        "--model", "synthetic:tiny-llama", "--switch", "prompt_lookup", "--switch", "adaptive_depth"
    )
    assert engine.switch("adaptive_depth")["state"] == "armed"
    engine.complete(PROMPT, max_tokens=24, ignore_eos=True)
    health = engine.health()
    switch, pace = health["switches"]["adaptive_depth"], health["pace"]
    assert switch["state"] == "engaged" and switch["counters"]["runs"] > 10
    assert health["switches"]["prompt_lookup"]["state"] == "engaged"
    assert set(pace["break_even"]) == {str(depth) for depth in range(1, pace["deepest"] + 1)}
    assert 0 <= pace["depth"] <= pace["deepest"] == 5
    assert shared("--model", "synthetic:tiny-llama").health()["pace"] is None


REPEAT = "Repeat this line ten times:\nthe quick brown fox jumps over the lazy dog\n" * 3


@pytest.mark.model
def test_smollm2_writes_its_own_text_and_drafts_where_it_repeats(
    shared: Callable[..., Engine],
) -> None:
    flags = ("--model", "smollm2-135m")
    plain = shared(*flags)
    engine = shared(*flags, "--switch", "prompt_lookup", "--switch", "adaptive_depth:seconds=0")
    asked = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
    told = engine.complete(REPEAT, **asked)
    assert told["choices"][0]["text"] == plain.complete(REPEAT, **asked)["choices"][0]["text"]
    pace = engine.health()["pace"]
    assert pace["watches"] and pace["chances"]["1"] > 0.5
    assert 1 < pace["break_even"]["5"] < 12
