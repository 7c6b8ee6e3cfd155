"""Read a local MLX folder: config.json, *.safetensors, tokenizer.json and its chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from switchboard.errors import ModelError
from switchboard.text import Text, from_tokenizer


def files(folder: Path) -> list[Path]:
    """The weight files in order, or an error that says what is missing."""
    found = sorted(folder.glob("*.safetensors"))
    for needed in ("config.json", "tokenizer.json"):
        if not (folder / needed).exists():
            raise ModelError(f"{folder}: no {needed}; an MLX folder holds it beside *.safetensors")
    if not found:
        raise ModelError(f"{folder}: no *.safetensors in it")
    return found


def read(folder: Path) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Weights under the names they are stored by, and config.json."""
    weights: dict[str, mx.array] = {}
    for path in files(folder):
        weights.update(cast(dict[str, mx.array], mx.load(str(path))))
    config = json.loads((folder / "config.json").read_text())
    return weights, config


def quantisation(config: dict[str, Any], module: str) -> dict[str, Any] | None:
    """How a module is stored: its own entry in config.json, else the general one."""
    general = config.get("quantization")
    if not general:
        return None
    own = general.get(module)
    if isinstance(own, dict):
        return dict(own)
    return {key: general[key] for key in ("group_size", "bits", "mode") if key in general}


def text(folder: Path, config: dict[str, Any]) -> Text:
    """The tokenizer with its end tokens and chat template."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    count = tokenizer.get_vocab_size(with_added_tokens=True)
    tokens = [tokenizer.id_to_token(place) or "" for place in range(count)]
    added = tokenizer.get_added_tokens_decoder().values()
    special = {token.content for token in added if token.special}
    settings = _settings(folder)
    eos = config.get("eos_token_id")
    ids = list(eos) if isinstance(eos, list) else [eos] if eos is not None else []
    names = {name: word for name in SPECIAL if (word := _content(settings.get(name)))}
    named = names.get("eos_token")
    if named and (own := tokenizer.token_to_id(named)) is not None and own not in ids:
        ids.append(own)
    template_file = folder / "chat_template.jinja"
    template = (
        template_file.read_text() if template_file.exists() else settings.get("chat_template")
    )
    if isinstance(template, list):
        template = {one["name"]: one["template"] for one in template}.get("default")
    return from_tokenizer(tokenizer, tokens, special, tuple(ids), template, names)


SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


def _content(token: Any) -> str | None:
    """The text of a special token, which a tokenizer's settings hold as such or with its properties."""
    return token.get("content") if isinstance(token, dict) else token


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return json.loads(path.read_text()) if path.exists() else {}
