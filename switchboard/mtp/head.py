"""One multi-token head: from a hidden state and the token after it to the hidden state that the token after that is in.

    x = fc([norm_e(embedding of token i+1), norm_h(hidden state i)])
    x = decoder layer with full attention over all such x so far
    hidden state i+1, as foreseen = norm(x); the target's own output matrix makes logits of it

The hidden state is the one behind the model's final norm, the same that its output matrix reads. That, the order in
`fc` (embedding first), and going on with the head's own normed output where a second guess is made, are as vLLM's
qwen3_5_mtp and qwen3_next_mtp have them; public engines that took the state before the norm found fewer guesses
accepted, and nothing else that would have told.

The layer is built by mlx-lm's own class from the target's arguments, so a new variant of it needs nothing here. Fits
models whose layers are told apart by `is_linear` (qwen3_5, qwen3_5_moe, qwen3_next). Embedding and output matrix are
the target's and are looked up at every call, as a switch may put others in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import RMSNorm
from mlx.nn.layers.quantized import quantize

from switchboard.drafter import plain_class
from switchboard.errors import Declined


class Head(Module):
    """The modules under `mtp.`, by the names that checkpoints give them."""

    def __init__(self, layer: Any, width: int, eps: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pre_fc_norm_embedding = RMSNorm(width, eps=eps)
        self.pre_fc_norm_hidden = RMSNorm(width, eps=eps)
        self.fc = Linear(2 * width, width, bias=False)
        self.layers = [layer]
        self.norm = RMSNorm(width, eps=eps)

    def __call__(self, embedded: mx.array, hidden: mx.array, cache: Any) -> mx.array:
        """The hidden states foreseen, a row for each; batch, rows and width as those of the two inputs."""
        both = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)]
        x: Any = self.fc(mx.concatenate(both, axis=-1))
        mask = cache.make_mask(x.shape[1], window_size=None, return_array=False)
        made: mx.array = self.norm(self.layers[0](x, mask, cache))
        return made


class Ends:
    """What a head shares with its target: the embedding before it and the output matrix behind it."""

    def __init__(self, model: Any) -> None:
        self.owner: Any = getattr(model, "language_model", model)
        self.inner: Any = getattr(self.owner, "model", None)
        if self.inner is None or "embed_tokens" not in self.inner or "norm" not in self.inner:
            raise Declined(f"{type(model).__name__} is no model whose multi-token heads are known")

    def embed(self, ids: mx.array) -> mx.array:
        """The embedding of tokens, a row each, as a batch of one."""
        rows: mx.array = self.inner.embed_tokens(ids[None])
        return rows

    def logits(self, hidden: mx.array) -> mx.array:
        """Logits of hidden states in a batch of one, a row each."""
        if "lm_head" in self.owner:
            rows: mx.array = self.owner.lm_head(hidden)[0]
        else:
            rows = self.inner.embed_tokens.as_linear(hidden)[0]
        return rows


def blank(model: Any) -> Head:
    """The head of a model with weights that are not evaluated yet; Declined where the model has none that is known."""
    ends = Ends(model)
    args = getattr(ends.owner, "args", None)
    place = next(
        (at for at, one in enumerate(model.layers) if not getattr(one, "is_linear", True)), None
    )
    if args is None or place is None:
        family = getattr(args, "model_type", type(model).__name__)
        raise Declined(
            f"no head is known for {family}: its layers are not told apart by is_linear, as those of qwen3_5, "
            "qwen3_5_moe and qwen3_next are"
        )
    layer = plain_class(model.layers[place])(args, place)
    return Head(layer, args.hidden_size, args.rms_norm_eps)


def fill(head: Head, weights: Mapping[str, mx.array], mode: str) -> None:
    """Give a head its stored weights; a matrix that is stored packed becomes a packed one. Declined where one misfits.

    Bits and group follow from the shapes: a head is often packed in another way than the model beside it.
    """
    others = sorted({name.split(".")[1] for name in weights if name.startswith("layers.")} - {"0"})
    if others:
        raise Declined(
            f"the heads have layers {', '.join(['0', *others])}; what runs here is one, applied again for each further "
            "guess"
        )

    def packed(path: str, module: Any) -> bool | dict[str, Any]:
        scales = weights.get(f"{path}.scales")
        if scales is None or not hasattr(module, "to_quantized"):
            return False
        width, words = module.weight.shape[-1], weights[f"{path}.weight"].shape[-1]
        return {
            "group_size": width // scales.shape[-1],
            "bits": words * 32 // width,
            "mode": mode,
        }

    try:
        quantize(head, class_predicate=packed)
        head.load_weights(list(weights.items()), strict=True)
    except (ValueError, KeyError) as error:
        told = " ".join(str(error).split())
        raise Declined(f"the heads do not fit the architecture: {told}") from error
    head.eval()
