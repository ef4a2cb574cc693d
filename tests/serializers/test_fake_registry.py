"""The fake registry against Confluent's own client: what it answers is what that client expects."""

from __future__ import annotations

import enum
import json
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import make_avsc_object
from confluent_kafka.schema_registry import ConfigCompatibilityLevel as Level
from confluent_kafka.schema_registry import Schema, SchemaReference, ServerConfig
from confluent_kafka.schema_registry.error import SchemaRegistryError
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.testing import FakeSchemaRegistry
from aioproduce.testing.fake_registry.avro_rules import avro_complaints
from tests.serializers import confluent
from tests.serializers.messages import Refund

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
WITH_NOTE = (
    '{"type": "record", "name": "Order", "fields": '
    '[{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}]}'
)
WITHOUT_DEFAULT = WITH_NOTE.replace(', "default": ""', "")


class _NoLevel(enum.Enum):
    SOME = "SOME"


SOME: Any = _NoLevel.SOME


def refused(error: pytest.ExceptionInfo[Any]) -> tuple[int, int]:
    return error.value.http_status_code, error.value.error_code


def test_register_look_up_and_read(fake: FakeSchemaRegistry) -> None:
    client = confluent.client(fake.url)

    first = client.register_schema("orders-value", Schema(ORDER, "AVRO"))
    again = confluent.client(fake.url).register_schema("orders-value", Schema(ORDER, "AVRO"))
    elsewhere = client.register_schema("refunds-value", Schema(ORDER, "AVRO"))
    second = client.register_schema("orders-value", Schema(WITH_NOTE, "AVRO"))

    assert first == again == elsewhere == 1
    assert second == 2
    assert client.get_subjects() == ["orders-value", "refunds-value"]
    assert client.get_versions("orders-value") == [1, 2]
    latest = client.get_latest_version("orders-value")
    assert (latest.schema_id, latest.version, latest.subject) == (2, 2, "orders-value")
    assert json.loads(latest.schema.schema_str) == json.loads(WITH_NOTE)
    assert client.get_version("orders-value", 1).schema_id == 1
    assert json.loads(confluent.client(fake.url).get_schema(1).schema_str) == json.loads(ORDER)
    found = client.lookup_schema("orders-value", Schema(ORDER, "AVRO"))
    assert (found.schema_id, found.version) == (1, 1)
    assert {version: json.loads(text) for version, text in fake.versions("refunds-value").items()} == {
        1: json.loads(ORDER)
    }


def test_white_space_makes_no_schema_and_order_does_unless_normalized(fake: FakeSchemaRegistry) -> None:
    client = confluent.client(fake.url)
    spaced = json.dumps(json.loads(ORDER), indent=4)
    turned = '{"name": "Order", "type": "record", "fields": [{"type": "long", "name": "id"}]}'

    first = client.register_schema("orders-value", Schema(ORDER, "AVRO"))

    assert client.register_schema("orders-value", Schema(spaced, "AVRO")) == first
    assert (
        client.lookup_schema("orders-value", Schema(turned, "AVRO"), normalize_schemas=True).schema_id
        == first
    )
    with pytest.raises(SchemaRegistryError) as caught:
        confluent.client(fake.url).lookup_schema("orders-value", Schema(turned, "AVRO"))
    assert refused(caught) == (404, 40403)


def test_what_is_not_there(fake: FakeSchemaRegistry) -> None:
    client = confluent.client(fake.url)
    client.register_schema("orders-value", Schema(ORDER, "AVRO"))

    questions: tuple[tuple[Callable[[], object], tuple[int, int]], ...] = (
        (lambda: client.lookup_schema("none", Schema(ORDER, "AVRO")), (404, 40401)),
        (lambda: client.get_latest_version("none"), (404, 40401)),
        (lambda: client.get_versions("none"), (404, 40401)),
        (lambda: client.lookup_schema("orders-value", Schema(WITH_NOTE, "AVRO")), (404, 40403)),
        (lambda: client.get_version("orders-value", 7), (404, 40402)),
        (lambda: client.get_version("orders-value", "newest"), (422, 42202)),
        (lambda: client.get_schema(7), (404, 40403)),
        (lambda: client.get_config("orders-value"), (404, 40408)),
        (lambda: client.set_config("x", ServerConfig(compatibility=SOME)), (422, 42203)),
        (lambda: client.delete_subject("none"), (404, 40401)),
    )
    for ask, answer in questions:
        with pytest.raises(SchemaRegistryError) as caught:
            ask()
        assert refused(caught) == answer


@pytest.mark.parametrize(
    ("schema", "schema_type"),
    [
        ("{", "AVRO"),
        ('{"type": "record", "name": "A", "fields": [{"name": "x", "type": "Unknown"}]}', "AVRO"),
        ('{"type": "record", "name": "A"}', "AVRO"),
        ("7", "AVRO"),
        ("{", "JSON"),
        ("", "AVRO"),
        ('"string"', "XML"),
    ],
)
def test_what_is_no_schema(fake: FakeSchemaRegistry, schema: str, schema_type: str) -> None:
    with pytest.raises(SchemaRegistryError) as caught:
        confluent.client(fake.url).register_schema("a", Schema(schema, schema_type))

    assert refused(caught) == (422, 42201)


def test_incompatible_schemas_are_refused_by_the_level_of_their_subject(fake: FakeSchemaRegistry) -> None:
    client = confluent.client(fake.url)
    client.register_schema("a", Schema(ORDER, "AVRO"))

    assert client.test_compatibility("a", Schema(WITH_NOTE, "AVRO"), "latest")
    assert not client.test_compatibility("a", Schema(WITHOUT_DEFAULT, "AVRO"), "latest")
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema("a", Schema(WITHOUT_DEFAULT, "AVRO"))
    assert refused(caught) == (409, 409)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in str(caught.value)
    client.set_config("a", ServerConfig(compatibility=Level.FORWARD))
    assert client.test_compatibility("a", Schema(WITHOUT_DEFAULT, "AVRO"), "latest")
    client.set_config("a", ServerConfig(compatibility=Level.FULL))
    assert not client.test_compatibility("a", Schema(WITHOUT_DEFAULT, "AVRO"), "latest")
    client.set_config("a", ServerConfig(compatibility=Level.NONE))
    assert client.register_schema("a", Schema('"string"', "AVRO")) == 2


def test_transitive_levels_look_at_all_versions(fake: FakeSchemaRegistry) -> None:
    client = confluent.client(fake.url)
    for schema in (ORDER, WITH_NOTE):
        client.register_schema("a", Schema(schema, "AVRO"))

    # A reader that wants the note can read the second version, not the first.
    assert client.test_compatibility("a", Schema(WITHOUT_DEFAULT, "AVRO"), "latest")
    assert not client.test_compatibility("a", Schema(WITHOUT_DEFAULT, "AVRO"), 1)
    assert client.test_compatibility_all_versions("a", Schema(WITHOUT_DEFAULT, "AVRO"))
    client.set_config("a", ServerConfig(compatibility=Level.BACKWARD_TRANSITIVE))
    assert not client.test_compatibility_all_versions("a", Schema(WITHOUT_DEFAULT, "AVRO"))


def test_a_subject_without_versions_takes_anything(fake: FakeSchemaRegistry) -> None:
    assert confluent.client(fake.url).test_compatibility_all_versions("new", Schema(ORDER, "AVRO"))


def test_one_subject_keeps_to_one_type(fake: FakeSchemaRegistry) -> None:
    client = confluent.client(fake.url)
    client.register_schema("a", Schema(ORDER, "AVRO"))

    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema("a", Schema('{"type": "object"}', "JSON"))

    assert refused(caught) == (409, 409)


def test_references_must_be_there(fake: FakeSchemaRegistry) -> None:
    client = confluent.client(fake.url)
    user = '{"type": "record", "name": "User", "fields": [{"name": "last", "type": "Order"}]}'
    client.register_schema("order", Schema(ORDER, "AVRO"))

    registered = client.register_schema("user", Schema(user, "AVRO", [SchemaReference("Order", "order", 1)]))
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema("user", Schema(user, "AVRO", [SchemaReference("Order", "order", 2)]))

    assert refused(caught) == (422, 42201)
    read = confluent.client(fake.url).get_schema(registered)
    assert [(each.name, each.subject, each.version) for each in read.references] == [("Order", "order", 1)]


def test_versions_are_never_given_twice(fake: FakeSchemaRegistry) -> None:
    client = confluent.client(fake.url)
    client.register_schema("a", Schema(ORDER, "AVRO"))
    client.register_schema("a", Schema(WITH_NOTE, "AVRO"))

    client.delete_version("a", 2)

    assert client.get_versions("a") == [1]
    client.register_schema("a", Schema(ORDER.replace('"long"', '"long", "default": 0'), "AVRO"))
    assert client.get_versions("a") == [1, 3]
    assert client.delete_subject("a") == [1, 3]
    assert client.get_subjects() == []


def test_confluents_serializers_read_back_what_they_wrote(fake: FakeSchemaRegistry) -> None:
    order, refund = {"id": 7}, Refund(id=8, amount={"units": 9, "currency": {"code": "EUR"}})
    schema = '{"title": "Order", "type": "object"}'

    avro = confluent.avro_writer(fake.url, ORDER)(order, confluent.context())
    protobuf = confluent.protobuf_writer(fake.url, Refund)(refund, confluent.context("refunds"))
    as_json = confluent.json_writer(fake.url, schema)(order, confluent.context("json"))

    assert confluent.avro_reader(fake.url)(avro, confluent.context()) == order
    read = confluent.protobuf_reader(fake.url, Refund)(protobuf, confluent.context("refunds"))
    assert read == refund
    assert confluent.json_reader(fake.url)(as_json, confluent.context("json")) == order


@pytest.mark.parametrize("given", [None, "user:wrong", "user:s3cret"])
def test_basic_auth(given: str | None) -> None:
    with FakeSchemaRegistry(basic_auth=("user", "s3cret")) as fake:
        conf = {} if given is None else {"basic.auth.user.info": given}
        client = confluent.client(fake.url, **conf)
        if given == "user:s3cret":
            assert client.get_subjects() == []
            return
        with pytest.raises(SchemaRegistryError) as caught:
            client.get_subjects()
        assert refused(caught) == (401, 401)


def test_a_bearer_token() -> None:
    with FakeSchemaRegistry(bearer_token="t0ken") as fake:
        request = urllib.request.Request(fake.url + "/subjects", headers={"Authorization": "Bearer t0ken"})
        with urllib.request.urlopen(request) as answer:
            assert answer.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"
            assert json.load(answer) == []


def test_faults_come_in_the_order_asked_for(fake: FakeSchemaRegistry) -> None:
    client = confluent.client(fake.url)
    fake.fail_next(500)
    fake.fail_next(429, error_code=42901, message="slowly")

    with pytest.raises(SchemaRegistryError) as first:
        client.get_subjects()
    with pytest.raises(SchemaRegistryError) as second:
        client.get_subjects()

    assert refused(first) == (500, 50001)
    assert refused(second) == (429, 42901)
    assert client.get_subjects() == []


def test_a_request_is_held_back_until_it_is_released(fake: FakeSchemaRegistry) -> None:
    answers: list[object] = []
    fake.hold()
    asking = threading.Thread(target=lambda: answers.append(confluent.client(fake.url).get_subjects()))
    asking.start()

    fake.wait_for_requests(1)
    assert answers == []
    fake.release()
    asking.join()

    assert answers == [[]]
    assert [(request.method, request.path) for request in fake.requests] == [("GET", "/subjects")]


def test_closing_ends_what_is_held_back() -> None:
    failures: list[Exception] = []

    def ask() -> None:
        try:
            confluent.client(fake.url).get_subjects()
        except Exception as error:
            failures.append(error)

    with FakeSchemaRegistry() as fake:
        fake.hold()
        asking = threading.Thread(target=ask)
        asking.start()
        fake.wait_for_requests(1)
    asking.join()

    assert len(failures) == 1


# -- Avro's rules, against Apache's own implementation ---

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMES = st.sampled_from(["A", "B"])
_FIELD_NAMES = ["x", "y", "z"]


def _records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.sampled_from(_FIELD_NAMES), unique=True, max_size=3).flatmap(
        lambda names: st.tuples(*(st.tuples(st.just(name), inner, st.booleans()) for name in names))
    )
    return fields.map(
        lambda given: {
            "type": "record",
            "name": "R",
            # The default's value does not matter to resolution, only that there is one: a union with null has one.
            "fields": [
                {"name": name, "type": ["null", "long"], "default": None}
                if has_default
                else {"name": name, "type": kind}
                for name, kind, has_default in given
            ],
        }
    )


_SIMPLE = st.sampled_from(_PRIMITIVES)
_ENUMS = st.lists(st.sampled_from(["P", "Q", "S"]), unique=True, min_size=1).map(
    lambda symbols: {"type": "enum", "name": "E", "symbols": symbols}
)
_FIXED = st.sampled_from([4, 8]).map(lambda size: {"type": "fixed", "name": "F", "size": size})
_LEAVES = st.one_of(_SIMPLE, _ENUMS, _FIXED)
_CONTAINERS = st.one_of(
    _LEAVES,
    _LEAVES.map(lambda inner: {"type": "array", "items": inner}),
    _LEAVES.map(lambda inner: {"type": "map", "values": inner}),
    st.lists(_SIMPLE, unique=True, min_size=1, max_size=3),
)
_RECORDS = _records(_SIMPLE)
_SCHEMAS = st.one_of(_CONTAINERS, _RECORDS, _RECORDS.map(lambda inner: {"type": "array", "items": inner}))


@settings(max_examples=300)
@given(_SCHEMAS, _SCHEMAS)
def test_avros_rules_are_those_of_apaches_implementation(reader: Any, writer: Any) -> None:
    verdict = ReaderWriterCompatibilityChecker().get_compatibility(
        make_avsc_object(reader), make_avsc_object(writer)
    )

    complaints = avro_complaints("AVRO", json.dumps(reader), json.dumps(writer))

    assert (not complaints) == (verdict.compatibility is SchemaCompatibilityType.compatible), complaints


def test_a_type_within_itself_is_compared_once() -> None:
    node = '{"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}%s]}'

    assert avro_complaints("AVRO", node % "", node % "") == []
    assert avro_complaints("AVRO", node % ', {"name": "value", "type": "int"}', node % "") != []
