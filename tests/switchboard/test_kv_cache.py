"""A cache that writes in place gives the plain one's logits and allocates nothing beside itself, or says why not."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from benchmarks.cache_memory import VERIFY, build, factories, filled, measured, write
from switchboard import cache as kv
from switchboard import lm
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.errors import Declined, SwitchRefused
from switchboard.registry import CacheFactory, Counter, Recached, Room, known
from switchboard.sources import synthetic, tiny
from switchboard.switches import in_place_kv as module
from switchboard.switches import quantized_kv

PROMPT, STEPS, DRAFT, TAKEN = 37, 20, 5, 3
HYBRID = {"qwen3_5": "ArraysCache", "qwen3_5_moe": "ArraysCache", "gemma3": "RotatingKVCache"}
ROOMY, SHORT = Room(PROMPT, 64), Room(PROMPT, 0)


def logits(model: Any, factory: CacheFactory, room: Room) -> list[mx.array]:
    """A prefill in two chunks, 20 steps, a verify pass with a part taken back, and two steps."""
    cache = factory(room)
    out = [model(mx.arange(start, end)[None], cache=cache) for start, end in ((0, 20), (20, 37))]
    out += [model(mx.array([[7 * step + 3]]), cache=cache) for step in range(STEPS)]
    before, draft = kv.Checkpoint(cache), [9 + place for place in range(DRAFT)]
    out.append(model(mx.array([draft]), cache=cache))
    mx.eval(out)
    before.keep(model, draft, DRAFT - TAKEN)
    out += [model(mx.array([[step]]), cache=cache) for step in (5, 6)]
    mx.eval(out)
    return out


def same(before: list[mx.array], after: list[mx.array]) -> bool:
    return all(mx.array_equal(old, new).item() for old, new in zip(before, after, strict=True))


def applied(name: str, plain: CacheFactory, counter: Counter, **options: str) -> Recached:
    switch = known()[name]
    done: Recached = switch.apply(plain, switch.parse(options), counter)
    return done


def on_board(model: Any, *asked: str, required: bool = False) -> tuple[Board, CacheFactory]:
    """The board after its cache switches were put on, as a session does it."""
    board = Board(parse_asked([] if required else [*asked], [*asked] if required else []), {})
    plain = kv.factory(model)
    return board, board.apply_cache(plain, kv.check(model, plain))


@pytest.mark.families
@pytest.mark.parametrize("room", [ROOMY, SHORT], ids=["roomy", "grown"])
@pytest.mark.parametrize("quantisation", ["none", "mixed"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_bitwise_over_prefill_decode_verify_and_rewind(
    family: str, quantisation: str, room: Room
) -> None:
    model, _ = tiny.build(family, quantisation)
    plain, counter = kv.factory(model), Counter()
    done = applied("in_place_kv", plain, counter)
    other = HYBRID.get(family)
    assert done.kinds == ({"KVCache": 2, other: 2} if other else {"KVCache": 4})
    assert (f"2 of 4 layers are not written in place: {other} from layer 0" == done.note) is bool(
        other
    )
    assert same(logits(model, plain, room), logits(model, done.factory, room))
    layers = done.kinds["KVCache"]
    replays = family.startswith("qwen3_5")
    assert counter.runs == layers * (2 + STEPS + 1 + replays + 2)
    assert counter.more.get("grown", 0) == (layers if room is SHORT else 0)


def test_a_pass_allocates_nothing_that_grows_with_the_capacity() -> None:
    model = build()
    little, large = (measured(model, rows, 200) for rows in (1024, 8192))
    # The same work in a buffer of eight times the rows; the allocator rounds, so not to the byte.
    assert abs(large["verify at 200, in place"] - little["verify at 200, in place"]) < 20_000
    assert abs(large["write, in place"] - little["write, in place"]) < 20_000
    # The gauge sees what the plain cache allocates when it grows.
    assert large["write, plain"] > 4 * little["write, plain"] > 100_000
    for what in ("decode", "verify"):
        assert large[f"{what}, in place"] < large[f"{what}, plain"]


def test_a_view_that_outlives_its_pass_makes_the_next_write_copy() -> None:
    cache = filled(factories(build())["in place"], 1024, 2048)

    def grown_by_a_write() -> int:
        before = mx.get_active_memory()
        write(cache, VERIFY)
        return mx.get_active_memory() - before

    assert grown_by_a_write() < 1000
    view = cache[0].keys[..., :4, :]
    mx.eval(view)
    assert grown_by_a_write() >= cache[0].keys.nbytes, "the view keeps the old buffer alive"
    del view
    assert grown_by_a_write() < 1000


def test_the_room_is_allocated_at_once_and_no_more_of_the_answer_than_ahead() -> None:
    model, _ = synthetic.build("tiny-llama")
    done = applied("in_place_kv", kv.factory(model), Counter(), ahead="256")
    cache = done.factory(Room(10, 1000))
    model(mx.arange(4)[None], cache=cache)
    assert cache[0].keys.shape[2] == 266
    assert cache[0].keys_and_values()[0].shape[2] == 4
    model(mx.arange(270)[None], cache=cache)
    assert cache[0].keys.shape[2] == 266 + 256


def broken(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    honest: Any = module.in_place_class()

    class Broken(honest):
        def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
            if fault == "values for keys":
                return super().update_and_fetch(values, keys)
            if fault == "a row too early" and self.offset:
                self.offset -= 1
            return super().update_and_fetch(keys, values)

        def trim(self, n: int) -> int:
            return n if fault == "nothing given back" else super().trim(n)

        def _grow(self) -> None:
            super()._grow()
            if fault == "lost when grown":
                self.keys = mx.zeros_like(self.keys)

    monkeypatch.setattr(module, "in_place_class", lambda: Broken)


FAULTS = ["values for keys", "a row too early", "nothing given back", "lost when grown"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_the_plain_cache_stays(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, fault)
    model, _ = synthetic.build("tiny-llama")
    board, factory = on_board(model, "in_place_kv")
    position = board.positions["in_place_kv"]
    assert position.state == "declined"
    assert "parity probe failed" in str(position.reason)
    assert type(factory(ROOMY)[0]).__name__ == "KVCache"
    with pytest.raises(SwitchRefused, match="required"):
        on_board(model, "in_place_kv", required=True)


def mixed(room: Room) -> list[Any]:
    caches = lm.caches()
    return [caches.KVCache(), caches.ArraysCache(2), caches.RotatingKVCache(8), caches.KVCache()]


def test_only_plain_entries_are_replaced_and_the_others_are_named() -> None:
    done = applied("in_place_kv", mixed, Counter())
    told = done.coverage()
    assert (told["fused"], told["eligible"], told["layers"]) == (2, 2, 4)
    assert told["classes"]["RotatingKVCache"] == {"eligible": 0, "fused": 0}
    others = "ArraysCache from layer 1, RotatingKVCache from layer 2"
    assert done.note == f"2 of 4 layers are not written in place: {others}"
    kinds = [type(entry).__name__ for entry in done.factory(ROOMY)]
    assert kinds == ["InPlaceKVCache", "ArraysCache", "RotatingKVCache", "InPlaceKVCache"]


def test_no_plain_entry_at_all_declines_with_the_layer_and_its_class() -> None:
    with pytest.raises(
        Declined, match="no layer has a plain KVCache: RotatingKVCache from layer 0"
    ):
        applied("in_place_kv", lambda room: [lm.caches().RotatingKVCache(8)], Counter())


def test_packed_rows_are_smaller_near_the_plain_logits_and_named_lossy() -> None:
    model, _ = synthetic.build("tiny-qwen3")
    board, factory = on_board(model, "quantized_kv:bits=8,group=32")
    told = board.positions["quantized_kv"].told()
    assert (told["state"], told["exactness"]) == ("armed", "lossy")
    assert told["coverage"]["classes"] == {"KVCache": {"eligible": 4, "fused": 4}}
    plain, packed = kv.factory(model), Counter()
    before, after = logits(model, plain, ROOMY), logits(model, factory, ROOMY)
    worst = max(mx.abs(old - new).max().item() for old, new in zip(before, after, strict=True))
    assert 0 < worst < 0.1 * mx.abs(before[0]).max().item()
    assert packed.runs == 0 and board.positions["quantized_kv"].counter.runs > 0
    caches = plain(ROOMY), factory(ROOMY)
    for cache in caches:
        mx.eval(model(mx.arange(64)[None], cache=cache))
    assert caches[1][0].nbytes < 0.4 * caches[0][0].nbytes


@pytest.mark.parametrize(
    ("shape", "asked", "says"),
    [
        ("llama", "64", "layer 0 has heads of 32 numbers, which groups of 64 do not divide: "
         "ask for quantized_kv:group=32"),
        ("gemma3", "128", "layer 1 has heads of 32 numbers, which groups of 128 do not divide: "
         "ask for quantized_kv:group=32"),
        ("qwen2", "32", "layer 0 has heads of 16 numbers, which groups of 32 do not divide: "
         "no group of 32, 64, 128 does, so leave quantized_kv off for this model"),
    ],
)  # fmt: skip
def test_heads_that_the_group_does_not_divide_decline_with_layer_width_and_what_to_do(
    shape: str, asked: str, says: str
) -> None:
    model, _ = synthetic.build(f"tiny-{shape}")
    board, factory = on_board(model, f"quantized_kv:group={asked}")
    position = board.positions["quantized_kv"]
    assert (position.state, position.reason) == ("declined", says)
    assert "InPlace" not in "".join(type(entry).__name__ for entry in factory(ROOMY))
    with pytest.raises(SwitchRefused, match="groups of"):
        on_board(model, f"quantized_kv:group={asked}", required=True)


def test_keys_and_values_of_two_widths_need_a_group_that_divides_both() -> None:
    assert quantized_kv.misfit((128, 64), 64) is None
    told = str(quantized_kv.misfit((192, 128), 128))
    assert "heads of 128 and 192 numbers" in told and told.endswith("quantized_kv:group=64")


def test_two_cache_switches_are_both_probed_where_the_first_is_found_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch, "values for keys")
    model, _ = synthetic.build("tiny-qwen3")
    board, factory = on_board(model, "in_place_kv", "quantized_kv:group=32")
    assert "parity probe failed" in str(board.positions["in_place_kv"].reason)
    assert (board.positions["quantized_kv"].state, board.positions["quantized_kv"].reason) == (
        "armed",
        None,
    )
    assert type(factory(ROOMY)[0]).__name__ == "CountingKVCache"


def test_of_two_cache_switches_the_second_finds_nothing_left_and_says_so() -> None:
    model, _ = synthetic.build("tiny-qwen3")
    board, _ = on_board(model, "quantized_kv:group=32", "in_place_kv")
    assert board.positions["in_place_kv"].state == "armed"
    assert "InPlaceKVCache from layer 0" in str(board.positions["quantized_kv"].reason)
