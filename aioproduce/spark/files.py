"""The few operations on a file system: on the local one without Spark, and on any other through Hadoop.

Used by the readers of a lake's and a checkpoint's directories: `checkpoint`, `lake`, `layout` and the jobs.

Invariants:

1. `replace` is atomic where the file system renames atomically (local, HDFS): a reader finds the old text or the
   new one, complete.
2. A path without a scheme, or with `file:`, is local and needs no JVM; every other path needs a session.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final
from urllib.parse import unquote, urlsplit

from aioproduce.spark.errors import LayoutError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@final
class LocalFiles:
    """The local file system; paths are as the user wrote them, with `/` as separator."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a directory."""
        return local_path(path).exists()

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory; none if it does not exist."""
        try:
            return sorted(os.listdir(local_path(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, path: str) -> str | None:
        """Return the UTF-8 text of a file; `None` if it does not exist."""
        try:
            return local_path(path).read_text("utf-8")
        except (FileNotFoundError, IsADirectoryError):
            return None

    def replace(self, path: str, text: str) -> None:
        """Write a file, creating its directories and replacing an older one."""
        target = local_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(_partial_name(target.name))
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory to a free name.

        Raises:
            LayoutError: If that name exists, or if the file system refused.
        """
        target = local_path(new)
        if target.exists():
            raise LayoutError(f"{old} cannot be renamed to {new}: that already exists", path=new)
        target.parent.mkdir(parents=True, exist_ok=True)
        local_path(old).rename(target)

    def delete(self, path: str) -> None:
        """Remove a file or a directory with its content; do nothing if it does not exist."""
        target = local_path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)


@final
class HadoopFiles:
    """Any file system that Spark supports, through its own classes."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._jvm: Any = context._jvm
        self._gateway: Any = context._gateway
        self._configuration: Any = context._jsc.hadoopConfiguration()

    def exists(self, path: str) -> bool:
        """See `LocalFiles`."""
        target, system = self._at(path)
        return bool(system.exists(target))

    def names(self, path: str) -> list[str]:
        """See `LocalFiles`."""
        target, system = self._at(path)
        if not system.exists(target):
            return []
        return sorted(status.getPath().getName() for status in system.listStatus(target))

    def read(self, path: str) -> str | None:
        """See `LocalFiles`."""
        target, system = self._at(path)
        if not system.exists(target):
            return None
        stream = system.open(target)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def replace(self, path: str, text: str) -> None:
        """See `LocalFiles`."""
        target, system = self._at(path)
        partial = self._jvm.org.apache.hadoop.fs.Path(target.getParent(), _partial_name(target.getName()))
        stream = system.create(partial, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        contexts = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            target.toUri(), self._configuration
        )
        kind = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self._gateway.new_array(kind, 1)
        options[0] = kind.OVERWRITE
        contexts.rename(partial, target, options)

    def rename(self, old: str, new: str) -> None:
        """See `LocalFiles`."""
        target, system = self._at(new)
        source, _ = self._at(old)
        system.mkdirs(target.getParent())
        if system.exists(target) or not system.rename(source, target):
            raise LayoutError(
                f"{old} cannot be renamed to {new}: that already exists, or the file system refused", path=new
            )

    def delete(self, path: str) -> None:
        """See `LocalFiles`."""
        target, system = self._at(path)
        system.delete(target, True)

    def _at(self, path: str) -> tuple[Any, Any]:
        target = self._jvm.org.apache.hadoop.fs.Path(path)
        return target, target.getFileSystem(self._configuration)


Files: TypeAlias = LocalFiles | HadoopFiles
_LOCAL: Final = LocalFiles()


def files_of(path: str, spark: SparkSession | None = None) -> Files:
    """Return the file system of a path.

    Args:
        path: The user's path: `/lake`, `lake`, `file:/lake`, `hdfs://host/lake`, `s3a://bucket/lake`.
        spark: Needed for paths that are not local.

    Raises:
        LayoutError: If the path is not local and there is no session.
    """
    if is_local(path):
        return _LOCAL
    if spark is None:
        raise LayoutError(
            f"{path} is not on the local file system: only a job with a session can read it", path=path
        )
    return HadoopFiles(spark)


def is_local(path: str) -> bool:
    """Return whether a path is on this machine's file system."""
    return urlsplit(path).scheme in ("", "file")


def local_path(path: str) -> Path:
    """Return a local path for Python."""
    return Path(unquote(urlsplit(path).path)) if path.startswith("file:") else Path(path)


def join(path: str, *names: str) -> str:
    """Return a path below another."""
    return "/".join((path.rstrip("/"), *names))


def _partial_name(name: str) -> str:
    # Hidden, and different for each writer.
    return f".{name}.{uuid.uuid4().hex}"
