"""On which kind of file system a directory is, and what is wrong with it for a queue.

Linux tells it in `/proc/self/mountinfo` (proc_pid_mountinfo(5)). Elsewhere it is not known.
"""

from __future__ import annotations

import os
import re
from typing import Final

MOUNTS: Final = "/proc/self/mountinfo"

_MOUNT_POINT: Final = 4
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_OVER_A_NETWORK: Final = frozenset(
    {
        *(
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "gfs2",
            "glusterfs",
            "lustre",
            "ncpfs",
            "nfs",
            "nfs4",
            "ocfs2",
        ),
        *("orangefs", "prl_fs", "smb3", "smbfs", "vboxsf", "vmhgfs"),
        *("fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
_IN_MEMORY: Final = frozenset({"ramfs", "tmpfs"})


def file_system_of(path: str, mounts: str = MOUNTS) -> str | None:
    """Return the kind of the file system that a directory is on, e.g. `ext4`; None if it is not known.

    Args:
        path: The directory.
        mounts: The file with the mounts.
    """
    place = os.path.join(os.path.realpath(path), "")
    found, longest = None, ""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields, _, described = line.partition(" - ")
                point = os.path.join(_unescaped(fields.split(" ")[_MOUNT_POINT]), "")
                if place.startswith(point) and len(point) >= len(
                    longest
                ):  # of two at one place the later is seen
                    found, longest = described.split(" ")[0], point
    except (OSError, IndexError):
        return None
    return found


def objection_to(file_system: str | None) -> str | None:
    """Return why a queue should not be on such a file system, as a clause; None if nothing is known against it."""
    if file_system in _OVER_A_NETWORK:
        return "its locks and syncs may mean nothing, so two processes may use a queue, and a power cut may take it"
    if file_system in _IN_MEMORY:
        return "it is memory: everything in it is gone when the machine restarts, whatever sync= is"
    return None


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
