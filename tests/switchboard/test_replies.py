"""Events as bytes: one document a line, whatever the text holds."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from switchboard.replies import sse


@given(st.text() | st.text('\x00\n\r\x0b\x0c\x1c\x85\u2028\u2029 \\"u'))
def test_an_event_is_one_line_for_every_reader_of_lines(text: str) -> None:
    event = sse({"text": text})
    assert event.endswith(b"\n\n")
    (line,) = event.decode()[:-2].splitlines()
    assert json.loads(line.removeprefix("data: ")) == {"text": text}
