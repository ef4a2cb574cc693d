"""Asks a cluster for its topics and their partitions before a job reads, with the connector's own client.

That client is used because it accepts the same settings (`kafka.security.protocol` and so on) as the reading
itself.

Invariants:

1. Asking creates nothing.
2. A cluster that does not answer is an error within the timeout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, final

from py4j.protocol import Py4JJavaError

from aioproduce.audit import DEFAULT_AUDIT_TOPIC
from aioproduce.spark.errors import TopicError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

_TIMEOUT_MS: Final = 30_000


@final
@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """The topics of a cluster that a job may read.

    Attributes:
        partitions: The numbers of each topic's partitions.
    """

    partitions: Mapping[str, Sequence[int]]

    @classmethod
    def ask(
        cls, spark: SparkSession, kafka: Mapping[str, str], topics: Sequence[str], pattern: str | None = None
    ) -> Self:
        """Ask for some topics, and for those that a pattern matches; missing ones are not in the result.

        Args:
            spark: A session with the connector.
            kafka: The options of the source: `kafka.` and the consumer's settings.
            topics: Names.
            pattern: A Java regular expression for whole names.

        Raises:
            TopicError: If the cluster did not answer.
        """
        jvm: Any = spark.sparkContext._jvm
        settings = jvm.java.util.Properties()
        for key, value in kafka.items():
            settings.setProperty(key.removeprefix("kafka."), value)
        settings.setProperty("default.api.timeout.ms", str(_TIMEOUT_MS))
        settings.setProperty("request.timeout.ms", str(_TIMEOUT_MS // 2))
        try:
            client = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
            try:
                there = set(client.listTopics().names().get())
                chosen = {topic for topic in topics if topic in there}
                if pattern is not None:
                    matches = jvm.java.util.regex.Pattern.matches
                    chosen |= {topic for topic in there if matches(pattern, topic)}
                told = client.describeTopics(jvm.java.util.HashSet(sorted(chosen))).allTopicNames().get()
                return cls(
                    {
                        topic: tuple(each.partition() for each in told[topic].partitions())
                        for topic in sorted(chosen)
                    }
                )
            finally:
                client.close()
        except Py4JJavaError as error:
            cause = error.java_exception
            said = (cause.getCause() or cause).toString()
            servers = kafka["kafka.bootstrap.servers"]
            raise TopicError(
                f"the brokers {servers} did not report the topics ({said}): check --bootstrap-servers and"
                " the settings of --kafka from this machine"
            ) from error

    def check(self, topics: Iterable[str], remedy: str) -> None:
        """Check that topics exist.

        Args:
            topics: Their names.
            remedy: The alternative to creating them, for the error.

        Raises:
            TopicError: If one is missing.
        """
        if missing := [name for name in topics if name not in self.partitions]:
            raise TopicError(
                f"there is no topic {', '.join(missing)}: create it, or {remedy}",
                topic=missing[0],
                is_missing=True,
            )

    def marks_topic(self, named: str | None) -> str | None:
        """Return the topic of the producers' marks; None for none.

        Args:
            named: The value of `--audit-topic`, `none` for none. None for the default topic, which may be missing:
                not every producer has an Auditor.

        Raises:
            TopicError: If the named one is missing.
        """
        if named is None:
            return DEFAULT_AUDIT_TOPIC if DEFAULT_AUDIT_TOPIC in self.partitions else None
        if named == "none":
            return None
        self.check([named], "correct --audit-topic, or use `--audit-topic none`")
        return named
