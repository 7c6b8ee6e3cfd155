"""A model that can be switched between the chain and both kernels."""

from __future__ import annotations

import time
from typing import Any

import mlx.core as mx

from benchmarks.epilogue_gpu.plan import ARMS
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.epilogue import kernel, probe
from switchboard.epilogue.kernel import Geometry
from switchboard.errors import Declined
from switchboard.load import load
from switchboard.models import resolve
from switchboard.registry import Counter
from switchboard.sampler import Sampling
from switchboard.switches.fused_epilogue import Options, put_on

WARM = 8
GREEDY = Sampling(temperature=0.0, ignore_eos=True)


class Arms:
    """One model whose attentions can be switched between the chain and both kernels, by class alone."""

    def __init__(self, name: str, joined: bool) -> None:
        switches = ["fused_qkv", "fused_gate_up"] if joined else []
        self.loaded = load(resolve(name), "auto", Board(parse_asked(switches, []), {}))
        self.model = self.loaded.model
        self.told: dict[str, Any] = {}
        self.counter = Counter()
        self._plain = self._classes()
        self._arms = {"chain": self._plain}
        for way in ARMS[1:]:
            started = time.perf_counter()
            try:
                done = put_on(self.model, Options(kv=way), self.counter, kernel.launch)
            except Declined as declined:
                self.told[way] = {"declined": str(declined)}
                continue
            self._arms[way] = self._classes()
            done.undo()
            self.told[way] = {
                "fused": done.fused, "eligible": done.eligible, "note": done.note,
                "load_s": round(time.perf_counter() - started, 2),
            }  # fmt: skip
        self.names = tuple(self._arms)
        q = self.model.layers[0].self_attn.q_proj
        module = q._joint.product if hasattr(q, "_joint") else q
        self.dtype = module.scales.dtype if "scales" in module else module.weight.dtype

    def _classes(self) -> list[tuple[Any, type]]:
        return [(layer.self_attn, type(layer.self_attn)) for layer in self.model.layers]

    def turn(self, arm: str) -> None:
        """Switch to an arm."""
        for attention, kind in self._arms[arm]:
            attention.__class__ = kind

    def filled(self, context: int) -> list[Any]:
        """Caches with `context` random tokens."""
        attention = self.model.layers[0].self_attn
        size = attention.rope.dims
        shape = Geometry(
            attention.n_heads, attention.n_kv_heads, size, False, 1e4, 1.0, (0, 0, 0), False, False
        )
        caches = [probe.filled(shape, context, self.dtype) for _ in self.model.layers]
        mx.eval([entry.keys for entry in caches], [entry.values for entry in caches])
        return caches
