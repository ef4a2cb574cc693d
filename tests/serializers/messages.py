"""Protobuf classes as protoc would generate them, without protoc: from descriptors, as generated code does it.

`shop/order.proto` imports `shop/money.proto`, which imports `shop/currency.proto`, and a file of Google's. Its
messages stand first, second, and nested in another, for the message indexes.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_INT64: Final = FieldDescriptorProto.TYPE_INT64
_STRING: Final = FieldDescriptorProto.TYPE_STRING
_MESSAGE: Final = FieldDescriptorProto.TYPE_MESSAGE


def message(
    name: str, *fields: tuple[str, int, str], nested: tuple[DescriptorProto, ...] = ()
) -> DescriptorProto:
    """A message with fields of `(name, type, type's name)`."""
    made = DescriptorProto(name=name, nested_type=nested)
    for number, (field, kind, type_name) in enumerate(fields, start=1):
        made.field.add(
            name=field,
            number=number,
            type=kind,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
            type_name=type_name or None,
        )
    return made


def file(
    name: str, *messages: DescriptorProto, imports: tuple[str, ...] = (), package: str = "shop"
) -> FileDescriptorProto:
    return FileDescriptorProto(
        name=name, package=package, syntax="proto3", message_type=messages, dependency=imports
    )


def pool_of(*files: FileDescriptorProto) -> DescriptorPool:
    """A pool with these files, and Google's timestamp."""
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)  # type: ignore[no-untyped-call,unused-ignore]
    for each in files:
        pool.AddSerializedFile(each.SerializeToString())  # type: ignore[no-untyped-call,unused-ignore]
    return pool


def class_of(pool: DescriptorPool, name: str) -> type[Any]:
    """The class of a message, as generated code has it."""
    made: type[Message] = GetMessageClass(pool.FindMessageTypeByName(name))  # type: ignore[no-untyped-call,unused-ignore]
    return made


_FILES: Final = (
    file("shop/currency.proto", message("Currency", ("code", _STRING, ""))),
    file(
        "shop/money.proto",
        message("Money", ("units", _INT64, ""), ("currency", _MESSAGE, ".shop.Currency")),
        imports=("shop/currency.proto",),
    ),
    file(
        "shop/order.proto",
        message("Order", ("id", _INT64, ""), ("note", _STRING, "")),
        message(
            "Refund",
            ("id", _INT64, ""),
            ("amount", _MESSAGE, ".shop.Money"),
            ("at", _MESSAGE, ".google.protobuf.Timestamp"),
            nested=(message("Why", ("text", _STRING, "")), message("Line", ("text", _STRING, ""))),
        ),
        imports=("shop/money.proto", "google/protobuf/timestamp.proto"),
    ),
    file("shop/plain.proto", message("Plain", ("id", _INT64, ""), ("note", _STRING, ""))),
)
POOL: Final = pool_of(*_FILES)
Order: Final = class_of(POOL, "shop.Order")
Refund: Final = class_of(POOL, "shop.Refund")
RefundLine: Final = class_of(POOL, "shop.Refund.Line")
Plain: Final = class_of(POOL, "shop.Plain")
