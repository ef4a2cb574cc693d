"""Where a queue is: directories that may not be written, file systems that are no good for it."""

from __future__ import annotations

import errno
import logging
import os
import traceback
from pathlib import Path

import pytest

from aioproduce.errors import SpoolDirectoryError
from aioproduce.spool.disk import FileSystem
from aioproduce.spool.file_systems import file_system_of, objection_to
from aioproduce.spool.service_directory import ServiceDirectory

_NOBODY = 65534
# As the kernel prints it: a shared mount, a name with a blank, a mount over another.
_MOUNTS = r"""22 27 0:21 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:22 / {folder}/net\040work rw,noatime master:1 shared:7 - nfs4 server:/export rw,vers=4.2
24 22 0:23 / {folder}/memory rw - ext4 /dev/vdb rw
25 24 0:24 / {folder}/memory rw - tmpfs tmpfs rw,size=1024k
"""


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    """A file with some mounts."""
    file = tmp_path / "mountinfo"
    file.write_text(_MOUNTS.replace("{folder}", str(tmp_path)))
    return str(file)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("net work/spool", "nfs4"), ("net working", "ext4"), ("memory", "tmpfs"), ("disk/queue", "ext4")],
)
def test_the_kind_is_that_of_the_longest_mount_point(
    tmp_path: Path, mounts: str, name: str, kind: str
) -> None:
    assert file_system_of(str(tmp_path / name), mounts) == kind


def test_it_is_not_known_without_the_kernels_table(tmp_path: Path) -> None:
    assert file_system_of(str(tmp_path), str(tmp_path / "nothing")) is None
    (tmp_path / "garbage").write_text("what is this\n")
    assert file_system_of(str(tmp_path), str(tmp_path / "garbage")) is None


def test_the_root_of_this_machine_is_known() -> None:
    if not os.path.exists("/proc/self/mountinfo"):
        pytest.skip("no /proc")
    assert file_system_of("/") is not None
    assert file_system_of("/proc/self") == "proc"


def test_network_and_memory_are_objected_to() -> None:
    assert "locks and syncs may mean nothing" in (objection_to("nfs4") or "")
    assert "memory" in (objection_to("tmpfs") or "")
    assert objection_to("ext4") is objection_to("overlay") is objection_to(None) is None


def test_a_service_is_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aioproduce.spool.service_directory.file_system_of", lambda _: "nfs4")
    with caplog.at_level(logging.WARNING, "aioproduce.spool"):
        ServiceDirectory(tmp_path / "spool").take().close()
    assert f"{tmp_path}/spool is on nfs4" in caplog.text


def _as_nobody(path: Path) -> str:
    """Return what a user without rights is told, from a child process."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        told = ""
        try:
            if os.getuid() == 0:
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
            ServiceDirectory(path).take()
        except SpoolDirectoryError as error:
            told = str(error)
        except BaseException:
            told = traceback.format_exc()
        finally:
            os.write(writes, told.encode())
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as file:
        told = file.read().decode()
    os.waitpid(child, 0)
    return told


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == tmp_path.owner() and folder.is_relative_to("/tmp"):
            folder.chmod(0o755)
    spool = tmp_path / "spool"
    assert f"{spool} cannot be used: Permission denied" in _as_nobody(_unwritable(tmp_path) / "spool")
    spool.mkdir()
    told = _as_nobody(_unwritable(spool))
    assert "Permission denied" in told
    assert str(spool / "queue-0") in told


def _unwritable(folder: Path) -> Path:
    folder.chmod(0o555)
    return folder


def test_a_read_only_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, _mode: int = 0) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(SpoolDirectoryError, match="Read-only file system"):
        ServiceDirectory(tmp_path / "spool")


def test_the_name_of_the_directory_is_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(FileSystem, "sync_directory", lambda _, path: synced.append(path))
    for _ in range(2):  # an earlier process may have made it, and was killed
        ServiceDirectory(tmp_path / "spool")
    assert synced == [str(tmp_path)] * 2
