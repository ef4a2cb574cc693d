"""`Produced`: the records of a topic, and assertions on them whose messages show the actual records.

Created by `ClusterThread`, or by hand from `FakeCluster.records()`. It is a snapshot: later records do not change
it.

An expected key or value is bytes, text (its UTF-8), `None` (no value: a tombstone), or any object that compares
itself with bytes, such as `unittest.mock.ANY`. Numbers and containers are refused: no record equals them.
"""

from __future__ import annotations

import json as json_module
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, final, overload

if TYPE_CHECKING:
    from aioproduce.testing.fake_cluster.cluster import FakeRecord

# In failure messages: the maximum of records, and of characters of each key and value.
_SHOWN_RECORDS: Final = 10
_SHOWN_CHARACTERS: Final = 80
_NOT_JSON: Final = object()


@final
class _Anything:
    """The default of what is not compared."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Anything()


@final
class Produced(Sequence["FakeRecord"]):
    """The records of one topic: by partition, then by offset.

    Args:
        topic: Its name, for messages.
        records: The records, in that order.
        among: All topics with their numbers of records, for messages.

    Attributes:
        topic: The topic's name.

    Example:
        >>> produced = cluster.produced("orders")
        >>> produced.values
        [b'42']
        >>> produced[0].key, produced[0].partition, produced[0].offset, produced[0].headers
        (b'customer-7', 3, 0, (('trace', b'1'),))
    """

    __slots__ = ("_among", "_records", "topic")

    def __init__(
        self, topic: str, records: Iterable[FakeRecord], *, among: Mapping[str, int] | None = None
    ) -> None:
        self.topic: str = topic
        self._records = tuple(records)
        self._among = among or {}

    @overload
    def __getitem__(self, index: int) -> FakeRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Produced: ...

    def __getitem__(self, index: int | slice) -> FakeRecord | Produced:
        if isinstance(index, slice):
            return self._of(self._records[index])
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Produced):
            return self.topic == other.topic and self._records == other._records
        return NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # how Python says that it has none

    def __repr__(self) -> str:
        return f"<Produced {self.topic!r}: {_counted(len(self))}>"

    # Access

    @property
    def values(self) -> list[bytes | None]:
        """The values."""
        return [record.value for record in self._records]

    @property
    def keys(self) -> list[bytes | None]:
        """The keys."""
        return [record.key for record in self._records]

    @property
    def json(self) -> list[Any]:
        """The values, parsed as JSON.

        Raises:
            ValueError: If one is not JSON.
        """
        return [json_module.loads(record.value or b"") for record in self._records]

    def in_partition(self, partition: int) -> Produced:
        """Return the records of one partition."""
        return self._of(record for record in self._records if record.partition == partition)

    def with_key(self, key: object) -> Produced:
        """Return the records with this key, in order of sending unless partitions were added."""
        _check_expected("key", key)
        return self._of(record for record in self._records if _equals(key, record.key))

    # Asserting

    def assert_has(
        self,
        value: object = ANY,
        *,
        key: object = ANY,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None = None,
        json: object = ANY,
        partition: int | None = None,
        timestamp: int | None = None,
        count: int | None = None,
    ) -> Produced:
        """Assert that there is such a record; omitted arguments are not compared.

        Args:
            value: Its value.
            key: Its key.
            headers: Headers that it has at least, by name and value.
            json: Its value as JSON, regardless of spaces and the order of names.
            partition: Its partition.
            timestamp: Milliseconds since the epoch.
            count: The exact number of such records; `None`: at least one.

        Returns:
            The matching records.

        Raises:
            AssertionError: If there is none, or not `count`.
            TypeError: If an expected object cannot equal any key or value.
        """
        __tracebackhide__ = True
        wanted = _Wanted(value, key, headers, json, partition, timestamp)
        if count is not None and count < 0:
            raise ValueError(f"count must be 0 or more, not {count}")
        found = self._of(record for record in self._records if not wanted.differences(record))
        if (count is None and found) or count == len(found):
            return found
        if not found:
            raise AssertionError(
                f"no record of topic {self.topic!r} has {wanted}{'' if count is None else f' ({count} expected)'}\n"
                f"{self._closest(wanted)}{self._told()}"
            )
        raise AssertionError(
            f"{_counted(len(found))} of topic {self.topic!r} with {wanted}, not {count}\n{found._listed()}"
        )

    def assert_exactly(self, values: Iterable[bytes | str | None]) -> Produced:
        """Assert that the topic has exactly these values, each as often as it is given.

        Kafka keeps the order within a partition: the values of each partition must have the same order there as
        here.

        Raises:
            AssertionError: If a value is missing, too frequent, or out of order within its partition.
            TypeError: If an expected object cannot equal any value.
        """
        __tracebackhide__ = True
        expected = [_as_bytes(value) for value in values]
        there, wanted = Counter(self.values), Counter(expected)
        problems = [
            *(f"missing {_times(count)}{_short(value)}" for value, count in (wanted - there).items()),
            *(f"not expected {_times(count)}{_short(value)}" for value, count in (there - wanted).items()),
        ]
        if not problems:
            problems = [*self._out_of_order(expected)]
        if problems:
            told = "".join(f"  {problem}\n" for problem in problems[:_SHOWN_RECORDS])
            if len(problems) > _SHOWN_RECORDS:
                told += f"  ... and {len(problems) - _SHOWN_RECORDS} more\n"
            raise AssertionError(
                f"topic {self.topic!r} has not exactly the {_counted(len(expected))} expected\n"
                f"{told}{self._told()}"
            )
        return self

    def assert_empty(self) -> None:
        """Assert that there are no records.

        Raises:
            AssertionError: If there are.
        """
        __tracebackhide__ = True
        if self._records:
            raise AssertionError(
                f"{_counted(len(self))} in topic {self.topic!r}, where none should be\n{self._listed()}"
            )

    def fail_waiting(self, count: int, timeout: float) -> NoReturn:
        """Raise an AssertionError: `count` records did not arrive in time."""
        __tracebackhide__ = True
        raise AssertionError(
            f"topic {self.topic!r} has {_counted(len(self))} after {timeout:g} s, not {count}\n{self._told()}"
        )

    # Messages

    def _of(self, records: Iterable[FakeRecord]) -> Produced:
        return Produced(self.topic, records, among=self._among)

    def _out_of_order(self, expected: Sequence[bytes | None]) -> Iterable[str]:
        """Yield the values that are out of order in each partition, compared with their expected order."""
        for partition in sorted({record.partition for record in self._records}):
            rest = iter(expected)
            for record in self.in_partition(partition):
                if record.value not in rest:
                    yield (
                        f"partition {partition}: {_short(record.value)} (offset {record.offset}) comes after a "
                        "value that is expected behind it"
                    )
                    break

    def _told(self) -> str:
        """Return what the topic, or else other topics, have."""
        if self._records:
            return f"{_counted(len(self))} there:\n{self._listed()}"
        others = ", ".join(f"{name!r} ({_counted(count)})" for name, count in self._among.items() if count)
        nothing = "the topic is empty" if self.topic in self._among else "there is no such topic"
        return (
            f"{nothing}; there is something in {others}"
            if others
            else f"{nothing}, nor a record in any other"
        )

    def _listed(self) -> str:
        lines = [
            f"  partition {record.partition}, offset {record.offset}: {_described(record)}"
            for record in self._records[:_SHOWN_RECORDS]
        ]
        if len(self) > _SHOWN_RECORDS:
            lines.append(f"  ... and {len(self) - _SHOWN_RECORDS} more")
        return "\n".join(lines)

    def _closest(self, wanted: _Wanted) -> str:
        """Return how the most similar record differs, if any part of it matches."""
        if not self._records:
            return ""
        differences, nearest = min(
            ((wanted.differences(record), record) for record in self._records), key=lambda pair: len(pair[0])
        )
        if len(differences) == wanted.count > 1:
            return ""
        where = f"partition {nearest.partition}, offset {nearest.offset}"
        return f"closest is {where}:\n" + "".join(f"  {line}\n" for line in differences)


@final
class _Wanted:
    """The expected parts of a record."""

    __slots__ = ("_headers", "_json", "_key", "_partition", "_timestamp", "_value")

    def __init__(
        self,
        value: object,
        key: object,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None,
        json: object,
        partition: int | None,
        timestamp: int | None,
    ) -> None:
        _check_expected("value", value)
        _check_expected("key", key)
        if json is not ANY and value is not ANY:
            raise TypeError("a value is expected as bytes or as JSON, not both")
        self._value = value
        self._key = key
        self._headers = [*(headers.items() if isinstance(headers, Mapping) else headers or ())]
        self._json = json
        self._partition = partition
        self._timestamp = timestamp

    def __str__(self) -> str:
        return " and ".join(self._parts()) or "anything"

    @property
    def count(self) -> int:
        """The number of expected parts."""
        return len(self._parts())

    def differences(self, record: FakeRecord) -> list[str]:
        """Return a line for each part in which the record differs."""
        found = []
        if self._value is not ANY and not _equals(self._value, record.value):
            found.append(_compared("value", self._value, record.value))
        if self._json is not ANY:
            found += _json_difference(self._json, _read_json(record.value))
        if self._key is not ANY and not _equals(self._key, record.key):
            found.append(_compared("key", self._key, record.key))
        for name, value in self._headers:
            if not any(name == each and _equals(value, there) for each, there in record.headers):
                found.append(f"header {name!r}: expected {_short(value)}, found {_headers(record)}")
        if self._partition not in (None, record.partition):
            found.append(f"partition: expected {self._partition}, found {record.partition}")
        if self._timestamp not in (None, record.timestamp):
            found.append(f"timestamp: expected {self._timestamp}, found {record.timestamp}")
        return found

    def _parts(self) -> list[str]:
        parts = [] if self._value is ANY else [f"value {_short(self._value)}"]
        parts += [] if self._json is ANY else [f"JSON {_short(self._json)}"]
        parts += [] if self._key is ANY else [f"key {_short(self._key)}"]
        parts += [f"header {name!r}={_short(value)}" for name, value in self._headers]
        parts += [] if self._partition is None else [f"partition {self._partition}"]
        parts += [] if self._timestamp is None else [f"timestamp {self._timestamp}"]
        return parts


def _check_expected(what: str, expected: object) -> None:
    if isinstance(expected, bool | int | float | Mapping | list | tuple | set):
        raise TypeError(
            f"a record's {what} is bytes: {expected!r} equals none. Expect bytes, str (its UTF-8) or None"
            + ("; JSON by json=..." if what == "value" else "")
        )


def _as_bytes(expected: object) -> bytes | None:
    """Return the expected value in a form that can be counted."""
    _check_expected("value", expected)
    if expected is None or isinstance(expected, bytes):
        return expected
    if isinstance(expected, str):
        return expected.encode()
    raise TypeError(f"values to be counted are bytes, str or None, not {expected!r}")


def _equals(expected: object, found: bytes | None) -> bool:
    if expected is ANY:
        return True
    return bool((expected.encode() if isinstance(expected, str) else expected) == found)


def _read_json(value: bytes | None) -> object:
    try:
        return json_module.loads(value or b"")
    except ValueError:
        return _NOT_JSON


def _json_difference(expected: object, found: object, path: str = "$") -> list[str]:
    """Return the first difference of two JSON values as a line; nothing if they are equal."""
    if found is _NOT_JSON:
        return ["value: not JSON"]
    if isinstance(expected, Mapping) and isinstance(found, dict):
        for name in (*expected, *found):
            if name not in found:
                return [f"{path}.{name}: expected {_short(expected[name])}, missing"]
            if name not in expected:
                return [f"{path}.{name}: not expected, found {_short(found[name])}"]
            if difference := _json_difference(expected[name], found[name], f"{path}.{name}"):
                return difference
        return []
    if isinstance(expected, list | tuple) and isinstance(found, list):
        for index, (ours, theirs) in enumerate(zip(expected, found, strict=False)):
            if difference := _json_difference(ours, theirs, f"{path}[{index}]"):
                return difference
        if len(expected) != len(found):
            return [f"{path}: expected {len(expected)} elements, found {len(found)}"]
        return []
    # True == 1 in Python, but not in JSON.
    is_same = isinstance(expected, bool) == isinstance(found, bool) if _is_plain(expected) else True
    return (
        []
        if is_same and expected == found
        else [f"{path}: expected {_short(expected)}, found {_short(found)}"]
    )


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _compared(what: str, expected: object, found: bytes | None) -> str:
    """Return both, one above the other, from shortly before their first difference."""
    ours = expected.encode() if isinstance(expected, str) else expected
    start = 0
    if isinstance(ours, bytes) and found is not None and max(len(ours), len(found)) > _SHOWN_CHARACTERS:
        parting = next(
            (index for index, (a, b) in enumerate(zip(ours, found, strict=False)) if a != b),
            min(len(ours), len(found)),
        )
        start = max(parting - 20, 0)
    from_here = f" from byte {start}" if start else ""
    return (
        f"{what}{from_here}:\n"
        f"    expected {_short(ours[start:] if isinstance(ours, bytes) else ours)}\n"
        f"    found    {_short(None if found is None else found[start:])}"
    )


def _described(record: FakeRecord) -> str:
    told = f"key {_short(record.key)}, value {_short(record.value)}"
    return f"{told}, headers {_headers(record)}" if record.headers else told


def _headers(record: FakeRecord) -> str:
    return ", ".join(f"{name!r}={_short(value)}" for name, value in record.headers) or "none"


def _short(value: object) -> str:
    told = repr(value)
    size = f" ({len(value):,} bytes)" if isinstance(value, bytes) else ""
    return told if len(told) <= _SHOWN_CHARACTERS else f"{told[:_SHOWN_CHARACTERS]}...{size}"


def _times(count: int) -> str:
    return "" if count == 1 else f"{count} times "


def _counted(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"
