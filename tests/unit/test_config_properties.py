"""Java's `.properties` files, against what `java.util.Properties` itself reads.

`kafka_config/properties.json` is what Java 17 made of `kafka_config/nasty.properties`, printed by
`KafkaConfigOracle.java`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.config import ProducerConfig, load_properties
from aioproduce.config.properties import properties_text
from aioproduce.errors import ConfigError

ORACLE = Path(__file__).parent / "kafka_config"


def test_a_nasty_file_reads_as_in_java() -> None:
    expected = json.loads((ORACLE / "properties.json").read_text(encoding="ascii"))
    assert len(expected) > 25
    assert load_properties(ORACLE / "nasty.properties") == expected
    assert load_properties(os.fspath(ORACLE / "nasty.properties")) == expected


def test_what_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    """Values as Java reads them: those of the oracle."""
    values = json.loads((ORACLE / "properties.json").read_text(encoding="ascii")).values()
    expected = {f"key.{number}": value for number, value in enumerate(values)}
    expected |= {
        "pem": "one\ntwo\r\n",
        "edges": " \t\\ ",
        "plane": "\U0001f600",
        "none": "",
        "equals": "=:#!",
    }
    path = tmp_path / "written.properties"
    path.write_text(properties_text(expected), encoding="ascii")
    assert load_properties(path) == expected


def test_a_file_from_real_life_makes_a_config(tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text(
        "# what a Java service was run with\n"
        "bootstrap.servers=kafka-1:9092,\\\n    kafka-2:9092\n"
        "key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "value.serializer=org.apache.kafka.common.serialization.ByteArraySerializer\n"
        "security.protocol=PLAINTEXT\n"
        "ssl.endpoint.identification.algorithm=https\n"
        "sasl.mechanism=GSSAPI\n"
        "interceptor.classes=\n"
        "metric.reporters=\n"
        "enable.metrics.push=false\n"
        "acks = all\n"
        "linger.ms: 20\n"
        "compression.type zstd\n"
    )
    config = ProducerConfig.from_mapping(load_properties(path))
    assert config.bootstrap_servers == (("kafka-1", 9092), ("kafka-2", 9092))
    assert config.key_serializer is not None
    assert config.key_serializer("k") == b"k"
    assert config.value_serializer is None
    assert (config.linger, config.compression_type, config.enable_idempotence) == (0.02, "zstd", True)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties.*No such file") as caught:
        load_properties(tmp_path / "absent.properties")
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_properties(tmp_path)


@pytest.mark.parametrize("escape", [r"\u12", r"\u12g4", r"\u", r"\u 123", r"\u+123"])
def test_a_broken_unicode_escape_is_named_by_its_line(tmp_path: Path, escape: str) -> None:
    path = tmp_path / "broken.properties"
    path.write_text(f"linger.ms=5\n\nsasl.password=hunter2{escape}\n")
    with pytest.raises(ConfigError, match=r"broken\.properties.*line 3") as caught:
        load_properties(path)
    assert "hunter2" not in str(caught.value)


def test_a_backslash_all_alone(tmp_path: Path) -> None:
    # As Java: after it the next line may still be a comment, and is one of its own.
    path = tmp_path / "alone.properties"
    path.write_bytes(b" \\\r\n! a comment\na=b\n\\\n\nc=d\n")
    assert load_properties(path) == {"a": "b", "c": "d"}
    path.write_bytes(b"a=b\n\\\n\n")
    assert load_properties(path) == {"a": "b"}


def test_a_backslash_all_alone_at_the_end_of_the_file(tmp_path: Path) -> None:
    # What Java 17 makes of each: an empty pair, but for CR and LF.
    path = tmp_path / "alone.properties"
    for end, expected in ((b"\\", {"": ""}), (b"\\\n", {"": ""}), (b"\\\r", {"": ""}), (b"\\\r\n", {})):
        path.write_bytes(b"a=b\n" + end)
        assert load_properties(path) == {"a": "b"} | expected


PIECES = st.sampled_from(
    [b"a", b"=", b":", b" ", b"\t", b"\f", b"\n", b"\r", b"\\", b"#", b"!", b"\\u0041", b"\\ud83d"]
)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=40), st.lists(PIECES, max_size=30).map(b"".join)))
def test_any_bytes_give_strings_or_a_config_error(content: bytes) -> None:
    path = Path(os.devnull)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda _self: content)
        try:
            properties = load_properties(path)
        except ConfigError:
            assert b"\\u" in content.replace(b"\\\\", b"")
            return
    assert all(isinstance(text, str) for pair in properties.items() for text in pair)
