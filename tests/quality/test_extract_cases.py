"""One answer of each kind, with the code that it holds and the rule that finds it, written out by hand."""

from __future__ import annotations

import pytest

from battery.quality.extract import Found, extract

GOOD = "def add(x, y):\n    return x + y\n"
DRAFT = "def add(x, y):\n    return x - y\n"
PROMPT = 'def add(x: int, y: int):\n    """Add two numbers."""\n'
WHOLE = PROMPT + "    total = x + y\n    return total\n"
FENCE = f"```python\n{GOOD}```\n"

FENCED = {
    "plain": FENCE,
    "prose around": f"Here it is:\n\n{FENCE}\nIt's short.\n",
    "label python3": f"```python3\n{GOOD}```",
    "label with a space": f"``` Python\n{GOOD}```",
    "label with attributes": f"```{{.python .numberLines}}\n{GOOD}```",
    "label with a file": f"```python title=add.py\n{GOOD}```",
    "label with a colon": f"```py:src/add.py\n{GOOD}```",
    "no label": f"```\n{GOOD}```",
    "unknown label": f"```solution\n{GOOD}```",
    "tildes": f"~~~python\n{GOOD}~~~",
    "tildes with a backtick behind": f"~~~python `a`\n{GOOD}~~~",
    "four backticks": f"````python\n{GOOD}````",
    "closed by more": f"```python\n{GOOD}``````",
    "closing fence indented": f"```python\n{GOOD}   ```",
    "blanks behind the closing fence": f"```python\n{GOOD}``` \t\n",
    "indented by two": "  ```python\n  def add(x, y):\n      return x + y\n  ```\n",
    "in a list": "1. Write:\n\n   ```python\n   def add(x, y):\n       return x + y\n   ```\n\n2. Run.\n",
    "on the line of the list's item": "- ```python\n  def add(x, y):\n      return x + y\n  ```\n",
    "deep in a list": "- a\n  - b\n\n    ```python\n    def add(x, y):\n        return x + y\n    ```\n",
    "in a list whose margin was forgotten": f"1. Write:\n   ```python\n{GOOD}   ```\n2. Run.\n",
    "in a quotation": "> ```python\n> def add(x, y):\n>     return x + y\n> ```\nSo it says.\n",
    "in a Markdown block": f"````markdown\n# Answer\n{FENCE}````\n",
    "under a tag": f"<answer>\n{FENCE}</answer>\n",
    "carriage returns": FENCE.replace("\n", "\r\n"),
    "lone carriage returns": FENCE.replace("\n", "\r"),
    "byte order mark": "\ufeff" + FENCE,
    "escapes of a terminal": f"\x1b[1mHere\x1b[0m\n\x1b[32m{FENCE}\x1b[0m",
    "token behind the fence": f"```python\n{GOOD}```<|im_end|>\n",
    "token below the fence": f"{FENCE}</s>",
    "token and another turn": f"```python\n{GOOD}```<|eot_id|>\nuser\nThank you\n",
    "a demonstration behind": f"{FENCE}\n```python\nprint(add(1, 2))\n```\n",
    "an importing demonstration behind": f"{FENCE}\n```python\nfrom sums import add\nadd(1, 2)\n```\n",
    "output behind": f"{FENCE}\n```text\nadd = 3\n```\n",
    "a shell before": f"```bash\nadd = python\n```\n{FENCE}",
    "a draft before": f"```python\n{DRAFT}```\nNo:\n{FENCE}",
    "a broken draft before": f"```python\ndef add(x, y:\n```\nNo:\n{FENCE}",
    "code in prose before": f"{DRAFT}\nNo, rather:\n\n{FENCE}",
    "results behind": f"{FENCE}\n```python\nadd = [3, 4]\n```\n",
    "a use that keeps the name": f"{FENCE}\n```python\nadd = add(1, 2)\nx, add = 1, 3\n```\n",
    "a formula behind that does not parse": f"{FENCE}\n```python\nadd: 3\nadd = x + y\nwhere x is one\n```\n",
    "a call under a test for main": f"{FENCE}\n```python\nif __name__ == '__main__':\n    add = 3\n```\n",
}


@pytest.mark.parametrize("name", FENCED)
def test_the_fence_that_defines_is_the_answer(name: str) -> None:
    found = extract(FENCED[name], None, "add", PROMPT)
    assert (found.code, found.rule) == (GOOD, "last defining fence")


def test_a_definition_under_another_label_comes_before_an_import_of_it() -> None:
    found = extract(
        f"```text\n{GOOD}```\n```python\nfrom sums import add\nadd(1, 2)\n```\n", None, "add"
    )
    assert (found.code, found.rule) == (GOOD, "last defining fence")


UNCLOSED = {
    "the fence": f"```python\n{GOOD}",
    "the fence, and a token": f"```python\n{GOOD}<|endoftext|>",
    "the fence, and a token on the line": f"```python\n{GOOD.rstrip()}<|im_end|>",
    "the quotation ends": "> ```python\n> def add(x, y):\n>     return x + y\n\nSo it says.\n",
}


@pytest.mark.parametrize("name", UNCLOSED)
def test_an_unclosed_fence_runs_to_the_end(name: str) -> None:
    found = extract(UNCLOSED[name], None, "add")
    assert (found.code, found.rule) == (GOOD, "last defining fence")
    assert "the fence is never closed" in found.notes


BARE = {
    "alone": GOOD,
    "prose around": f"Sure, here's add (don't worry):\n\n{GOOD}\nThis adds x and y.\n",
    "prose that parses": f"Done\nNote: this\n{GOOD}x\n- x\n42\n",
    "behind a list's number": f"1. It is\n{GOOD}",
    "between markers": f"[BEGIN]\n{GOOD}[DONE]\n",
    "marker on the line": f"[BEGIN]\n{GOOD.rstrip()} [DONE]\n",
    "only the closing marker": f"{GOOD}[DONE]",
    "a few-shot answer that goes on": f"[BEGIN]\n{GOOD}[DONE]\n\n[BEGIN]\ndef sub(x):\n    return 1\n[DONE]\n",
    "named markers": f"[PYTHON]\n{GOOD}[/PYTHON]\n",
    "under a tag": f"<answer>\n{GOOD}</answer>\n",
    "a token behind": f"{GOOD.rstrip()}</s>",
    "an indented block": "Here:\n\n    def add(x, y):\n        return x + y\n\nDone.\n",
    "text below that belongs to nothing": f"{GOOD}    It adds.\n",
    "a shorter sketch below": f"{GOOD}\nThat is, in short:\n\nadd = sum\n\nor so.\n",
    "a signature below": f"{GOOD}\nHere\n\ndef add(x, y): takes two numbers\n",
    "a foreign fence": f"{GOOD}\n```bash\npython add.py\n```\n",
    "a demonstration in a fence": f"{GOOD}\nUse it:\n```python\nprint(add(1, 2))\n```\n",
}


@pytest.mark.parametrize("name", BARE)
def test_code_without_fences_is_found_between_prose(name: str) -> None:
    found = extract(BARE[name], None, "add", PROMPT)
    assert (found.code, found.rule) == (GOOD, "bare code")


KEPT = {
    "imports, helpers, decorators": (
        "import math\nfrom functools import (\n    cache,\n)\n\nONE, TWO = 1, 2\n\n\ndef one():\n    pass\n\n\n"
        "@cache\n@other(\n1)\nasync def add(x):\n    '''Text\nat the margin (\n    '''\n    return {\n1: 2,\n}\n"
    ),
    "calls and checks": "import sys\nsys.setrecursionlimit(9)\n\n\ndef add(x):\n    return x\n\n\nassert add(1)\n",
    "compound": "try:\n    from a import add\nexcept ImportError:\n    def add(x): return x\nelse:\n    pass\n",
    "joined lines": "total = 1 + \\\n2\ndef add(x): return x; y\n",
    "comments": "# A sum\n\ndef add(x):\n    y = x\n# odd\n    return y  # it's\n# end\n",
    "fences in a docstring": 'def add(x):\n  """Add.\n\n  ```\n  add(1)\n  ```\n  """\n  return x\n',
    "tabs": "def add(x):\n\tif x:\n\t\treturn x\n\treturn 0\n",
    "assignment": "add = lambda x, y: x + y\n",
    "annotated assignment": "add: object = max\n",
    "walrus in brackets": "add, sub = max, min\n",
    "two definitions": DRAFT + "\n\n" + GOOD,
    "marker as a name": "DONE = 0\n\n\ndef add(states):\n    return states[DONE]\n",
    "token in a string": "def add(x):\n    return x.strip('<|im_end|>')\n",
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("around", ["{}", "````python\n{}````\n", "That's it (:\n\n{}\nIt's so.\n"])
def test_nothing_of_the_code_is_dropped(name: str, around: str) -> None:
    assert extract(around.format(KEPT[name]), None, "add").code == KEPT[name]


NOT_THE_ENTRY_POINT = {
    "another name": ("```python\ndef plus(x, y):\n    return x + y\n```", "last fence"),
    "a method": (
        "```python\nclass Solution:\n    def add(self, x):\n        return x\n```",
        "last fence",
    ),
    "a class": ("```python\nclass add:\n    pass\n```", "last fence"),
    "a local": ("```python\ndef plus():\n    add = 3\n    return add\n```", "last fence"),
    "a comparison": ("```python\nadd == 3\n```", "last fence"),
    "a bare method": (
        "class Solution:\n    def add(self, x):\n        return x\n",
        "bare code without the entry point",
    ),
    "a broken bare method": (
        "class Solution\n    def add(self, x):\n        return x\n",
        "no code",
    ),
    "prose": ("I would add the numbers.\n\nDone\n", "no code"),
    "indented prose that parses": ("    Done\n", "no code"),
    "nothing": ("  \n", "empty"),
    "only output": ("```text\n3\n```", "no code"),
}


@pytest.mark.parametrize("name", NOT_THE_ENTRY_POINT)
def test_what_does_not_define_the_entry_point_is_told_apart(name: str) -> None:
    answer, rule = NOT_THE_ENTRY_POINT[name]
    found = extract(answer, None, "add", PROMPT)
    assert found.rule == rule
    assert (found.code is None) == (rule in ("no code", "empty"))


BROKEN = {
    "a draft before": f"{FENCE}\nBetter:\n\n```python\ndef add(x, y)\n    return x\n```\n",
    "cut off": f"{FENCE}\nBetter:\n\n```python\ndef add(x, y):\n    return (x +",
    "no-break spaces": "```python\ndef add(x, y):\n\u00a0\u00a0\u00a0\u00a0return x + y\n```\n",
    "bare": "It is\n\ndef add(x, y:\n    return x\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_solution_that_does_not_parse_is_still_the_solution(name: str) -> None:
    found = extract(BROKEN[name], None, "add", PROMPT)
    assert found.rule.endswith("starts to define") and found.code
    with pytest.raises(SyntaxError):
        compile(found.code, "answer", "exec")


BODIES = {
    "as it stands": "    total = x + y\n    return total\n",
    "in a fence": "```python\n    total = x + y\n    return total\n```\n",
    "at the margin": "total = x + y\nreturn total\n",
    "by two": "  total = x + y\n  return total\n",
    "by tabs": "\ttotal = x + y\n\treturn total\n",
    "the first line's blanks lost": "total = x + y\n    return total\n",
    "one blank of the first line lost": "   total = x + y\n    return total\n",
    "one blank too many": "     total = x + y\n    return total\n",
    "prose around": "Here:\n\n    total = x + y\n    return total\n\nIt's done.\n",
    "a token behind": "    total = x + y\n    return total<|im_end|>",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_continues_the_prompt(name: str) -> None:
    assert extract(BODIES[name], None, "add", PROMPT) == Found(
        WHOLE, "body of the prompt", extract(BODIES[name], None, "add").notes
    )


def test_a_body_may_go_on_behind_the_function() -> None:
    answer = "    return x + y\n\n\nprint(add(1, 2))\n"
    assert extract(answer, None, "add", PROMPT).code == PROMPT + answer


def test_a_string_in_a_body_keeps_its_blanks_when_the_body_moves() -> None:
    answer = 'text = """\n  two\n"""\nreturn text\n'
    code = extract(answer, None, "add", PROMPT).code
    assert code == PROMPT + '    text = """\n  two\n"""\n    return text\n'


def test_a_body_needs_a_prompt_that_ends_with_the_stub() -> None:
    body = "    return x + y\n"
    assert extract(body, None, "add").code is None
    assert extract(body, None, "add", "Add two numbers.").code is None
    assert extract(body, None, "add", PROMPT + "\n\ndef more():\n    pass\n").code is None
    assert (
        extract(body, None, "add", "def add(x, y):\n").code == "def add(x, y):\n    return x + y\n"
    )
    assert extract(body, None, "add", WHOLE).code is None
