"""Starts the secured Kafka with its certificates, its token server and, where the machine has one, its Kerberos.

Used by the fixtures of `tests/integration`, and by a test that needs nodes of its own.

1. `alice`'s SCRAM passwords are there when the nodes are formatted, the other users' are made at run time: the two
   ways that Kafka has.
2. The listener `CLIENTS` stays plaintext and without a login: harness and readers are not what is tested.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, Consumer, Message, TopicPartition
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from joserfc.jwk import RSAKey

from tests.kafka_cluster import BROKER_JVM_FLAGS, KafkaCluster
from tests.kafka_tools import ConsumedRecord
from tests.secured import kdc
from tests.secured.certificates import Certificates
from tests.secured.kdc import Kdc
from tests.secured.listeners import LISTENERS, PASSWORDS, Listener, settings
from tests.security.oidc_server import TokenServer, key_set, running_server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kafka_tools import KafkaTools

ITERATIONS = 4096

# A bound for a hang: a million records are read in seconds.
_PATIENCE = 120.0


class SecuredKafka(KafkaCluster):
    """As its base, with the listeners of `tests.secured.listeners`.

    Attributes:
        certificates: What its listeners show, what clients show and trust.
        tokens: The token server, once it runs; brokers have its keys in a file, and do not depend on its life.
        kdc: The Kerberos; `None` where there is none, and no listener takes GSSAPI.
    """

    tokens: TokenServer

    def __init__(
        self,
        tools: KafkaTools,
        directory: Path,
        *,
        brokers: int = 1,
        listeners: Mapping[str, Listener] = LISTENERS,
    ) -> None:
        folders = {name: directory / name for name in ("certificates", "tokens", "kerberos")}
        for folder in folders.values():
            folder.mkdir()
        self.certificates = Certificates(folders["certificates"])
        self._key = RSAKey.generate_key(2048)
        jwks = folders["tokens"] / "jwks.json"
        jwks.write_text(json.dumps(key_set(self._key)))
        self.kdc = None if kdc.why_not() else Kdc(folders["kerberos"])
        self._beside = ExitStack()
        flags = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks.as_uri()}"]
        if self.kdc is not None:
            flags.append(f"-Djava.security.krb5.conf={self.kdc.config}")
        alice = f"name=alice,iterations={ITERATIONS},password={PASSWORDS['alice']}"
        super().__init__(
            tools,
            directory,
            brokers=brokers,
            properties=settings(listeners, self.certificates, jwks, self.kdc),
            jvm_flags=(*BROKER_JVM_FLAGS, *flags),
            listeners={name: listener.protocol for name, listener in listeners.items()},
            format_options=[
                word
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                for word in ("--add-scram", f"{mechanism}=[{alice}]")
            ],
        )

    def __enter__(self) -> Self:
        broker = self.certificates.leaves["broker"].pem
        self.tokens = self._beside.enter_context(running_server(certificate=broker, key=self._key))
        if self.kdc is not None:
            self._beside.enter_context(self.kdc)
        super().__enter__()
        try:
            self.mend_passwords()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """As its base, with the servers that it needs."""
        super().close()
        self._beside.close()

    def mend_passwords(self) -> None:
        """Give every user but `alice` the password that it is to have."""
        for user, password in PASSWORDS.items():
            if user != "alice":
                self.set_scram_password(user, password)

    def set_scram_password(self, user: str, password: str) -> None:
        """Give a user a password for both kinds of SCRAM."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            # One at a time: a request that has a user twice is refused.
            info = ScramCredentialInfo(mechanism, ITERATIONS)
            wanted = UserScramCredentialUpsertion(user, info, password.encode())
            self.admin.alter_user_scram_credentials([wanted], request_timeout=30.0)[user].result(60.0)

    def read_back(self, topic: str) -> list[ConsumedRecord]:
        """All that a topic has up to this moment, by partition and offset, from librdkafka's consumer."""
        ends = {partition: end for partition, (_, end) in self.offsets(topic).items() if end}
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
        )
        found: list[ConsumedRecord] = []
        try:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
            wanted, deadline = sum(ends.values()), time.monotonic() + _PATIENCE
            while len(found) < wanted:
                # It waits for as many as it is told, or for the whole time.
                for message in consumer.consume(min(10_000, wanted - len(found)), 0.5):
                    if message.error() is not None:
                        raise RuntimeError(str(message.error()))
                    found.append(_record(message))
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{len(found)} of {wanted} records of {topic} came in {_PATIENCE:g} s")
        finally:
            consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))


def _record(message: Message) -> ConsumedRecord:
    kind, timestamp = message.timestamp()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return ConsumedRecord(
        partition=partition,
        offset=offset,
        timestamp=timestamp,
        timestamp_type="CreateTime" if kind == TIMESTAMP_CREATE_TIME else "LogAppendTime",
        headers=(),
        key=message.key(),
        value=message.value(),
    )
