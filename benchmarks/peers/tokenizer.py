"""A tokenizer of bytes and a text, for tools that want both before they send anything.

The server under test sends what it sends, whatever the prompt is; the peers still size prompts and count answers with a
tokenizer, and would fetch one. This one has a token per byte and nothing to fetch.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

END = "<end>"
REVISION = "0" * 40
NAME = "local/bytes"
"""The name under which `in_cache` files it."""


def _alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary: printable ones for themselves."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in kept else next(spare)) for byte in range(256)]


def write(folder: Path) -> Path:
    """tokenizer.json and tokenizer_config.json in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    added = {"id": 256, "content": END, "special": True}
    added |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    model = {
        "type": "BPE",
        "vocab": {letter: place for place, letter in enumerate([*_alphabet(), END])},
        "merges": [],
    }
    document = {"version": "1.0", "added_tokens": [added], "pre_tokenizer": level, "decoder": level}
    (folder / "tokenizer.json").write_text(json.dumps({**document, "model": model}))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**settings, "model_max_length": 10**6})
    )
    return folder


def in_cache(hub_home: Path) -> str:
    """The tokenizer in a hub cache below `hub_home`, as if it had been fetched: the name to ask for."""
    place = hub_home / "hub" / f"models--{NAME.replace('/', '--')}"
    (place / "refs").mkdir(parents=True, exist_ok=True)
    (place / "refs" / "main").write_text(REVISION)
    write(place / "snapshots" / REVISION)
    return NAME


def text(words: int = 4000) -> str:
    """Seeded prose-like words, the same every time."""
    dice = random.Random(1)
    known = [
        "river",
        "stood",
        "open",
        "while",
        "nobody",
        "counted",
        "the",
        "slow",
        "green",
        "lamps",
    ]
    return " ".join(dice.choice(known) for _ in range(words))
