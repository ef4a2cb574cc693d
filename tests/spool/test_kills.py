"""A process that is killed loses nothing that it has put on disk; what comes twice has the id of the first time."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aioproduce.testing import ClusterThread

_PROGRAM = (sys.executable, "-m", "tests.spool.killed_sender")


def _run(servers: str, directory: Path, first: int, sync: str, *, lines: int) -> int:
    """Run a sender, kill it after some lines, and return the first number that it has not confirmed."""
    process = subprocess.Popen(
        [*_PROGRAM, servers, str(directory), str(first), "1000000", sync], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    confirmed = first - 1
    try:
        for _ in range(lines):
            confirmed = int(process.stdout.readline())
    finally:
        process.kill()
        rest = process.stdout.read()
        process.stdout.close()
        process.wait()
    whole = rest[: rest.rfind("\n") + 1].split()
    return (int(whole[-1]) if whole else confirmed) + 1


def _kill_again_and_again(directory: Path, sync: str, kills: int, seed: int) -> int:
    """Kill senders, let the last one empty the queue, and compare; return how many records came twice."""
    source = random.Random(seed)
    with ClusterThread(topics={"numbers": 1}) as cluster:
        following = 0
        for _ in range(kills):
            following = _run(
                cluster.bootstrap_servers, directory, following, sync, lines=source.choice((1, 20, 200))
            )
        subprocess.run([*_PROGRAM, cluster.bootstrap_servers, str(directory), "0", "0", sync], check=True)
        records = cluster.records("numbers")
    # A number that a killed process has not confirmed may be there, and the next one sends it as another record.
    first_times: dict[bytes | None, int] = {}
    for record in records:
        first_times.setdefault(dict(record.headers)["ap.id"], int(record.value or b""))
    order = list(first_times.values())
    assert order == sorted(order), "a record has overtaken another one"
    assert set(order) >= set(range(following)), "a record that was on disk is lost"
    for record in records:
        number = first_times[dict(record.headers)["ap.id"]]
        assert number == int(record.value or b""), "two records have one id"
    return len(records) - len(first_times)


def test_what_was_on_disk_arrives(tmp_path: Path) -> None:
    _kill_again_and_again(tmp_path / "spool", "os", kills=1, seed=1)


@pytest.mark.extended("fifty kills")
def test_fifty_kills(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    record_property("twice", _kill_again_and_again(tmp_path / "spool", "always", kills=50, seed=2))
