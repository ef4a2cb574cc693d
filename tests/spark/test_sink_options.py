"""The sink's options and columns: what a user can get wrong is refused on the driver, with the remedy. No JVM."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from aioproduce.config import ProducerConfig, Secret
from aioproduce.spark.columns import SinkColumns
from aioproduce.spark.errors import ColumnError, OptionError
from aioproduce.spark.option_table import markdown_table
from aioproduce.spark.options import SinkOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-sink.md"
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def options(**more: str) -> SinkOptions:
    return SinkOptions.parse({**SERVERS, **{name.replace("_", "."): value for name, value in more.items()}})


def schema(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


# -- options that are taken ---


def test_names_in_any_case_and_values_as_they_are() -> None:
    found = SinkOptions.parse(
        {"Kafka.Bootstrap.Servers": "localhost:9092", "TOPIC": "Orders", "Rate.Limit.Bytes": " 1000 "}
    )

    assert (found.topic, found.rate_limit_bytes) == ("Orders", 1000)
    assert dict(found.kafka)["bootstrap.servers"] == "localhost:9092"


def test_kafka_options_go_before_the_defaults_of_a_bulk_load() -> None:
    found = dict(options(kafka_linger_ms="3").kafka)

    assert (found["linger.ms"], found["compression.type"], found["batch.size"]) == ("3", "lz4", "524288")


def test_what_spark_adds_itself_is_no_business_of_the_sink() -> None:
    for name in ("checkpointLocation", "queryName", "includeHeaders"):
        assert SinkOptions.parse({**SERVERS, name: "true"}) == options()


def test_headers_by_name_and_as_json() -> None:
    found = SinkOptions.parse({**SERVERS, "headers": '{"TraceId": "7"}', "header.source": "spark"})

    assert found.headers == (("TraceId", b"7"), ("source", b"spark"))


def test_options_travel_and_are_keys() -> None:
    found = options(topic="orders")

    assert pickle.loads(pickle.dumps(found)) == found
    assert len({found, options(topic="orders"), options(topic="others")}) == 2


def test_the_repr_shows_what_is_set_and_no_header_s_value() -> None:
    text = repr(SinkOptions.parse({**SERVERS, "topic": "orders", "header.authorization": "hush"}))

    assert "topic='orders'" in text
    assert "authorization" in text
    assert "hush" not in text


def test_the_page_has_the_options_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert markdown_table() in page, "print(aioproduce.spark.option_table.markdown_table())"


# -- options that are refused: the option, its message, and what was probably meant ---

REFUSED = [
    ({"topc": "orders"}, "unknown option 'topc': did you mean 'topic'?", "topic"),
    ({"on.eror": "fail"}, "unknown option 'on.eror': did you mean 'on.error'?", "on.error"),
    ({"inflight_batches": "1"}, "did you mean 'inflight.batches'?", "inflight.batches"),
    ({"bootstrap.servers": "a:1"}, "did you mean 'kafka.bootstrap.servers'?", "kafka.bootstrap.servers"),
    ({"linger.ms": "1"}, "did you mean 'kafka.linger.ms'?", "kafka.linger.ms"),
    (
        {"kafka.liner.ms": "1"},
        "unknown option 'kafka.liner.ms': did you mean 'kafka.linger.ms'?",
        "kafka.linger.ms",
    ),
    ({"colour": "red"}, "the options are topic, delivery, stamp, write.id", None),
    ({"subscribe": "orders"}, "is an option of Spark's Kafka source, but this is a sink", None),
    ({"path": "/lake"}, "the sink has no path: set the topic with .option('topic', ...)", "topic"),
    ({"topic": " "}, "option topic=' ' is empty", None),
    ({"delivery": "exactly_once"}, "needs transactions, which come in a later version", None),
    (
        {"delivery": "at_most_once"},
        "is not allowed (did you mean 'at_least_once'?): it accepts only at_least_once",
        None,
    ),
    ({"stamp": "maybe"}, "option stamp='maybe' is not allowed: it accepts on or off", None),
    ({"row.order": "sorted"}, "(did you mean 'sort'?): it accepts one of plan, sort", None),
    ({"on.error": "skip"}, "it accepts one of fail, dead_letter, drop", None),
    ({"rate.limit.bytes": "1.5"}, "'1.5' is not a whole number: it accepts 0 to", None),
    ({"rate.limit.records": "-1"}, "'-1' is out of range: it accepts 0 to", None),
    ({"inflight.batches": "0"}, "'0' is out of range: it accepts 1 to 1000", None),
    ({"headers": "a=b"}, """is not JSON""", None),
    ({"headers": '{"a": 1}'}, """it accepts {"name": "value"}""", None),
    ({"header.ap.id": "x"}, "contradicts stamp=on", None),
    ({"on.error": "dead_letter"}, "needs dead.letter.topic: set it to the topic", None),
    ({"dead.letter.topic": "bad"}, "has no effect with on.error=fail: set on.error=dead_letter", None),
    ({"write.id": "a", "stamp": "off"}, "contradicts stamp=off", None),
    ({"id.column": "n", "stamp": "off"}, "contradicts stamp=off", None),
    ({"id.column": "n", "row.order": "sort"}, "has no effect with id.column", None),
    ({"kafka.acks": "0"}, "contradicts delivery=at_least_once", None),
    ({"kafka.linger.ms": "soon"}, "option kafka.linger.ms='soon' is not a whole number", None),
    ({"kafka.key.serializer": "x"}, "is refused: the column key is sent unchanged", None),
    ({"kafka.config.providers.file.class": "x"}, "read the secret in Python", None),
    ({"kafka.transactional.id": "x"}, "an id is for one producer", None),
    ({"kafka.sasl.mechanism": "EXTERNAL"}, "kafka.sasl.mechanism='EXTERNAL' is not allowed", None),
    ({"kafka.security.protocol": "SASL_SSL"}, "security.protocol=SASL_SSL needs sasl.mechanism", None),
    ({"kafka.ssl.context": "x"}, "this is a Python object; see kafka.ssl.truststore.location", None),
    ({"kafka.sasl.credentials.provider": "x"}, "this is a function; see kafka.sasl.jaas.config", None),
    ({"kafka.sasl.oauthbearer.token.provider": "x"}, "see kafka.sasl.oauthbearer.token.endpoint.url", None),
]


@pytest.mark.parametrize(
    ("given", "message", "suggestion"),
    REFUSED,
    ids=[" ".join(map("=".join, row[0].items())) for row in REFUSED],
)
def test_an_option_is_refused_with_the_remedy(
    given: dict[str, str], message: str, suggestion: str | None
) -> None:
    with pytest.raises(OptionError) as caught:
        SinkOptions.parse({**SERVERS, **given})

    assert message in str(caught.value).splitlines()[0]
    assert caught.value.suggestion == suggestion


def test_no_cluster() -> None:
    with pytest.raises(
        OptionError, match=r"kafka\.bootstrap\.servers is missing: set the cluster's addresses"
    ) as caught:
        SinkOptions.parse({"topic": "orders"})
    assert caught.value.option == "kafka.bootstrap.servers"


LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": "hush-hush",
    "kafka.ssl.truststore.location": "/ca.pem",
    "kafka.ssl.truststore.password": "hush-store",
    "kafka.ssl.keystore.location": "/key.p12",
    "kafka.ssl.keystore.password": "hush-key",
}


def test_security_goes_through_to_the_producer_and_no_secret_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = pickle.loads(pickle.dumps(SinkOptions.parse({**SERVERS, **LOGIN})))  # as it goes to the tasks

    assert {f"kafka.{name}": value for name, value in made.kafka}.items() >= LOGIN.items()
    config = ProducerConfig.from_mapping(dict(made.kafka))
    assert (config.security_protocol, config.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert config.sasl_jaas_config == Secret("hush-hush")
    assert "hush" not in f"{made} {made!r} {config!r} {caplog.text}"
    assert "kafka.sasl.jaas.config=<hidden>" in repr(made)
    assert "kafka.sasl.mechanism='SCRAM-SHA-512'" in repr(made)


def test_a_secret_at_odds_is_in_no_message() -> None:
    for more in (
        {"kafka.sasl.username": "me", "kafka.sasl.password": "hush"},
        {"kafka.ssl.keystore.key": "hush"},
    ):
        with pytest.raises(OptionError, match="both set") as caught:
            SinkOptions.parse({**SERVERS, **LOGIN, **more})
        _check_hidden(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.cfg",
        "kafka.ssl.keystore.password",
        "kafka.sasl.password",
        "sasl.jaas.config",
        "password",
        "kafka.password",
    ],
)
def test_a_secret_is_in_no_message(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        SinkOptions.parse({**SERVERS, name: "hush-hush"})

    _check_hidden(caught.value)


@pytest.mark.parametrize(
    "value", ['{"authorization": "hush-hush"', '{"authorization": ["hush-hush"]}', '"hush-hush"', "hush-hush"]
)
def test_a_header_s_value_is_in_no_message(value: str) -> None:
    with pytest.raises(OptionError, match="headers") as caught:
        SinkOptions.parse({**SERVERS, "headers": value})

    _check_hidden(caught.value)


def _check_hidden(error: BaseException | None) -> None:
    while error is not None:
        assert "hush" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


# -- columns ---


def test_columns_by_their_places() -> None:
    found = SinkColumns.of(
        schema(
            timestamp=TimestampType(),
            value=BinaryType(),
            key=StringType(),
            n=LongType(),
            headers=HEADERS,
            partition=IntegerType(),
            topic=StringType(),
        ),
        options(id_column="n"),
    )

    assert found == SinkColumns(
        timestamp=0,
        value=1,
        key=2,
        id=3,
        headers=4,
        partition=5,
        topic=6,
        names=("timestamp", "value", "key", "n", "headers", "partition", "topic"),
    )


def test_the_option_topic_goes_before_the_column() -> None:
    found = SinkColumns.of(schema(value=StringType(), topic=StringType()), options(topic="orders"))

    assert (found.value, found.topic) == (0, None)


PAIR = ArrayType(StructType([StructField("name", StringType()), StructField("value", BinaryType())]))
TEXTS = ArrayType(StructType([StructField("key", StringType()), StructField("value", StringType())]))
BAD_COLUMNS = [
    (
        {"value": DoubleType()},
        "column 'value' is double, but must be string or binary: select CAST(value AS STRING)",
    ),
    ({"value": StringType(), "key": LongType()}, "column 'key' is bigint, but must be string or binary"),
    (
        {"value": StringType(), "headers": MapType(StringType(), BinaryType())},
        "column 'headers' is map<string,binary>",
    ),
    ({"value": StringType(), "headers": PAIR}, "must be array<struct<key:string,value:binary>>"),
    ({"value": StringType(), "headers": TEXTS}, "must be array<struct<key:string,value:binary>>"),
    ({"value": StringType(), "partition": LongType()}, "select CAST(partition AS INT) AS partition"),
    ({"value": StringType(), "topic": BinaryType()}, "column 'topic' is binary, but must be string"),
    ({"value": StringType(), "timestamp": LongType()}, "column 'timestamp' is bigint, but must be timestamp"),
    ({"value": StringType(), "timestamp": TimestampNTZType()}, "column 'timestamp' is timestamp_ntz"),
    ({"valeu": StringType()}, "unknown column 'valeu': did you mean 'value'?"),
    ({"Value": StringType()}, "unknown column 'Value': did you mean 'value'?"),
    (
        {"value": StringType(), "price": DoubleType()},
        "unknown column 'price': A record has the columns key, value",
    ),
    ({"key": StringType()}, "there is no column 'value' among 'key'"),
]


@pytest.mark.parametrize(("columns", "message"), BAD_COLUMNS, ids=[row[1][:60] for row in BAD_COLUMNS])
def test_a_column_is_refused_with_the_remedy(columns: dict[str, object], message: str) -> None:
    with pytest.raises(ColumnError) as caught:
        SinkColumns.of(schema(**columns), options(topic="orders"))

    assert message in str(caught.value).splitlines()[0]


def test_two_columns_of_one_name() -> None:
    twice = StructType([StructField("value", StringType()), StructField("value", StringType())])

    with pytest.raises(ColumnError, match="two columns 'value': drop or rename one"):
        SinkColumns.of(twice, options(topic="orders"))


def test_no_topic_at_all() -> None:
    with pytest.raises(
        ColumnError, match=r"there is no topic: set \.option\('topic', \.\.\.\), or add a column"
    ):
        SinkColumns.of(schema(value=StringType()), options())


def test_an_id_column_of_a_type_that_will_not_do() -> None:
    with pytest.raises(ColumnError, match="column 'n' is double, but must be string, binary, bigint or int"):
        SinkColumns.of(schema(value=StringType(), n=DoubleType()), options(topic="orders", id_column="n"))


def test_an_id_column_that_is_missing_or_a_part_of_the_record() -> None:
    with pytest.raises(ColumnError, match=r"no column 'n', which id\.column names, among 'value'"):
        SinkColumns.of(schema(value=StringType()), options(topic="orders", id_column="n"))
    with pytest.raises(ColumnError, match="names a column of the record"):
        SinkColumns.of(schema(value=StringType()), options(topic="orders", id_column="value"))
