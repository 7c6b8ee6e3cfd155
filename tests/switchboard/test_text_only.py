"""A vision-language checkpoint: refused, or served without its vision parts; images are refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from served import Engine, refused
from tokenizers import Tokenizer, models, pre_tokenizers

from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.errors import ModelError
from switchboard.load import load
from switchboard.models import resolve
from switchboard.sources import tiny
from switchboard.text import byte_alphabet

Start = Callable[..., Engine]
SIZES = {"patch_embed.proj": (32, 3, 2, 4, 4), "blocks.0.attn.qkv": (96, 32), "merger.norm": (32,)}
PLAIN = sum(mx.zeros(shape).size for shape in SIZES.values())
PACKED = 64 * 128
IMAGE = [
    {"type": "text", "text": "what is this? "},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
]


def checkpoint(folder: Path, family: str, tower: str, kind: str = "none") -> None:
    """A folder as a vision-language model is published, with a small tower beside the language model."""
    model, config = tiny.build(family, kind)
    flat = dict(tree_flatten(model.parameters()))
    weights = {f"{tower}.{name}.weight": mx.ones(shape) for name, shape in SIZES.items()}
    if kind == "q4-g32":
        packed, scales, biases = mx.quantize(mx.ones((64, 128)), group_size=32, bits=4)
        weights |= {f"{tower}.deep.weight": packed, f"{tower}.deep.scales": scales}
        weights[f"{tower}.deep.biases"] = biases
        config["quantization"] = {"group_size": 32, "bits": 4}
    for name, array in flat.items():
        # Published as transformers names it, when the tower is: language model under model., output matrix on top.
        nested = name.replace("language_model.model.", "model.language_model.")
        weights[nested.replace("language_model.lm_head", "lm_head") if "." in tower else name] = (
            array
        )
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": 511}))
    vocabulary = dict(byte_alphabet()) | {f"x{place}": place for place in range(256, 512)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(
    ("family", "tower", "kind"),
    [
        ("qwen3_vl", "model.visual", "none"),
        ("qwen3_vl", "vision_tower", "q4-g32"),
        ("qwen3_vl_moe", "model.visual", "none"),
        ("qwen3_5", "vision_tower", "none"),
    ],
)
def test_the_text_half_is_the_model_and_the_rest_is_told(
    tmp_path: Path, family: str, tower: str, kind: str
) -> None:
    checkpoint(tmp_path, family, tower, kind)
    source, asked = resolve(f"path:{tmp_path}"), "quantized" if kind != "none" else "auto"
    with pytest.raises(ModelError, match=rf"tensors such as {tower}\..*--switch text_only"):
        load(source, asked, Board((), {}))
    board = Board(parse_asked(["text_only"], []), {})
    before = mx.get_active_memory()
    loaded = load(source, asked, board)
    held = sum(array.nbytes for _, array in tree_flatten(loaded.model.parameters()))
    assert mx.get_active_memory() - before < 1.02 * held, "nothing of the tower was read"
    plain, _ = tiny.build(family, kind)
    ids = mx.arange(9)[None]
    assert mx.array_equal(loaded.model(ids), plain(ids)).item()
    more = PACKED if kind != "none" else 0
    coverage = board.positions["text_only"].told()["coverage"]
    assert coverage["parameters"] == PLAIN + more
    assert coverage["tensors"] == len(SIZES) + 3 * bool(more)
    assert (
        loaded.parameters
        == load(resolve(f"synthetic:tiny-{family}-{kind}"), asked, Board((), {})).parameters
    )


def test_killed_it_is_refused_as_before(tmp_path: Path) -> None:
    checkpoint(tmp_path, "qwen3_vl", "visual")
    board = Board(parse_asked(["text_only"], []), {"SWITCHBOARD_TEXT_ONLY": "0"})
    with pytest.raises(ModelError, match="vision-language checkpoint"):
        load(resolve(f"path:{tmp_path}"), "auto", board)


def test_over_http_an_image_is_refused_by_its_place(tmp_path: Path, start: Start) -> None:
    checkpoint(tmp_path, "qwen3_vl", "model.visual")
    engine = start("--model", f"path:{tmp_path}", "--require", "text_only")
    text = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    whole = engine.post("/tokenize", messages=[{"role": "user", "content": text}]).json()
    assert whole == engine.post("/tokenize", messages=[{"role": "user", "content": "ab"}]).json()
    messages = [{"role": "system", "content": "short"}, {"role": "user", "content": IMAGE}]
    reply = engine.post("/v1/chat/completions", messages=messages, max_tokens=4)
    assert reply.status_code == 400
    told = reply.json()["error"]
    assert "messages[1].content[1] is of type 'image_url'" in told["message"]
    assert "text_only left its vision parts out" in told["message"]
    messages[1]["content"] = text
    assert engine.post("/v1/chat/completions", messages=messages, max_tokens=4).status_code == 200
    assert engine.switch("text_only")["state"] == "engaged"


def test_a_model_without_vision_parts_declines(shared: Start) -> None:
    flags = ("--model", "synthetic:tiny-llama")
    engine = shared(*flags, "--switch", "text_only")
    told = engine.switch("text_only")
    assert (told["state"], told["reason"]) == ("declined", "the model has no vision parts")
    content = [{"type": "image", "image": "x"}]
    reply = engine.post("/v1/chat/completions", messages=[{"role": "user", "content": content}])
    assert "the model has no vision parts" in reply.json()["error"]["message"]
    status, line = refused(*flags, "--port", "0", "--require", "text_only")
    assert status == 2
    assert "no vision parts" in line
