"""Every error of the pipeline on Spark, as one tree under the producer's.

    ProducerError
    └── SparkPipelineError
        ├── OptionError (ValueError)         an option of the sink is unknown, refused, or at odds with another
        ├── ColumnError (ValueError)         the DataFrame's columns are not what a record is made of
        ├── RowError (ValueError)            one row can never be sent as it is
        ├── RowOrderError                    the plan does not fix the order of rows, so row numbers are no ids
        ├── WriteError                       a task could not write all of its rows
        ├── LoopEndedError                   the event loop of a worker process ended, or does not answer
        ├── TopicError                       a topic is missing, or the cluster does not tell
        ├── JavaError                        Java is missing or too old for Spark
        ├── ConnectorMissingError            Spark's own Kafka connector is not among its jars
        ├── CheckpointError                  a checkpoint is missing, or is of another query
        ├── LayoutError                      a directory is not the lake that it should be
        │   ├── ManifestError                what says how far a compaction got is damaged, or at odds with the lake
        │   └── LakeChangingError            the lake changed each time that it was listed
        ├── RunningError                     another process is at it
        │   ├── CompactRunningError          another compact works on this table
        │   └── LandRunningError             another land works with this checkpoint
        ├── CompactCheckError                a compacted file is not what it was made of; the lake is as it was
        └── StampHeaderError (ValueError)    a stamp's header is not one

What the sink raises reaches a user as the text of Spark's own exception, below a traceback. So the first line of
each message says what is wrong and what to do, and none shows a secret.
"""

from __future__ import annotations

from aioproduce.errors import ProducerError


class SparkPipelineError(ProducerError):
    """The root of the errors of `aioproduce.spark`."""


class OptionError(SparkPipelineError, ValueError):
    """An option of the sink that is unknown, refused, out of range, or contradicts another.

    Attributes:
        option: Its name, in lower case as Spark hands it over; `None` where several are at odds.
        suggestion: The option that was probably meant, or `None`.
    """

    def __init__(self, message: str, *, option: str | None = None, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.option = option
        self.suggestion = suggestion


class ColumnError(SparkPipelineError, ValueError):
    """A column is missing, unknown, or of a type that cannot be sent.

    Attributes:
        column: Its name; `None` where none is to blame.
        suggestion: The column that was probably meant, or `None`.
    """

    def __init__(self, message: str, *, column: str | None = None, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.column = column
        self.suggestion = suggestion


class RowError(SparkPipelineError, ValueError):
    """One row can never be sent as it is: no topic, too large, a header without a name.

    Attributes:
        row: Its number within the task's partition, from 0; `None` where that is not known.
        column: The column to blame, or `None`.
        topic: Where it was to go, or `None`.
    """

    def __init__(
        self, message: str, *, row: int | None = None, column: str | None = None, topic: str | None = None
    ) -> None:
        super().__init__(message)
        self.row = row
        self.column = column
        self.topic = topic


class RowOrderError(SparkPipelineError):
    """The plan does not fix the order of rows within a partition, so that row numbers are no ids.

    Attributes:
        operator: The operator of the plan that is to blame, or `None`.
    """

    def __init__(self, message: str, *, operator: str | None = None) -> None:
        super().__init__(message)
        self.operator = operator


class WriteError(SparkPipelineError):
    """A task could not write all of its rows. What it had acknowledged stays in the topic.

    Attributes:
        partition: Spark's partition.
        acknowledged: Rows of this attempt that are in the topic.
        unknown: Rows of this attempt that may be there or not.
    """

    def __init__(
        self, message: str, *, partition: int | None = None, acknowledged: int = 0, unknown: int = 0
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.acknowledged = acknowledged
        self.unknown = unknown


class LoopEndedError(SparkPipelineError):
    """The event loop's thread of a worker process ended, or does not answer, while a task waited for it."""


class TopicError(SparkPipelineError):
    """A topic is missing, or the cluster did not tell in time whether it is there.

    Attributes:
        topic: Its name.
        is_missing: Whether the cluster said that there is none; if not, it could not be asked.
    """

    def __init__(self, message: str, *, topic: str | None = None, is_missing: bool = False) -> None:
        super().__init__(message)
        self.topic = topic
        self.is_missing = is_missing


class JavaError(SparkPipelineError):
    """Java is missing, or too old for this Spark.

    Attributes:
        found: The version found, e.g. 11; `None` where there is none.
        needed: The least that will do.
    """

    def __init__(self, message: str, *, found: int | None = None, needed: int | None = None) -> None:
        super().__init__(message)
        self.found = found
        self.needed = needed


class ConnectorMissingError(SparkPipelineError):
    """Spark's own Kafka connector, which the jobs read through, is not among Spark's jars.

    Attributes:
        coordinates: What `--packages` or `spark.jars.packages` takes, or `None`.
    """

    def __init__(self, message: str, *, coordinates: str | None = None) -> None:
        super().__init__(message)
        self.coordinates = coordinates


class _PathError(SparkPipelineError):
    """Something is wrong with a file or a directory.

    Attributes:
        path: Which, or `None`.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class CheckpointError(_PathError):
    """A checkpoint is missing, damaged, or belongs to another query."""


class LayoutError(_PathError):
    """A directory or a file's name is not one of the lake's."""


class ManifestError(LayoutError):
    """What says how far a compaction got is damaged, of another version, or at odds with what is in the lake."""


class LakeChangingError(LayoutError):
    """Each time that the lake was listed, a compaction was done in between."""


class RunningError(SparkPipelineError):
    """Another process is at what only one may do at a time.

    Attributes:
        path: The lock's file.
        owner: What the other says of itself: host, process id and since when, as JSON; may be empty.
    """

    def __init__(self, message: str, *, path: str, owner: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.owner = owner


class CompactRunningError(RunningError):
    """Another process compacts this table."""


class LandRunningError(RunningError):
    """Another process lands with this checkpoint."""


class CompactCheckError(SparkPipelineError):
    """A compacted file, read back, is not what it was made of. It is thrown away, its sources stay.

    Attributes:
        hour: The hour's directory.
        expected: Rows, and checksums of ids and sizes, of the sources.
        found: The same of the compacted file.
    """

    def __init__(self, message: str, *, hour: str, expected: str = "", found: str = "") -> None:
        super().__init__(message)
        self.hour = hour
        self.expected = expected
        self.found = found


class StampHeaderError(SparkPipelineError, ValueError):
    """The header of a stamp is not one: of another length, or there is more than one of its name."""
