from __future__ import annotations

from pathlib import Path

import pytest

from battery.ledger.arm import Arm, difference, known_arms, load_arm
from battery.ledger.errors import ArmError


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.toml").write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "A", 'backend = "switchboard"\nmodel = "m"\nenv = { API_TOKEN = "s3cret" }\n')
    write(
        tmp_path,
        "B",
        'base = "A"\nwhy = "fused"\n[switches]\nfused_qkv = true\nfused_gate_up = true\n',
    )
    write(
        tmp_path,
        "C",
        'base = "B"\n[switches]\nprompt_lookup = { ngram = 3 }\nfused_gate_up = false\n',
    )
    return tmp_path


def test_bases_are_merged_key_by_key_and_the_child_wins(folder: Path) -> None:
    arm = load_arm("C", folder)
    assert arm.asked == {"fused_qkv": {}, "prompt_lookup": {"ngram": 3}}
    assert (arm.backend, arm.model, arm.name) == ("switchboard", "m", "C")
    assert known_arms(folder) == ["A", "B", "C"]


def test_an_unknown_key_names_file_key_and_nearest(folder: Path) -> None:
    write(folder, "X", 'base = "A"\nswithces = {}\n')
    with pytest.raises(
        ArmError, match=r"X\.toml: unknown key 'swithces'; did you mean 'switches'\?"
    ):
        load_arm("X", folder)


def test_an_unknown_arm_names_the_known_ones(folder: Path) -> None:
    with pytest.raises(ArmError, match="no arm 'Z'; known: A, B, C"):
        load_arm("Z", folder)


def test_a_circle_of_bases_is_an_error(folder: Path) -> None:
    write(folder, "P", 'base = "Q"\n')
    write(folder, "Q", 'base = "P"\n')
    with pytest.raises(ArmError, match="circle: P -> Q -> P"):
        load_arm("P", folder)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("model = 3\n", "X.toml: Expected `str"),
        ("backend = 'switchboard'\n", "no 'model'"),
        ("= oops", "not valid TOML"),
        ("[switches]\nfused_qkv = 3\n", "X.toml: Expected `bool | object`"),
    ],
)
def test_a_wrong_file_says_where(folder: Path, text: str, complaint: str) -> None:
    write(folder, "X", text)
    with pytest.raises(ArmError) as raised:
        load_arm("X", folder)
    assert complaint in str(raised.value)


def test_a_path_is_not_an_arm_name(folder: Path) -> None:
    with pytest.raises(ArmError, match="use letters"):
        load_arm("../A", folder)


def test_prose_is_not_in_the_digest_and_everything_else_is(folder: Path) -> None:
    arm = load_arm("B", folder)
    write(
        folder,
        "B",
        'base = "A"\nwhy = "other words"\n[switches]\nfused_qkv = true\nfused_gate_up = true\n',
    )
    assert load_arm("B", folder).digest == arm.digest
    write(folder, "B", 'base = "A"\n[switches]\nfused_qkv = true\n')
    assert load_arm("B", folder).digest != arm.digest


def test_secrets_are_hidden_in_the_public_form(folder: Path) -> None:
    assert load_arm("A", folder).public().env == {"API_TOKEN": "<redacted>"}


def test_difference_lists_paths_with_both_values(folder: Path) -> None:
    assert difference(load_arm("A", folder), load_arm("B", folder)) == [
        ("switches.fused_gate_up", None, True),
        ("switches.fused_qkv", None, True),
    ]
    assert (
        difference(Arm(name="x", backend="b", model="m"), Arm(name="y", backend="b", model="m"))
        == []
    )
