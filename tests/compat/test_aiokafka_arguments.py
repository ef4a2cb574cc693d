"""What aiokafka's producer is made of: its arguments, defaults, and what it refuses. Every test runs on both."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import subprocess
import sys
import weakref
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer as TheirProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import IllegalOperation
from aiokafka.structs import TopicPartition

from aioproduce.compat.aiokafka import AIOKafkaProducer as OurProducer
from aioproduce.compat.aiokafka import BatchBuilder
from aioproduce.config import Secret
from aioproduce.errors import ConfigError
from tests.compat.aiokafka_sides import SIDES

# Made where they are not given: there is nothing to compare.
SENTINELS = ("acks", "partitioner")
METHODS = (
    "send",
    "send_and_wait",
    "send_batch",
    "create_batch",
    "flush",
    "partitions_for",
    "start",
    "stop",
    "begin_transaction",
    "commit_transaction",
    "abort_transaction",
    "transaction",
    "send_offsets_to_transaction",
)


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [
        (each.name, each.kind, None if each.name in SENTINELS else each.default)
        for each in inspect.signature(function).parameters.values()
        if each.name != "self"
    ]


def test_the_constructor_takes_the_same() -> None:
    assert sorted(parameters(OurProducer.__init__)) == sorted(parameters(TheirProducer.__init__))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_the_same(name: str) -> None:
    ours, theirs = getattr(OurProducer, name), getattr(TheirProducer, name)
    assert parameters(ours) == parameters(theirs)
    is_async = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction
    assert is_async(ours) == is_async(theirs)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"acks": 122}, "Invalid ACKS parameter"),
        ({"acks": "1"}, "Invalid ACKS parameter"),
        ({"compression_type": "my_custom"}, "Invalid compression type!"),
        ({"acks": 1, "enable_idempotence": True}, "acks=1 not supported if enable_idempotence=True"),
        ({"acks": 0, "enable_idempotence": True}, "acks=0 not supported if enable_idempotence=True"),
        ({"acks": 1, "transactional_id": "x"}, "acks=1 not supported if enable_idempotence=True"),
        ({"security_protocol": "SOME"}, "`security_protocol` should be SSL or PLAINTEXT"),
        ({"security_protocol": "SSL"}, "`ssl_context` is mandatory if security_protocol=='SSL'"),
        ({"security_protocol": "SASL_SSL"}, "`ssl_context` is mandatory if security_protocol=='SSL'"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "some"}, "are supported"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "sasl_plain_username and sasl_plain_password required"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "me"},
            "sasl_plain_username and sasl_plain_password required",
        ),
    ],
)
async def test_a_value_is_refused(side: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        side(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        *({"acks": acks} for acks in (0, 1, -1, "all")),
        *({"acks": acks, "enable_idempotence": True} for acks in (-1, "all")),
        *({"compression_type": codec} for codec in (None, "gzip", "snappy", "lz4", "zstd")),
        {"connections_max_idle_ms": None},
        {"linger_ms": 0.5, "request_timeout_ms": 1500.5},
        {"bootstrap_servers": ["a", "b:9093", "[::1]:9094"]},
        {"bootstrap_servers": "a,b:9093, c"},
        {"max_batch_size": 8 * 2**20},
        {"max_batch_size": 100_000_000},
        {"max_request_size": 1000},
        # Of no effect without a protocol that wants them. (An id of its own: a context's text has its address.)
        pytest.param(
            {
                "ssl_context": ssl.create_default_context(),
                "sasl_plain_username": "me",
                "sasl_plain_password": "x",
            },
            id="security without a protocol",
        ),
        {"sasl_mechanism": "some"},
    ],
    ids=str,
)
async def test_a_value_is_taken(side: Any, arguments: dict[str, Any]) -> None:
    producer = side(**{"bootstrap_servers": "localhost", **arguments})
    await producer.stop()


async def test_what_is_meant_by_the_defaults() -> None:
    producer = OurProducer()
    config = producer._sends.config
    assert (config.acks, config.enable_idempotence, config.max_in_flight) == (1, False, 1)
    assert (config.linger, config.batch_size, config.max_request_size) == (0, 16384, 1048576)
    assert (config.request_timeout, config.max_block, config.delivery_timeout) == (40, 40, 80)
    assert (config.metadata_max_age, config.retry_backoff, config.connections_max_idle) == (300, 0.1, 540)
    assert config.bootstrap_servers == (("localhost", 9092),)
    await producer.stop()


async def test_with_idempotence_acks_are_those_of_all() -> None:
    producer = OurProducer(enable_idempotence=True)
    config = producer._sends.config
    assert (config.acks, config.enable_idempotence, config.max_in_flight) == (-1, True, 5)
    assert config.delivery_timeout == 120
    await producer.stop()


async def test_clients_are_numbered(side: Any) -> None:
    first, second = side(), side()
    numbers = [int(each.client._client_id.removeprefix("aiokafka-producer-")) for each in (first, second)]
    assert numbers[1] == numbers[0] + 1
    named = side(client_id="mine")
    assert named.client._client_id == "mine"
    for each in (first, second, named):
        await each.stop()


def test_outside_of_a_loop_one_is_to_be_given(side: Any) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with pytest.raises(RuntimeError, match="should be created within an async function"):
            side()
        with pytest.warns(DeprecationWarning, match="The `loop` parameter has been deprecated"):
            producer = side(loop=loop)
        loop.run_until_complete(producer.stop())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def test_the_version_of_the_api_is_of_no_use_any_more(side: Any) -> None:
    with pytest.warns(DeprecationWarning, match="The `api_version` parameter has been deprecated"):
        producer = side(api_version="2.0")
    await producer.stop()


async def test_a_start_on_another_loop_than_its_own_is_refused(side: Any) -> None:
    other = asyncio.new_event_loop()
    try:
        with pytest.warns(DeprecationWarning, match="The `loop` parameter"):
            producer = side(loop=other)
        with pytest.raises(AssertionError, match="with the same loop"):
            await producer.start()
        await producer.stop()
    finally:
        other.close()


# -- transactions, and security ---


async def test_transactions_need_an_id(side: Any) -> None:
    producer = side()
    for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(IllegalOperation, match="You need to configure transaction_id"):
            await call()
    with pytest.raises(IllegalOperation, match="You need to configure transaction_id"):
        await producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "group")
    with pytest.raises(IllegalOperation, match="You need to configure transaction_id"):
        async with producer.transaction():
            pytest.fail("there is no transaction")
    await producer.stop()


CONTEXT = ssl.create_default_context()
USER = {"sasl_plain_username": "me", "sasl_plain_password": "hunter2"}


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return "hunter2"


TOKENS = Tokens()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"security_protocol": "SSL", "ssl_context": CONTEXT}, {"ssl_context": CONTEXT}),
        # Of the arguments that a protocol does not want, none counts.
        ({"ssl_context": CONTEXT, **USER}, {"ssl_context": None, "sasl_username": None}),
        (
            {"security_protocol": "SASL_PLAINTEXT", **USER},
            {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": Secret("hunter2")},
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "ssl_context": CONTEXT,
                "sasl_mechanism": "SCRAM-SHA-256",
                **USER,
            },
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_password": Secret("hunter2"), "ssl_context": CONTEXT},
        ),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "GSSAPI",
                "sasl_kerberos_domain_name": "broker.example",
            },
            {"sasl_kerberos_service_name": "kafka", "sasl_kerberos_domain_name": "broker.example"},
        ),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": TOKENS,
            },
            {"sasl_oauthbearer_token_provider": TOKENS, "sasl_username": None},
        ),
    ],
    ids=["TLS", "none", "PLAIN", "SCRAM", "GSSAPI", "OAUTHBEARER"],
)
async def test_who_logs_in_and_how(arguments: dict[str, Any], expected: dict[str, Any]) -> None:
    theirs = TheirProducer(**arguments)  # which takes them, too
    ours = OurProducer(**arguments)
    config = ours._sends.config
    assert config.security_protocol == arguments.get("security_protocol", "PLAINTEXT")
    assert {name: getattr(config, name) for name in expected} == expected
    assert "hunter2" not in repr(config)
    await ours.stop()
    await theirs.stop()


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [("SCRAM-SHA-512", "needs a name and a password"), ("OAUTHBEARER", "needs tokens")],
)
async def test_what_only_ours_misses_at_once(mechanism: str, words: str) -> None:
    # aiokafka fails when it connects.
    with pytest.raises(ConfigError, match=words):
        OurProducer(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism)


async def test_what_only_ours_refuses_is_a_value_error_too() -> None:
    with pytest.raises(ConfigError) as caught:
        OurProducer(linger_ms=-1)
    assert isinstance(caught.value, ValueError)


def test_without_aiokafka_the_extra_is_named() -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "aiokafka":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from aioproduce.errors import MissingExtraError
try:
    import aioproduce.compat.aiokafka
except MissingExtraError as error:
    print(error.extra, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("aiokafka aioproduce.compat.aiokafka needs aiokafka")
    assert "pip install 'aioproduce[aiokafka]'" in done.stdout


async def test_its_fields_are_in_slots_and_who_extends_it_adds_theirs() -> None:
    class Noted(OurProducer):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.note = "theirs"

    plain, noted = OurProducer(), Noted()
    # Interpreted, the base has no slots, and one field of its own.
    assert not vars(plain).keys() - {"_path"}
    assert vars(noted).keys() - {"_path"} == {"note"}
    plain.remark = "kept"  # type: ignore[attr-defined]
    assert vars(plain)["remark"] == "kept"
    assert weakref.ref(plain)() is plain
    await plain.stop()
    await noted.stop()


def test_it_is_one_class_for_who_extends_it() -> None:
    class Counting(OurProducer):
        calls = 0

        async def send(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return await super().send(*args, **kwargs)

    assert Counting.send is not OurProducer.send
    assert set(SIDES) == {"aiokafka", "aioproduce"}
    assert {"append", "close", "closed", "record_count", "size"} <= set(dir(BatchBuilder))
