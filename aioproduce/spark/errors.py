"""All errors of the pipeline on Spark, as one tree under the producer's.

    ProducerError
    └── SparkPipelineError
        ├── OptionError (ValueError)         an option of the sink is unknown, refused, or contradicts another
        ├── ColumnError (ValueError)         the DataFrame's columns are not those of a record
        ├── RowError (ValueError)            a row can never be sent as it is
        ├── RowOrderError                    the plan does not fix the order of rows, so row numbers cannot be ids
        ├── WriteError                       a task could not write all of its rows
        ├── LoopEndedError                   the event loop of a worker process ended, or does not answer
        ├── TopicError                       a topic is missing, or the cluster does not answer
        ├── JavaError                        Java is missing or too old for Spark
        ├── ConnectorMissingError            Spark's own Kafka connector is not among its jars
        ├── CheckpointError                  a checkpoint is missing, or belongs to another query
        ├── LayoutError                      a directory is not the expected lake
        │   ├── ManifestError                a compaction's manifest is damaged, or contradicts the lake
        │   └── LakeChangingError            the lake changed each time that it was listed
        ├── RunningError                     another process is doing the same
        │   ├── CompactRunningError          another compact works on this table
        │   └── LandRunningError             another land works with this checkpoint
        ├── CompactCheckError                a compacted file differs from its sources; the lake is unchanged
        └── StampHeaderError (ValueError)    a stamp's header is not valid

A user sees the sink's errors as the text of Spark's own exception, below a traceback. So the first line of each
message contains cause and remedy. No message contains a secret.
"""

from __future__ import annotations

from aioproduce.errors import ProducerError


class SparkPipelineError(ProducerError):
    """The root of the errors of `aioproduce.spark`."""


class OptionError(SparkPipelineError, ValueError):
    """An option of the sink that is unknown, refused, out of range, or contradicts another.

    Attributes:
        option: Its name, in lower case as Spark passes it; `None` if several contradict each other.
        suggestion: The option that was probably meant, or `None`.
    """

    def __init__(self, message: str, *, option: str | None = None, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.option = option
        self.suggestion = suggestion


class ColumnError(SparkPipelineError, ValueError):
    """A column is missing, unknown, or of a type that cannot be sent.

    Attributes:
        column: Its name; `None` if the error is not about one column.
        suggestion: The column that was probably meant, or `None`.
    """

    def __init__(self, message: str, *, column: str | None = None, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.column = column
        self.suggestion = suggestion


class RowError(SparkPipelineError, ValueError):
    """A row that can never be sent as it is: no topic, too large, a header without a name.

    Attributes:
        row: Its number within the task's partition, from 0; `None` if unknown.
        column: The wrong column, or `None`.
        topic: The intended topic, or `None`.
    """

    def __init__(
        self, message: str, *, row: int | None = None, column: str | None = None, topic: str | None = None
    ) -> None:
        super().__init__(message)
        self.row = row
        self.column = column
        self.topic = topic


class RowOrderError(SparkPipelineError):
    """The plan does not fix the order of rows within a partition, so that row numbers cannot be ids.

    Attributes:
        operator: The responsible operator of the plan, or `None`.
    """

    def __init__(self, message: str, *, operator: str | None = None) -> None:
        super().__init__(message)
        self.operator = operator


class WriteError(SparkPipelineError):
    """A task could not write all of its rows. Acknowledged rows stay in the topic.

    Attributes:
        partition: Spark's partition.
        acknowledged: Rows of this attempt that are in the topic.
        unknown: Rows of this attempt that may be in the topic.
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
    """A topic is missing, or the cluster did not answer in time.

    Attributes:
        topic: Its name.
        is_missing: Whether the cluster reported that it does not exist; if not, the cluster could not be asked.
    """

    def __init__(self, message: str, *, topic: str | None = None, is_missing: bool = False) -> None:
        super().__init__(message)
        self.topic = topic
        self.is_missing = is_missing


class JavaError(SparkPipelineError):
    """Java is missing, or too old for this Spark.

    Attributes:
        found: The version found, e.g. 11; `None` if there is none.
        needed: The minimum version.
    """

    def __init__(self, message: str, *, found: int | None = None, needed: int | None = None) -> None:
        super().__init__(message)
        self.found = found
        self.needed = needed


class ConnectorMissingError(SparkPipelineError):
    """Spark's own Kafka connector, which the jobs read with, is not among Spark's jars.

    Attributes:
        coordinates: The value for `--packages` or `spark.jars.packages`, or `None`.
    """

    def __init__(self, message: str, *, coordinates: str | None = None) -> None:
        super().__init__(message)
        self.coordinates = coordinates


class _PathError(SparkPipelineError):
    """Something is wrong with a file or a directory.

    Attributes:
        path: The path, or `None`.
    """

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class CheckpointError(_PathError):
    """A checkpoint is missing, damaged, or belongs to another query."""


class LayoutError(_PathError):
    """The name of a directory or file is not one of the lake's."""


class ManifestError(LayoutError):
    """A compaction's manifest is damaged, of another version, or contradicts the lake."""


class LakeChangingError(LayoutError):
    """A compaction finished each time that the lake was listed."""


class RunningError(SparkPipelineError):
    """Another process is doing what only one may do at a time.

    Attributes:
        path: The lock's file.
        owner: The other process: host, process id and start time, as JSON; may be empty.
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
    """A compacted file, read back, differs from its sources. It is deleted, its sources stay.

    Attributes:
        hour: The hour's directory.
        expected: The sources' rows, and checksums of ids and sizes.
        found: The same for the compacted file.
    """

    def __init__(self, message: str, *, hour: str, expected: str = "", found: str = "") -> None:
        super().__init__(message)
        self.hour = hour
        self.expected = expected
        self.found = found


class StampHeaderError(SparkPipelineError, ValueError):
    """The header of a stamp is not valid: it has another length, or there are several with its name."""
