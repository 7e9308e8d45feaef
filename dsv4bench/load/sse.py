"""Server-sent events out of the bytes of an answer, however these were split (WHATWG HTML, 9.2.6).

Only the data of events is kept: servers of this interface name no events and need no ids.
"""

from __future__ import annotations

import codecs

_BYTE_ORDER_MARK = codecs.BOM_UTF8
_END_OF_LINE = b"\n"


class EventParser:
    """Turns chunks of bytes into the data of whole events.

    Lines end in LF, CRLF or CR. The lines of `data:` of one event are joined by LF; comments and other fields are
    dropped. An event without its empty line is none yet: `unfinished` says so at the end.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._begun = False
        self._after_return = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that `chunk` completes, in order."""
        events: list[bytes] = []
        text = self._rest + self._normal(chunk)
        if not self._begun:
            if len(text) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(text):
                self._rest = text
                return events
            self._begun = True
            text = text.removeprefix(_BYTE_ORDER_MARK)
        *lines, self._rest = text.split(_END_OF_LINE)
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        return events

    @property
    def unfinished(self) -> bool:
        """Whether the stream so far ends inside an event that holds data."""
        return bool(self._data) or self._rest.startswith(b"data")

    def _normal(self, chunk: bytes) -> bytes:
        """`chunk` with LF at the end of every line; a CR at its end may be the first half of a CRLF."""
        if self._after_return and chunk.startswith(_END_OF_LINE):
            chunk = chunk[1:]
            self._after_return = False
        if b"\r" not in chunk:
            self._after_return = self._after_return and not chunk
            return chunk
        self._after_return = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", _END_OF_LINE).replace(b"\r", _END_OF_LINE)

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
