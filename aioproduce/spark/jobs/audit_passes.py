"""The audit's computations over rows: a first pass that is cheap and reliable, and an exact one where needed.

Used by `audit_lake` in Spark's Python workers, and by the tests without a JVM. Needs only numpy and pyarrow.

A producer's numbers are divided into blocks of 65,536. For each file, producer id and block, the first pass
computes the number of rows, the lowest and highest number, and a fingerprint: the sum modulo 2**64 of a mixed
form of each number. These partials take a few bytes per 65,536 rows, can be added over files in any order, and
are compared with those of a complete block.

1. The fingerprint is a sum over a multiset. Unlike with count, minimum, maximum and sum of the numbers themselves,
   a duplicate cannot compensate a hole, nor several of one several of the other, except with a probability of
   2**-64. (An exclusive or would miss a number that occurs three times. Sum and sum of squares do not distinguish
   0 3 5 6 from 1 2 4 7.)
2. The expected value of a block is the same for every producer, and is computed once for each block number.
3. Sequence numbers are unsigned 64-bit numbers; Arrow and Spark store them as signed ones with the same bits.
4. The exact pass sees only blocks that the first pass found wrong, and reads only row groups that can contain them.
   Only it distinguishes duplicates (same id, same checksum) from conflicts (same id, different checksum) and finds
   which numbers are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aioproduce.spark.ranges import NOTHING, Ranges, difference, intersection
from aioproduce.spark.ranges import count as how_many

if TYPE_CHECKING:
    from collections.abc import Mapping

Unsigned: TypeAlias = npt.NDArray[np.uint64]

BLOCK_BITS = 16
"""A block has 65,536 numbers: its presence costs 44 bytes in a partial, and 0.5 MiB while its prefix sums are
checked."""
BLOCK = 1 << BLOCK_BITS
NUMBERS = 1 << 64
HOLES_OF_A_BLOCK = 200
"""Maximum ranges of missing numbers that one block reports; the rest is counted."""
CONFLICTS_OF_A_BLOCK = 20

PARTIALS = pa.schema(
    [
        ("producer_id", pa.binary()),
        ("block", pa.int64()),
        ("rows", pa.int64()),
        ("fingerprint", pa.int64()),
        ("lowest", pa.int64()),
        ("highest", pa.int64()),
    ]
)
SUSPECTS = pa.schema(
    [
        ("producer_id", pa.binary()),
        ("block", pa.int64()),
        ("sequence", pa.int64()),
        ("checksum", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
READ_FIRST = ("producer_id", "sequence")
READ_EXACTLY = ("producer_id", "sequence", "checksum", "partition", "offset")

_RANGES = pa.list_(pa.struct([("first", pa.int64()), ("last", pa.int64())]))
FINDINGS = pa.schema(
    [
        ("producer_id", pa.binary()),
        ("block", pa.int64()),
        ("rows", pa.int64()),
        ("numbers", pa.int64()),
        ("duplicates", pa.int64()),
        ("reread", pa.int64()),
        ("conflicts", pa.int64()),
        ("missing", pa.int64()),
        ("lost", pa.int64()),
        ("loose", pa.int64()),
        ("holes", _RANGES),
        ("holes_more", pa.int64()),
        ("conflicting", pa.list_(pa.int64())),
    ]
)


@dataclass(frozen=True, slots=True)
class Span:
    """The expected numbers of one producer in a block.

    Attributes:
        low: The first expected number.
        next: The first number that the producer's mark does not cover; numbers missing from there on are `loose`.
        end: One beyond the last expected number.
        excused: Numbers that may be absent.
    """

    low: int
    next: int
    end: int
    excused: Ranges = NOTHING


Spans: TypeAlias = "Mapping[bytes, Mapping[int, Span]]"


def mixed(numbers: Unsigned) -> Unsigned:
    """Map each number to 64 random-looking bits, without collisions: the last step of SplitMix64."""
    out = numbers + np.uint64(0x9E3779B97F4A7C15)
    out ^= out >> np.uint64(30)
    out *= np.uint64(0xBF58476D1CE4E5B9)
    out ^= out >> np.uint64(27)
    out *= np.uint64(0x94D049BB133111EB)
    out ^= out >> np.uint64(31)
    return out


@lru_cache(maxsize=64)
def fingerprints(block: int) -> Unsigned:
    """Return the fingerprints of the first 0, 1, ... 65,536 numbers of a block."""
    start = block << BLOCK_BITS
    numbers = np.arange(BLOCK, dtype=np.uint64) + np.uint64(start)
    out = np.zeros(BLOCK + 1, dtype=np.uint64)
    np.cumsum(mixed(numbers), out=out[1:])
    return out


def unsigned(column: pa.ChunkedArray | pa.Array) -> Unsigned:
    """Return an int64 Arrow column as unsigned bits; nulls, which only unstamped rows have, become 0."""
    if column.null_count:
        column = column.fill_null(0)
    found: npt.NDArray[np.int64] = (
        column.to_numpy() if isinstance(column, pa.ChunkedArray) else np.asarray(column)
    )
    return found.view(np.uint64)


def signed(numbers: Unsigned) -> pa.Array:
    """Return unsigned bits as an int64 Arrow column."""
    return pa.array(np.ascontiguousarray(numbers).view(np.int64))


def codes_of(ids: pa.ChunkedArray | pa.Array) -> tuple[npt.NDArray[np.int32], list[bytes | None]]:
    """Return producer ids as small numbers, -1 for none, and the ids of these numbers."""
    whole = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    if isinstance(whole, pa.ChunkedArray):  # a dictionary per chunk stays chunked
        whole = pa.concat_arrays(whole.unify_dictionaries().chunks)
    if not pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_encode()
    indices = whole.indices
    if indices.null_count:
        indices = indices.fill_null(-1)
    return np.asarray(indices).astype(np.int32, copy=False), whole.dictionary.to_pylist()


def _stamped_codes(
    ids: pa.ChunkedArray | pa.Array, sequences: pa.ChunkedArray | pa.Array
) -> tuple[npt.NDArray[np.int32], list[bytes | None]]:
    """Return `codes_of()`, with no id for rows without a number, which the quarantine may contain."""
    codes, names = codes_of(ids)
    if sequences.null_count:
        codes = np.where(np.asarray(sequences.is_null()), np.int32(-1), codes)
    return codes, names


def partials_of(ids: pa.ChunkedArray | pa.Array, sequences: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Run the first pass over some rows.

    Args:
        ids: The producer ids, null if a row has no stamp; plain or dictionary.
        sequences: Their numbers, int64.

    Returns:
        A table with the schema `PARTIALS`: one row per producer id and block. The rows without a stamp are one row
        with a null id.
    """
    if not len(ids):
        return PARTIALS.empty_table()
    codes, names = _stamped_codes(ids, sequences)
    numbers = unsigned(sequences)
    blocks = numbers >> np.uint64(BLOCK_BITS)
    # Most rows are next to one of the same producer and block, so only runs are grouped.
    is_new = np.empty(len(codes), dtype=bool)
    is_new[0] = True
    np.not_equal(codes[1:], codes[:-1], out=is_new[1:])
    is_new[1:] |= blocks[1:] != blocks[:-1]
    starts = np.flatnonzero(is_new)
    runs = pa.table(
        {
            "code": pa.array(codes[starts]),
            "block": signed(blocks[starts]),
            "rows": pa.array(np.diff(starts, append=len(codes))),
            "fingerprint": pa.array(np.add.reduceat(mixed(numbers), starts)),
            "lowest": pa.array(np.minimum.reduceat(numbers, starts)),
            "highest": pa.array(np.maximum.reduceat(numbers, starts)),
        }
    )
    grouped = runs.group_by(["code", "block"], use_threads=False).aggregate(_SUMMED)
    # The last name belongs to the rows without a stamp, whose code is -1.
    dictionary = pa.array([*names, None], pa.binary())
    found = dictionary.take(pa.array(np.asarray(grouped["code"]) % len(dictionary)))
    return _partials_table(found, grouped)


_SUMMED = [("rows", "sum"), ("fingerprint", "sum"), ("lowest", "min"), ("highest", "max")]


def _partials_table(ids: pa.Array | pa.ChunkedArray, grouped: pa.Table) -> pa.Table:
    return pa.table(
        {
            "producer_id": ids,
            "block": grouped["block"],
            "rows": grouped["rows_sum"].cast(pa.int64()),
            "fingerprint": signed(np.asarray(grouped["fingerprint_sum"])),
            "lowest": signed(np.asarray(grouped["lowest_min"])),
            "highest": signed(np.asarray(grouped["highest_max"])),
        },
        schema=PARTIALS,
    )


def merged(partials: pa.Table) -> pa.Table:
    """Merge the partials of several files, sorted by producer id and block; a null id comes last."""
    if not partials.num_rows:
        return PARTIALS.empty_table()
    columns = {
        name: pa.array(unsigned(partials[name]))
        if name in {"fingerprint", "lowest", "highest"}
        else partials[name]
        for name in PARTIALS.names
    }
    grouped = pa.table(columns).group_by(["producer_id", "block"], use_threads=False).aggregate(_SUMMED)
    grouped = grouped.sort_by([("producer_id", "ascending"), ("block", "ascending")])
    return _partials_table(grouped["producer_id"], grouped)


def suspects_of(rows: pa.Table, topic: str | None, spans: Spans) -> pa.Table:
    """Return the rows of a file whose producer and block are requested, with the schema `SUSPECTS`.

    Args:
        rows: The columns `READ_EXACTLY`, and `topic` if the argument is None.
        topic: The topic of the file.
        spans: The requested producers and blocks.
    """
    if not rows.num_rows:
        return SUSPECTS.empty_table()
    codes, names = _stamped_codes(rows["producer_id"], rows["sequence"])
    numbers = unsigned(rows["sequence"])
    blocks = (numbers >> np.uint64(BLOCK_BITS)).astype(np.int64)
    is_asked = np.array([name in spans for name in names] + [False])
    at = np.flatnonzero(is_asked[codes])
    at = at[np.argsort(codes[at], kind="stable")]
    if not len(at):
        return SUSPECTS.empty_table()
    bounds = np.flatnonzero(np.diff(codes[at], prepend=-2))
    taken = []
    for begin, end in zip(bounds, [*bounds[1:], len(at)], strict=True):
        some = at[begin:end]
        name = names[codes[some[0]]]
        if name is not None:
            wanted = np.fromiter(spans[name], dtype=np.int64)
            taken.append(some[np.isin(blocks[some], wanted)])
    if not taken:
        return SUSPECTS.empty_table()
    chosen = np.sort(np.concatenate(taken))
    found = rows.take(pa.array(chosen))
    topics = (
        pa.array([topic] * len(chosen), pa.string())
        if topic is not None
        else found["topic"].cast(pa.string())
    )
    ids = found["producer_id"]
    return pa.table(
        {
            "producer_id": ids.cast(pa.binary()),
            "block": pa.array(blocks[chosen]),
            "sequence": found["sequence"],
            "checksum": found["checksum"].fill_null(0),
            "topic": topics,
            "partition": found["partition"].cast(pa.int32()),
            "offset": found["offset"],
        },
        schema=SUSPECTS,
    )


def finding_of(rows: pa.Table, producer_id: bytes, block: int, span: Span) -> dict[str, Any]:
    """Return what is wrong with one block of one producer.

    Args:
        rows: All rows of the lake with this id and a number of this block, as `SUSPECTS`.
        producer_id: The id.
        block: The block's number.
        span: Its expected numbers.

    Returns:
        A row of `FINDINGS`: `rows = numbers + duplicates + conflicts`. `reread` are duplicates with the same place
        in Kafka as another row: landed twice, not sent twice. `missing` are the absent numbers below `span.next`,
        `lost` those of them that are not excused, and `loose` the absent numbers from there on.
    """
    start = block << BLOCK_BITS
    relative = (unsigned(rows["sequence"]) - np.uint64(start)).astype(np.int64)
    present = np.unique(relative)
    versions = _distinct(rows, ["sequence", "checksum"])
    places = _distinct(rows, ["sequence", "checksum", "topic", "partition", "offset"])
    numbers = len(present)
    gone = _gaps(present, start, span.low, span.end)
    unexcused = difference(gone, span.excused)
    below = ((0, span.next - 1),) if span.next else NOTHING
    lost = how_many(intersection(unexcused, below))
    listed = unexcused[:HOLES_OF_A_BLOCK]
    return {
        "producer_id": producer_id,
        "block": block,
        "rows": rows.num_rows,
        "numbers": numbers,
        "duplicates": rows.num_rows - versions.num_rows,
        "reread": rows.num_rows - places.num_rows,
        "conflicts": versions.num_rows - numbers,
        "missing": how_many(intersection(gone, below)),
        "lost": lost,
        "loose": how_many(unexcused) - lost,
        "holes": [{"first": as_signed(first), "last": as_signed(last)} for first, last in listed],
        "holes_more": how_many(unexcused[HOLES_OF_A_BLOCK:]),
        "conflicting": _conflicting(versions) if versions.num_rows > numbers else [],
    }


def _distinct(rows: pa.Table, columns: list[str]) -> pa.Table:
    return rows.select(columns).group_by(columns, use_threads=False).aggregate([])


def _conflicting(versions: pa.Table) -> list[int]:
    counted = versions.group_by("sequence", use_threads=False).aggregate([("checksum", "count")])
    several = np.asarray(counted["checksum_count"]) > 1
    return sorted(np.asarray(counted["sequence"])[several].tolist())[:CONFLICTS_OF_A_BLOCK]


def _gaps(present: npt.NDArray[np.int64], start: int, low: int, end: int) -> Ranges:
    """Return the absent numbers from `low` up to `end`; `present` is sorted, relative to the block's start."""
    first, beyond = max(0, low - start), min(BLOCK, end - start)
    if first >= beyond:
        return NOTHING
    some = present[(present >= first) & (present < beyond)]
    fence = np.concatenate(([first - 1], some, [beyond]))
    at = np.flatnonzero(np.diff(fence) > 1)
    return tuple(
        (start + int(left) + 1, start + int(right) - 1)
        for left, right in zip(fence[at], fence[at + 1], strict=True)
    )


def as_signed(number: int) -> int:
    """Return a 64-bit number as Arrow and Spark store it."""
    return number - NUMBERS if number >= NUMBERS >> 1 else number


def as_unsigned(number: int) -> int:
    """Return a stored number as unsigned."""
    return number + NUMBERS if number < 0 else number


def findings_of(suspects: pa.Table, spans: Spans) -> pa.Table:
    """Run the exact pass over all suspects in this process, as Spark does group by group."""
    if not suspects.num_rows:
        return FINDINGS.empty_table()
    suspects = suspects.sort_by([("producer_id", "ascending"), ("block", "ascending")])
    codes, names = codes_of(suspects["producer_id"])
    blocks = np.asarray(suspects["block"])
    is_new = np.flatnonzero((np.diff(codes, prepend=-1) != 0) | (np.diff(blocks, prepend=-1) != 0)).tolist()
    out = []
    for begin, end in zip(is_new, [*is_new[1:], suspects.num_rows], strict=True):
        name, block = names[codes[begin]], int(blocks[begin])
        if name is not None:
            rows = suspects.slice(begin, end - begin)
            out.append(finding_of(rows, name, block, spans[name][block]))
    return pa.Table.from_pylist(out, schema=FINDINGS)
