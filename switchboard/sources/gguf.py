"""Read a llama GGUF file: weights under mlx-lm's names, the configuration, and the tokenizer in its metadata.

MLX keeps Q4_0, Q4_1 and Q8_0 as they are stored, in groups of 32. llama.cpp stores the rows of q and k permuted for
its own rotary layout; that is undone by asking for the traditional one (`rope_traditional`). The wrong layout still
answers simple questions, so the tests compare perplexity.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx

from switchboard.errors import ModelError
from switchboard.text import Text, from_byte_level_bpe

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GROUP = 32
SPLITS_DIGITS = {"smollm": True, "gpt-2": False, "default": False}


def read(path: Path) -> tuple[dict[str, mx.array], dict[str, Any], dict[str, Any]]:
    """Weights under mlx-lm's names, the configuration for mlx-lm, and the raw metadata."""
    try:
        read_back: Any = mx.load(str(path), format="gguf", return_metadata=True)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{path}: not a GGUF file that MLX can read ({error})") from error
    stored, metadata = read_back
    family = metadata.get("general.architecture")
    if family != "llama":
        raise ModelError(f"{path}: architecture '{family}'; GGUF files of llama only can be read")
    weights = {_renamed(name, path): array for name, array in stored.items()}
    return weights, _configuration(metadata, weights, path), metadata


def _renamed(name: str, path: Path) -> str:
    parts = name.split(".")
    prefix = ""
    if parts[0] == "blk":
        prefix = f"model.layers.{parts[1]}."
        parts = parts[2:]
    if parts[0] not in NAMES:
        raise ModelError(f"{path}: tensor '{name}' has no place in a llama model")
    return f"{prefix}{NAMES[parts[0]]}.{parts[1]}"


def _configuration(
    metadata: dict[str, Any], weights: dict[str, mx.array], path: Path
) -> dict[str, Any]:
    def number(key: str) -> Any:
        if key not in metadata:
            raise ModelError(f"{path}: metadata has no {key}")
        return metadata[key].item()

    if "llama.rope.scaling.type" in metadata:
        raise ModelError(f"{path}: scaled rotary positions in a GGUF file are not supported")
    return {
        "model_type": "llama",
        "hidden_size": number("llama.embedding_length"),
        "num_hidden_layers": number("llama.block_count"),
        "intermediate_size": number("llama.feed_forward_length"),
        "num_attention_heads": number("llama.attention.head_count"),
        "num_key_value_heads": number("llama.attention.head_count_kv"),
        "rms_norm_eps": number("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": number("llama.rope.freq_base") if "llama.rope.freq_base" in metadata else 1e4,
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "max_position_embeddings": number("llama.context_length"),
        "rope_traditional": True,
        "tie_word_embeddings": "lm_head.weight" not in weights,
    }


def quantisation(weights: dict[str, mx.array], module: str) -> dict[str, int] | None:
    """Bits and group of one stored matrix, from its shapes; None for a plain one."""
    scales = weights.get(f"{module}.scales")
    if scales is None:
        return None
    columns = scales.shape[-1] * GROUP
    return {"group_size": GROUP, "bits": weights[f"{module}.weight"].shape[-1] * 32 // columns}


def text(metadata: dict[str, Any], path: Path) -> Text:
    """The tokenizer and the chat template that the file carries."""
    kind, split = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2" or split not in SPLITS_DIGITS:
        raise ModelError(
            f"{path}: tokenizer {kind}/{split}; byte-level BPE with {sorted(SPLITS_DIGITS)}"
        )
    tokens = metadata["tokenizer.ggml.tokens"]
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    eos = [int(metadata["tokenizer.ggml.eos_token_id"].item())]
    # A base model ends a text with <|endoftext|> even where its chat turns end otherwise.
    eos += [i for i, token in enumerate(tokens) if token == "<|endoftext|>" and i not in eos]
    marks = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    return from_byte_level_bpe(
        tokens=tokens,
        merges=metadata["tokenizer.ggml.merges"],
        special=[token for token, kind in zip(tokens, kinds, strict=True) if kind == 3],
        digits=SPLITS_DIGITS[split],
        eos=eos,
        template=metadata.get("tokenizer.chat_template"),
        names={
            f"{name}_token": tokens[int(one.item())]
            for name, one in marks.items()
            if one is not None
        },
    )
