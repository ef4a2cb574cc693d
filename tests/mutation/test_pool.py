"""A child reports, ends by itself, or is ended."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.mutation.pool import in_children

if TYPE_CHECKING:
    from collections.abc import Callable


def work(job: str, send: Callable[[dict[str, Any]], None]) -> None:
    send({"limits": [60, 60], "job": job})
    if job == "waits":
        send({"limits": [60, 0.01]})
        time.sleep(3600)
    elif job == "computes":
        send({"limits": [0.05, 60]})
        while True:
            pass
    elif job == "raises":
        raise ValueError("as told")
    elif job == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    send({"done": job * 100_000 if job == "long" else job})


def test_each_ends_in_its_way() -> None:
    ended = {
        child.job: child for child in in_children(("waits", "computes", "raises", "dies", "long"), work, 2)
    }
    assert {job for job, child in ended.items() if child.is_hung} == {"waits", "computes"}
    assert "ValueError: as told" in ended["raises"].messages[-1]["failed"]
    assert os.WTERMSIG(ended["dies"].status) == signal.SIGKILL
    assert ended["long"].messages[-1] == {"done": "long" * 100_000}
    assert ended["long"].status == 0
    assert all(child.messages[0]["job"] == job for job, child in ended.items())
