"""Whatever is refused of a `.properties` file names the file and the line, and nothing else does."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from aioproduce import Producer, ProducerConfig, load_properties
from aioproduce.errors import ConfigError

SERVERS = "bootstrap.servers=localhost:9092\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "producer.properties"


@pytest.mark.parametrize(
    ("content", "lines", "key"),
    [
        (SERVERS + "# slow\n\nlinger.ms=five\n", [4], "linger.ms"),
        (SERVERS + "lingerms=5\n", [2], "lingerms"),
        (SERVERS + "client.id=a\\\n b\nacks=many\n", [4], "acks"),
        (SERVERS + "linger.ms=5\nlinger.ms=-1\n", [3], "linger.ms"),
        (SERVERS + "acks=1\nenable.idempotence=true\n", [2, 3], None),
        (SERVERS + "request.timeout.ms=5000\ndelivery.timeout.ms=1000\n", [2, 3], None),
        ("bootstrap.servers=localhost\n", [1], "bootstrap.servers"),
        (SERVERS + "ssl.keystore.password=hush\nssl.protocol=TLSv9\n", [3], "ssl.protocol"),
    ],
    ids=[
        "a value",
        "a key",
        "behind a continued line",
        "the last of two",
        "two at odds",
        "too short",
        "servers",
        "tls",
    ],
)
def test_the_line_is_named(path: Path, content: str, lines: list[int], key: str | None) -> None:
    path.write_text(content)
    origin = " and ".join(f"{str(path)!r}, line {line}" for line in lines)
    for make in (
        lambda: Producer.from_properties(path),
        lambda: ProducerConfig.from_mapping(load_properties(path)),
        lambda: Producer({"client.id": "shop", **load_properties(path)}),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value).startswith(f"{origin}: ")
        assert caught.value.origin == origin
        assert caught.value.key == key
        assert "hush" not in str(caught.value)


def test_what_came_from_elsewhere_is_not_blamed_on_the_file(path: Path) -> None:
    path.write_text(SERVERS + "linger.ms=5\n")
    with pytest.raises(ConfigError) as caught:
        Producer.from_properties(path, linger_ms="five")  # type: ignore[arg-type]  # the point of the test
    assert caught.value.origin is None
    assert str(path) not in str(caught.value)


def test_values_are_strings_like_any_other(path: Path) -> None:
    path.write_text(SERVERS + "client.id=shop\n")
    settings = load_properties(path)
    assert settings == {"bootstrap.servers": "localhost:9092", "client.id": "shop"}
    assert [type(value) for value in pickle.loads(pickle.dumps(settings)).values()] == [str, str]
    config = ProducerConfig.from_mapping(settings)
    assert type(config.client_id) is str
    assert config.origins == {
        "bootstrap.servers": f"{str(path)!r}, line 1",
        "client.id": f"{str(path)!r}, line 2",
    }
    assert pickle.loads(pickle.dumps(config)) == config


def test_settings_that_only_the_start_can_judge(path: Path) -> None:
    """A mechanism that is made of several keys is looked at when the producer starts."""
    path.write_text(
        SERVERS + "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=nonsense\n"
    )

    async def start() -> None:
        producer = Producer.from_properties(path)
        await producer.start()

    with pytest.raises(ConfigError) as caught:
        asyncio.run(start())
    assert caught.value.origin is not None
    assert str(path) in str(caught.value)
    assert "nonsense" not in str(caught.value)
