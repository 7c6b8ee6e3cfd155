"""Server-sent events out of bytes in any chunking: the framing of a stream, and nothing of what it means.

Pure and incremental. Line ends are CR, LF and CRLF only, found on bytes: a U+2028 in the text is text, and a character
that is split over two reads is decoded only once its event is whole. Follows the WHATWG specification, 9.2.6.
"""

from __future__ import annotations

import re

import msgspec

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


class ServerEvent(msgspec.Struct, frozen=True):
    """One whole event of a stream."""

    data: str
    """Its data lines, joined by line feeds."""
    event: str = "message"
    id: str | None = None
    retry: int | None = None
    """Milliseconds."""
    broken: bool = False
    """True where the bytes were no UTF-8; `data` then holds U+FFFD that the server never wrote."""


class Parser:
    """Feed it reads as they come; it hands back the events that each read completed."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """Pieces of the line that has no end yet; a list, so that a huge event is not copied once per read."""
        self._after_cr = False
        self._first_line = True
        self._clear()

    def _clear(self) -> None:
        """Start the next event."""
        self._data: list[bytes] = []
        self._event = b""
        self._id: bytes | None = None
        self._retry: int | None = None

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that `data` completes, in order."""
        if not data:
            return []
        # A CR ends its line at once, so that the event is dated by the read that completed it; the LF of a CRLF that
        # was cut in two is dropped here.
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
            if not data:
                return []
        self._after_cr = data.endswith(b"\r")
        *whole, rest = _LINE_END.split(data)
        events: list[ServerEvent] = []
        for piece in whole:
            self._line.append(piece)
            done = self._end_line(b"".join(self._line))
            self._line.clear()
            if done is not None:
                events.append(done)
        if rest:
            self._line.append(rest)
        return events

    def close(self) -> bytes:
        """What was begun and never finished, b"" where nothing was. A blank line is what finishes an event."""
        line = b"".join(self._line)
        if self._first_line:
            line = line.removeprefix(_BOM)
        begun = [b"data: " + data for data in self._data]
        if line and not line.startswith(b":"):
            begun.append(line)
        return b"\n".join(begun)

    def _end_line(self, line: bytes) -> ServerEvent | None:
        """Take one line without its end; the event, where the line was the blank one that completes it."""
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id" and b"\0" not in value:
            self._id = value
        elif name == b"retry" and value.isdigit():
            self._retry = int(value)
        return None

    def _dispatch(self) -> ServerEvent | None:
        """The event, unless it has no data line: the specification drops those."""
        event = None
        if self._data:
            raw = b"\n".join(self._data)
            data, broken = _text(raw)
            event = ServerEvent(
                data=data,
                event=_text(self._event)[0] or "message",
                id=None if self._id is None else _text(self._id)[0],
                retry=self._retry,
                broken=broken,
            )
        self._clear()
        return event


def _text(raw: bytes) -> tuple[str, bool]:
    """(text, whether the bytes were no UTF-8)."""
    try:
        return raw.decode("utf-8"), False
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace"), True
