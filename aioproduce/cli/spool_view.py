"""The output of `aioproduce spool`: tables for people, and mappings for `--json`.

The keys of the mappings are part of the interface.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aioproduce.cli.display import rendered, size_text
from aioproduce.cli.failed_records import content_as_json
from aioproduce.cli.txn_view import instant, printable, rows_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioproduce.spool.compacting import Freed
    from aioproduce.spool.dead_letter_table import DeadLetter
    from aioproduce.spool.directory import Description
    from aioproduce.spool.inspection import LogStat, QueueStat
    from aioproduce.spool.record_reading import StoredRecord
    from aioproduce.spool.repairing import Repair
    from aioproduce.spool.verifying import Finding, Verification

_ID_SIZE = 16


# -- stat ---


def stat_as_json(stats: Sequence[QueueStat], now: float) -> dict[str, Any]:
    """Return what is in some queues.

    Args:
        stats: What is in each.
        now: The time, in seconds since the epoch.
    """
    return {
        "queues": [_queue_as_json(each, now) for each in stats],
        "queue_count": len(stats),
        "in_use": sum(each.user is not None for each in stats),
        "waiting": sum(each.waiting for each in stats),
        "oldest_age_s": max((_age(each.oldest_at_ms, now) or 0.0 for each in stats), default=0.0) or None,
        "bytes": sum(each.bytes for each in stats),
        "quarantine_bytes": sum(each.quarantine_bytes for each in stats),
        "dead_letters": sum(sum(each.dead_letters.values()) for each in stats),
    }


def _queue_as_json(stat: QueueStat, now: float) -> dict[str, Any]:
    return {
        "path": stat.path,
        "id": None if stat.spool_id is None else stat.spool_id.hex(),
        "in_use": stat.user is not None,
        "process": stat.user,
        "topics": [_log_as_json(each, now) for each in stat.logs],
        "waiting": stat.waiting,
        "oldest_age_s": _age(stat.oldest_at_ms, now),
        "bytes": stat.bytes,
        "quarantine_bytes": stat.quarantine_bytes,
        "dead_letters": stat.dead_letters,
        "problems": stat.problems,
    }


def _log_as_json(stat: LogStat, now: float) -> dict[str, Any]:
    return {
        "topic": stat.topic,
        "waiting": stat.waiting,
        "oldest_at": None if stat.oldest_at_ms is None else instant(stat.oldest_at_ms),
        "oldest_age_s": _age(stat.oldest_at_ms, now),
        "position": stat.position,
        "bytes": stat.bytes,
        "segments": stat.segments,
    }


def _age(at_ms: int | None, now: float) -> float | None:
    return None if at_ms is None else round(max(now - at_ms / 1000, 0.0), 3)


def stat_text(found: dict[str, Any]) -> str:
    """Return what is in some queues, for people."""
    text = ""
    for queue in found["queues"]:
        use = f"in use by process {queue['process']}" if queue["in_use"] else "not in use"
        rows = [
            {
                "topic": each["topic"],
                "waiting": f"{each['waiting']:,}",
                "oldest": _duration(each["oldest_age_s"]),
                "position": each["position"],
                "size": size_text(each["bytes"]),
                "segments": each["segments"],
            }
            for each in queue["topics"]
        ]
        text += f"{printable(queue['path'])}  {use}\n"
        if rows:
            text += rendered(rows_view(rows, ("topic", "waiting", "oldest", "position", "size", "segments")))
        if queue["quarantine_bytes"]:
            text += f"quarantine: {size_text(queue['quarantine_bytes'])}\n"
        if queue["dead_letters"]:
            counts = ", ".join(
                f"{printable(topic)} {count:,}" for topic, count in queue["dead_letters"].items()
            )
            text += f"dead letters: {counts}\n"
    oldest = f" (the oldest for {_duration(found['oldest_age_s'])})" if found["waiting"] else ""
    return (
        f"{text}queues: {found['queue_count']:,} ({found['in_use']:,} in use), records that wait: "
        f"{found['waiting']:,}{oldest}, on disk: {size_text(found['bytes'])}, quarantine: "
        f"{size_text(found['quarantine_bytes'])}, dead letters: {found['dead_letters']:,}\n"
    )


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} s"


# -- verify ---


def verified_as_json(results: Sequence[Verification]) -> dict[str, Any]:
    """Return what a check of some queues found."""
    return {
        "queues": [
            {
                "path": each.path,
                "in_use": each.user is not None,
                "records": each.records,
                "batches": each.batches,
                "bytes": each.bytes,
                "is_clean": each.is_clean,
                "findings": [finding_as_json(finding) for finding in each.findings],
            }
            for each in results
        ],
        "records": sum(each.records for each in results),
        "is_clean": all(each.is_clean for each in results),
    }


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """Return one thing that is wrong."""
    damage = finding.damage
    return {
        "kind": finding.kind.value,
        "is_damage": finding.is_damage,
        "path": finding.path,
        "topic": finding.topic,
        "message": finding.message,
        "segment": None if damage is None else damage.segment,
        "start": None if damage is None else damage.start,
        "end": None if damage is None else damage.end,
        "first_offset": None if damage is None else damage.first_offset,
        "next_offset": None if damage is None else damage.next_offset,
    }


def verified_text(results: Sequence[Verification]) -> str:
    """Return what a check of some queues found, for people."""
    lines: list[str] = []
    for each in results:
        damages = sum(finding.is_damage for finding in each.findings)
        state = f"damaged places: {damages:,}" if damages else "whole"
        whole = f"{each.records:,} records, {each.batches:,} batches, {size_text(each.bytes)}"
        lines += [f"{each.path}  {state} (read: {whole})", *map(_finding_line, each.findings)]
    return _joined(lines)


def _finding_line(finding: Finding) -> str:
    return f"  {finding.kind.value}: {finding.message}"


def _joined(lines: Iterable[str]) -> str:
    """Return lines of text; a path may have any character."""
    return "".join(f"{printable(line)}\n" for line in lines)


# -- repair and compact ---


def repaired_as_json(repaired: dict[str, list[Repair]], *, is_dry: bool) -> dict[str, Any]:
    """Return what a repair did, by the queue's directory."""
    return {
        "queues": [
            {
                "path": path,
                "repairs": [
                    {**finding_as_json(each.finding), "action": each.action, "is_done": each.is_done}
                    for each in repairs
                ],
            }
            for path, repairs in repaired.items()
        ],
        "is_dry_run": is_dry,
    }


def repaired_text(repaired: dict[str, list[Repair]], *, is_dry: bool) -> str:
    """Return what a repair did, for people."""
    lines: list[str] = []
    for path, repairs in repaired.items():
        state = "would be repaired" if is_dry else "repaired"
        lines.append(f"{path}  {state if repairs else 'nothing to repair'}")
        for each in repairs:
            lines += [_finding_line(each.finding), f"    -> {each.action}"]
    return _joined(lines)


def compacted_as_json(compacted: dict[str, list[Freed]]) -> dict[str, Any]:
    """Return what became free, by the queue's directory."""
    return {
        "queues": [
            {
                "path": path,
                "freed": [{"path": each.path, "what": each.what, "bytes": each.bytes} for each in freed],
                "bytes": _sum(freed),
            }
            for path, freed in compacted.items()
        ],
        "bytes": sum(map(_sum, compacted.values())),
    }


def compacted_text(compacted: dict[str, list[Freed]]) -> str:
    """Return what became free, for people."""
    lines: list[str] = []
    for path, freed in compacted.items():
        lines.append(f"{path}  {_sum(freed):,} bytes became free")
        for each in freed:
            size = "" if each.is_left else f", {each.bytes:,} bytes"
            lines.append(f"  {each.path.removeprefix(f'{path}/')}  {each.what}{size}")
    return _joined(lines)


def _sum(freed: Iterable[Freed]) -> int:
    return sum(each.bytes for each in freed)


# -- dump ---


def record_as_json(queue: str, description: Description | None, record: StoredRecord) -> dict[str, Any]:
    """Return a record; its id is that of the header `ap.id`, as hexadecimal digits."""
    return {
        "queue": queue,
        "topic": record.topic,
        "offset": record.offset,
        "id": None if description is None else description.record_id(record.offset).hex(),
        "timestamp": record.timestamp,
        **_content(record),
    }


def letter_as_json(queue: str, letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter."""
    return {
        "queue": queue,
        "topic": letter.topic,
        "offset": int.from_bytes(letter.id[_ID_SIZE:], "big"),
        "id": letter.id.hex(),
        "timestamp": letter.timestamp,
        **_content(letter),
        "reason": letter.reason,
        "refused_at": instant(round(letter.at * 1000)),
    }


def _content(record: StoredRecord | DeadLetter) -> dict[str, Any]:
    return {
        "key": content_as_json(record.key),
        "value": content_as_json(record.value),
        "headers": [[name, content_as_json(value)] for name, value in record.headers],
    }


def row_line(row: dict[str, Any]) -> str:
    """Return a record or a dead letter as one line for people; what is not text is JSON."""
    words = [printable(row["topic"]), str(row["offset"]), instant(row["timestamp"]) or "-", f"id={row['id']}"]
    words += [f"{name}={_json_text(row[name])}" for name in ("key", "value", "headers")]
    if "reason" in row:
        words.append(f"refused_at={row['refused_at']} reason={_json_text(row['reason'])}")
    return " ".join(words) + "\n"


def _json_text(value: object) -> str:
    """Return JSON in which no character moves the cursor or changes the order of the text."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)
