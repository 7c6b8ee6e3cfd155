"""Local folders and synthetic shapes load to the same model, in the format that was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from tokenizers import Tokenizer, models, pre_tokenizers

from switchboard.board import Board
from switchboard.errors import ModelError
from switchboard.load import Loaded, load
from switchboard.models import resolve
from switchboard.sources import synthetic
from switchboard.text import byte_alphabet


def loaded(name: str, format: str = "auto") -> Loaded:
    return load(resolve(name), format, Board((), {}))


def write_folder(folder: Path, shape: str) -> None:
    """An MLX folder as mlx-lm writes it."""
    model, config = synthetic.build(shape)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    if shape.endswith("-q4"):
        config = {**config, "quantization": {"group_size": 32, "bits": 4}}
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": 511}))
    vocabulary = {char: byte for char, byte in byte_alphabet().items()}
    vocabulary |= {f"x{place}": place for place in range(256, 512)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"chat_template": "{{ messages[0]['content'] }}", "eos_token": {"content": "x300"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("shape", ["tiny-qwen3", "tiny-llama-q4"])
def test_a_local_folder_is_the_model_that_was_written(tmp_path: Path, shape: str) -> None:
    write_folder(tmp_path, shape)
    here = loaded(f"path:{tmp_path}", "float32")
    there = loaded(f"synthetic:{shape}", "float32")
    ids = mx.arange(9)[None]
    assert mx.array_equal(here.model(ids), there.model(ids)).item()
    assert here.text.eos == (511, 300)
    assert here.text.encode("hi ") == [104, 105, 32]
    assert here.text.chat([{"role": "user", "content": "hello"}]) == "hello"
    assert here.parameters == there.parameters


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        resolve(f"path:{tmp_path}")


def test_formats() -> None:
    assert loaded("synthetic:tiny-llama-q4", "quantized").format == "q4-g32"
    assert loaded("synthetic:tiny-llama-q4", "float32").format == "float32"
    assert loaded("synthetic:tiny-llama-mixed", "quantized").format == "q4-g32+q8-g32"
    with pytest.raises(ModelError, match="--format quantized"):
        loaded("synthetic:tiny-llama", "quantized")


def test_dequantised_weights_give_the_quantised_models_answer() -> None:
    ids = mx.arange(9)[None]
    plain = loaded("synthetic:tiny-qwen2-q4", "float32").model(ids)
    packed = loaded("synthetic:tiny-qwen2-q4", "quantized").model(ids)
    assert mx.abs(plain - packed).max().item() < 1e-4


def test_a_synthetic_model_is_the_same_every_time_and_says_what_it_is() -> None:
    source = resolve("synthetic:tiny-llama")
    assert source.synthetic
    assert source.digest == resolve("synthetic:tiny-llama").digest
    assert source.digest != resolve("synthetic:tiny-llama-q4").digest
    one, two = loaded("synthetic:tiny-llama"), loaded("synthetic:tiny-llama")
    ids = mx.arange(5)[None]
    assert mx.array_equal(one.model(ids), two.model(ids)).item()
    assert one.parameters == loaded("synthetic:tiny-llama-q4", "quantized").parameters
