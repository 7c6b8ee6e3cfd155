"""The program around the code: what the prompt gives, where future imports go, in which order set-up comes."""

from __future__ import annotations

from battery.quality.extract import MODULE_NAME, compose, extract

HELPED = '''from typing import List


def twice(x):
    return 2 * x


def four(x: int) -> List[int]:
    """Four times x."""
'''


def run(program: str, tests: str = "") -> dict[str, object]:
    """The namespace after a program and then its tests, each compiled apart, as a grader does it."""
    space: dict[str, object] = {"__name__": MODULE_NAME}
    for source in (program, tests):
        exec(compile(source, "program", "exec", dont_inherit=True), space)
    return space


def test_helpers_and_imports_of_the_prompt_stay_and_its_stub_goes() -> None:
    code = "def four(x: int) -> List[int]:\n    return [twice(twice(x))]\n"
    program = compose(HELPED, code, entry_point="four")
    assert program.count("def four") == 1
    run(program, "assert four(2) == [8]")
    named = compose(HELPED, "def other(x):\n    return 1\n", entry_point="four")
    assert "four" not in run(named) and "twice" in run(named)


def test_a_function_that_the_prompt_really_defines_stays() -> None:
    prompt = "def four(x):\n    return 4\n"
    assert run(compose(prompt, "y = 1\n", entry_point="four"))["y"] == 1
    run(compose(prompt, "y = 1\n", entry_point="four"), "assert four(0) == 4")


def test_a_continued_prompt_composes_to_the_prompt_and_its_body() -> None:
    found = extract("    return [twice(twice(x))]\n", None, "four", HELPED)
    assert found.code is not None
    program = compose(HELPED, found.code, entry_point="four")
    assert program.count("def four") == program.count("Four times") == 1
    run(program, "assert four(1) == [4] and four.__doc__ == 'Four times x.'")


def test_future_imports_move_to_the_top() -> None:
    code = (
        '"""A docstring."""\n# and a comment\nfrom __future__ import annotations\n'
        "from __future__ import (\n    division,\n    generators as é,\n); import math; text = 'é'\n\n"
        "def four(x: unknown) -> unknown:\n    return math.floor(x)\n"
    )
    program = compose(HELPED, code, entry_point="four")
    assert program.startswith("from __future__ import annotations\nfrom __future__ import division")
    space = run(program, "assert four(4.2) == 4")
    assert space["text"] == "é" and "é" in space
    assert run(compose("from __future__ import annotations\nx: no\n", code, entry_point="four"))


def test_a_future_import_in_a_wrong_place_stays_the_syntax_error_that_it_is() -> None:
    code = "import math\nfrom __future__ import annotations\n"
    program = compose("", code)
    try:
        compile(program, "program", "exec", dont_inherit=True)
    except SyntaxError:
        return
    raise AssertionError("Python refuses the code alone, so it must refuse the program")


def test_a_string_that_only_looks_like_a_future_import_stays() -> None:
    code = 'text = """\nfrom __future__ import annotations\n"""\n'
    assert run(compose("", code))["text"] == "\nfrom __future__ import annotations\n"


def test_set_up_follows_the_code_and_imports_follow_it() -> None:
    program = compose(
        "",
        "log = ['code']\ndef add(x):\n    return math.floor(x)",
        setup="log.append('setup')\r\nroot = 1",
        imports=["import math", "log.append('imports')"],
    )
    space = run(program, "assert add(1.5) == root")
    assert space["log"] == ["code", "setup", "imports"]


def test_the_suites_check_wins_and_main_does_not_run() -> None:
    code = "def add(x):\n    return 0\ndef check(f):\n    return None\nif __name__ == '__main__':\n    1 / 0\n"
    tests = "def check(f):\n    assert f(1)\nran = 0\ntry:\n    check(add)\nexcept AssertionError:\n    ran = True\n"
    assert run(compose("", code), tests)["ran"] is True


def test_a_prompt_in_prose_adds_nothing() -> None:
    code = "def add(x):\n    return x\n"
    assert compose("Write a function that adds.", code, entry_point="add") == compose("", code)


def test_carriage_returns_of_a_prompt_are_line_ends() -> None:
    run(
        compose(
            HELPED.replace("\n", "\r\n"), "def four(x):\n    return twice(x)\n", entry_point="four"
        )
    )
