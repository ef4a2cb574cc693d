"""The few things that are asked of a file system, of the local one without Spark and of any other through Hadoop.

Used by what reads a lake's and a checkpoint's directories: `checkpoint`, `lake`, `layout` and the jobs.

Invariants:

1. `replace` is atomic where the file system renames atomically (local, HDFS): a reader finds the old text or the
   new one, whole.
2. A path without a scheme, or with `file:`, is local and needs no JVM; everything else needs a session.
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
    """The local file system; paths are complete, as the user gave them, with `/` between the names."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        return local_path(path).exists()

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted; nothing where there is none."""
        try:
            return sorted(os.listdir(local_path(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, path: str) -> str | None:
        """The text of a file, UTF-8; `None` where there is none."""
        try:
            return local_path(path).read_text("utf-8")
        except (FileNotFoundError, IsADirectoryError):
            return None

    def replace(self, path: str, text: str) -> None:
        """Write a file, with its directories, over an older one."""
        target = local_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(_partial_name(target.name))
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)

    def rename(self, old: str, new: str) -> None:
        """Move a file or directory to a name that is free.

        Raises:
            LayoutError: that name is taken, or the file system refused.
        """
        target = local_path(new)
        if target.exists():
            raise LayoutError(f"{old} cannot be renamed to {new}: that is there already", path=new)
        target.parent.mkdir(parents=True, exist_ok=True)
        local_path(old).rename(target)

    def delete(self, path: str) -> None:
        """Remove a file or a directory with all that is in it; nothing where there is none."""
        target = local_path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)


@final
class HadoopFiles:
    """Any file system that Spark reads and writes, through its own classes."""

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
                f"{old} cannot be renamed to {new}: that is there already, or refused", path=new
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
    """The file system that a path is on.

    Args:
        path: As a user gives it: `/lake`, `lake`, `file:/lake`, `hdfs://host/lake`, `s3a://bucket/lake`.
        spark: Needed for all but the local ones.

    Raises:
        LayoutError: the path is not local and there is no session.
    """
    if is_local(path):
        return _LOCAL
    if spark is None:
        raise LayoutError(
            f"{path} is not on the local file system: only a job with a session reads it", path=path
        )
    return HadoopFiles(spark)


def is_local(path: str) -> bool:
    """Whether a path is one of this machine's file system."""
    return urlsplit(path).scheme in ("", "file")


def local_path(path: str) -> Path:
    """A local path as Python takes it."""
    return Path(unquote(urlsplit(path).path)) if path.startswith("file:") else Path(path)


def join(path: str, *names: str) -> str:
    """A path below another."""
    return "/".join((path.rstrip("/"), *names))


def _partial_name(name: str) -> str:
    # Hidden, and another for each writer.
    return f".{name}.{uuid.uuid4().hex}"
