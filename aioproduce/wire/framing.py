"""Splits a stream of bytes into Kafka's frames: a 4-byte big-endian length, then that many bytes.

Used by `core.cluster.broker_connection`, which passes on the chunks that the socket returns.

1. A frame that lies whole in one chunk is never copied: the result is a view of the chunk. A frame that spans
   chunks is copied once. The cost is linear in the bytes, however they are split into chunks.
2. An announced length allocates nothing: memory grows only with the bytes received.
3. A length that is negative or above the limit makes the stream unusable. The complete frames before it are
   returned; after that, every call raises the same ProtocolError.
"""

from __future__ import annotations

from typing import Final

from aioproduce.errors import ProtocolError

_LENGTH_SIZE: Final = 4


class FrameReader:
    r"""Collects chunks and returns the complete frames.

    Args:
        max_frame_size: The longest frame to accept, in bytes without the length field.

    Example:
        >>> [bytes(frame) for frame in FrameReader(100).feed(b"\0\0\0\2ab\0\0\0\1")]
        [b'ab']
    """

    __slots__ = ("_error", "_max_frame_size", "_partial", "_partial_size")

    def __init__(self, max_frame_size: int) -> None:
        self._max_frame_size = max_frame_size
        # A frame that spans chunks, its length included; `_partial_size` is 0 until the length is known.
        self._partial = bytearray()
        self._partial_size = 0
        self._error: ProtocolError | None = None

    @property
    def buffered(self) -> int:
        """The number of bytes held of an incomplete frame."""
        return len(self._partial)

    @property
    def error(self) -> ProtocolError | None:
        """What is wrong with the stream; the next `feed()` raises it."""
        return self._error

    def feed(self, data: bytes) -> list[memoryview]:
        """Add the next bytes and return the frames that they complete, without their lengths.

        Args:
            data: The bytes. They must not change afterwards: the frames may be views of them.

        Raises:
            ProtocolError: If a length is hostile. If this call completed frames before it, it returns them and
                sets `error`, and the next call raises.
        """
        if self._error is not None:
            raise self._error
        frames: list[memoryview] = []
        try:
            at = self._feed_partial(data, frames) if self._partial else 0
            self._cut(data, at, frames)
        except ProtocolError as error:
            self._error = error
            self._partial = bytearray()
            if not frames:
                raise
        return frames

    def _feed_partial(self, data: bytes, frames: list[memoryview]) -> int:
        """Complete the frame that earlier chunks began, and return how many bytes of `data` that used."""
        partial = self._partial
        at = 0
        if not self._partial_size:
            at = _LENGTH_SIZE - len(partial)
            partial += data[:at]
            if len(partial) < _LENGTH_SIZE:
                return len(data)
            self._partial_size = _LENGTH_SIZE + self._checked(int.from_bytes(partial, "big", signed=True))
        end = at + self._partial_size - len(partial)
        # Without the view, a large chunk that follows a small tail would be copied twice.
        partial += memoryview(data)[at:end]
        if end > len(data):
            return len(data)
        frames.append(memoryview(partial)[_LENGTH_SIZE:])
        self._partial = bytearray()
        self._partial_size = 0
        return end

    def _cut(self, data: bytes, at: int, frames: list[memoryview]) -> None:
        """Append the frames that lie whole in `data` from `at` on, and keep the rest."""
        size = len(data)
        view = memoryview(data)
        while size - at >= _LENGTH_SIZE:
            length = self._checked(int.from_bytes(view[at : at + _LENGTH_SIZE], "big", signed=True))
            end = at + _LENGTH_SIZE + length
            if end > size:
                self._partial_size = _LENGTH_SIZE + length
                break
            frames.append(view[at + _LENGTH_SIZE : end])
            at = end
        if at < size:
            self._partial += view[at:]

    def _checked(self, length: int) -> int:
        if 0 <= length <= self._max_frame_size:
            return length
        raise ProtocolError(
            f"the broker announced a frame of {length} bytes, but the limit is {self._max_frame_size}; "
            + _remedy(length)
        )


def _remedy(length: int) -> str:
    """Guess from the first four bytes which other protocol the port uses."""
    first = length.to_bytes(4, "big", signed=True)
    if first[0] in (0x14, 0x15, 0x16) and first[1] == 0x03:
        return "it answers TLS: set security.protocol to SSL or SASL_SSL, or use its plaintext port"
    if first.startswith(b"HTTP"):
        return "it answers HTTP: check host and port in bootstrap.servers"
    return "check that host and port in bootstrap.servers are a Kafka listener"
