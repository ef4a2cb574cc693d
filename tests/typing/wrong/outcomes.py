"""Outcomes that are taken for others. `# error:` names what pyright and mypy must say of a line."""

from __future__ import annotations

from aioproduce import Producer, RecordMetadata


async def main(producer: Producer) -> None:
    delivery = await producer.send("orders", b"42")
    print(delivery.offset)  # error: reportAttributeAccessIssue, attr-defined
    metadata: RecordMetadata = delivery  # error: reportAssignmentType, assignment
    offset: str = (await delivery).offset  # error: reportAssignmentType, assignment
    producer.send("orders", b"42")  # error: reportUnusedCoroutine, unused-coroutine
    producer.lend()  # error: reportAttributeAccessIssue, attr-defined
    producer.open_path()  # error: reportAttributeAccessIssue, attr-defined
    producer.metrics().value(7)  # error: reportArgumentType, arg-type
    print(offset)
    delivery.set_result(metadata)  # error: reportDeprecated
