"""The one file that looks at both packages: what switchboard serves is what launcher and client expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from battery.bench import probe
from battery.bench.backends import load_backend
from battery.bench.client import Client
from battery.bench.judge import followed, outcome
from battery.bench.launch import Server
from battery.ledger.arm import Arm, load_arm

ARMS = Path(__file__).parents[1] / "arms"
MESSAGES = [
    {"role": "system", "content": "x"},
    {"role": "user", "content": "one two three one two three one two"},
]


def body(**changes: object) -> dict[str, object]:
    asked = {
        "model": "synthetic:tiny-llama",
        "messages": MESSAGES,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sampler = {"temperature": 0.7, "top_p": 0.95, "seed": 7, "max_tokens": 12, "min_tokens": 12}
    return {**asked, **sampler, **changes}


@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_an_arm_of_this_repository_is_engaged_on_a_tiny_model(name: str) -> None:
    pytest.importorskip("mlx.core", reason="switchboard needs the extra mlx")
    committed = load_arm(name, ARMS)
    arm = Arm(
        name=name, backend="switchboard", model="synthetic:tiny-llama", switches=committed.switches
    )
    with (
        Server(arm, load_backend("switchboard"), None, 60, 10) as server,
        Client(server.url) as client,
    ):
        assert client.post_json("/admin/memory/reset_peak")[0] == 200
        done = client.stream("/v1/chat/completions", body(), deadline_s=60)
        assert done.outcome == "ok", done.reason
        status, health = client.get_json("/health")
        assert status == 200
        found = outcome.engagement(arm, server.ready, health)
        assert found.verdict == "engaged", found.reason
        assert {switch.name for switch in found.switches if switch.asked} == set(arm.asked)
        assert isinstance(health["memory"]["peak"], int)
        count = client.post_json("/tokenize", {"messages": MESSAGES})[1]["count"]
    trace = done.trace
    assert trace.count_source == "server" and trace.completion_tokens == 12
    assert trace.prompt_tokens == count
    assert outcome.cold(trace, "").value == "cold"
    asked = {
        key: body()[key] for key in ("temperature", "top_p", "seed", "max_tokens", "min_tokens")
    }
    assert outcome.honoured(asked, trace.sampler)[0] == "honoured"


def test_a_forced_answer_is_followed_and_a_free_one_is_not_taken_for_it() -> None:
    pytest.importorskip("mlx.core", reason="switchboard needs the extra mlx")
    given = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]
    arm = Arm(
        name="C",
        backend="switchboard",
        model="synthetic:tiny-llama",
        switches={"prompt_lookup": {"adaptive": False}},
    )
    with (
        Server(arm, load_backend("switchboard"), None, 60, 10) as server,
        Client(server.url) as client,
    ):
        forced = body(**{followed.FIELD: given})
        done = client.stream("/v1/chat/completions", forced, deadline_s=60)
        free = client.stream("/v1/chat/completions", body(ignore_eos=True), deadline_s=60)
        assert outcome.engagement(arm, server.ready, client.get_json("/health")[1]).switches
    assert done.outcome == "ok" == free.outcome
    assert followed.strayed(given, done) is None and done.token_ids == tuple(given)
    asked = {"max_tokens": 12, "seed": 7, followed.FIELD: len(given)}
    assert outcome.honoured(asked, done.trace.sampler, done.trace)[0] == "honoured"
    assert (done.trace.timings or {})["accepted"] > 0, "drafts are held against the given text"
    assert "followed 0" in (followed.strayed(given, free) or "")
    del asked[followed.FIELD]
    assert outcome.honoured(asked, free.trace.sampler, free.trace)[0] == "honoured"
    assert outcome.honoured(asked, done.trace.sampler, done.trace)[0] == "changed"


def test_the_probe_reads_a_running_switchboard() -> None:
    pytest.importorskip("mlx.core", reason="switchboard needs the extra mlx")
    arm = Arm(name="A", backend="switchboard", model="synthetic:tiny-llama")
    with Server(arm, load_backend("switchboard"), None, 60, 10) as server:
        spoke: list[probe.Look] = []
        # a model of random weights may draw the end of the text first, and then there is no answer
        for _ in range(40):
            one = probe.look(f"{server.url}/v1", max_tokens=6, prompt="one two")
            spoke += [one] if one.text else []
            if len(spoke) == 2:
                break
        clamped = probe.look(f"{server.url}/v1", max_tokens=10_000_000)
    assert len(spoke) == 2
    for one in spoke:
        assert (one.outcome, one.cold, one.exit_code) == ("ok", "cold", 0), one.reason
        assert one.token_count_source == "server" and one.usage.cached_tokens == 0
        assert one.evidence["model"] == "synthetic:tiny-llama"
        assert (one.usage.completion_tokens or 0) <= 6 and one.metrics.ttft_s
    assert (clamped.outcome, clamped.exit_code) == ("error", 4)  # no more than its context holds
    assert "max_tokens: asked 10000000, " in (clamped.reason or "")


def test_a_kill_switch_in_the_environment_makes_the_arm_disengaged() -> None:
    pytest.importorskip("mlx.core", reason="switchboard needs the extra mlx")
    arm = Arm(
        name="B",
        backend="switchboard",
        model="synthetic:tiny-llama",
        switches={"fused_qkv": True},
        env={"SWITCHBOARD_FUSED_QKV": "0"},
    )
    with (
        Server(arm, load_backend("switchboard"), None, 60, 10) as server,
        Client(server.url) as client,
    ):
        assert client.stream("/v1/chat/completions", body(), deadline_s=60).outcome == "ok"
        found = outcome.engagement(arm, server.ready, client.get_json("/health")[1])
    assert found.verdict == "disengaged" and "fused_qkv: asked for, but its state" in found.reason


LONG = "Write a long letter about lighthouses, storms, ropes and the sea. " * 3


def test_a_prompt_cache_is_seen_as_warm_by_the_probe_and_by_the_rule_of_cells() -> None:
    pytest.importorskip("mlx.core", reason="switchboard needs the extra mlx")
    arm = Arm(
        name="A",
        backend="switchboard",
        model="synthetic:tiny-llama",
        switches={"prompt_cache": True},
    )
    asked = body(messages=[{"role": "user", "content": LONG}])
    with (
        Server(arm, load_backend("switchboard"), None, 60, 10) as server,
        Client(server.url) as client,
    ):
        seen = [client.stream("/v1/chat/completions", asked, deadline_s=60) for _ in range(2)]
        health = client.get_json("/health")[1]
        assert outcome.engagement(arm, server.ready, health).verdict == "engaged"
        cleared = client.post_json("/admin/cache/clear")
        again = client.stream("/v1/chat/completions", asked, deadline_s=60)
        looks = [probe.look(f"{server.url}/v1", max_tokens=6, prompt=LONG * 2) for _ in range(2)]
    assert [outcome.cold(one.trace, "").value for one in (*seen, again)] == ["cold", "warm", "cold"]
    assert seen[1].trace.cached_tokens == (seen[1].trace.prompt_tokens or 0) - 1
    assert seen[0].text == again.text
    assert cleared == (200, {"slots": 1, "bytes": health["memory"]["prompt_cache"]})
    # The first look goes on from what the last cell left, as a client would.
    assert [one.outcome for one in looks] == ["warm", "warm"]
    assert [one.exit_code for one in looks] == [4, 4]
    assert "the prefill was not cold" in (looks[1].reason or "")
