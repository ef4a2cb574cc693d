"""Runs the blocks of one page, in order, as a reader would: in one folder, with one set of names.

1. `localhost:9092` is a FakeCluster of this run. Topics are created when they are used.
2. A block of Python with `await` at its top runs on the loop. Any other one runs in a thread: it may start a loop.
3. `producer` is an open Producer until the page makes one itself. `Producer`, `asyncio` and `os` are imported.
4. A block of the shell runs in bash, and fails with its first command that fails.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import sys
from typing import TYPE_CHECKING, Any

from aioproduce import Producer
from aioproduce.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.docs.blocks import Block

_SHIM = '#!/bin/sh\nexec {python} -m aioproduce.cli "$@"\n'


async def run(blocks: Sequence[Block], folder: Path, root: Path) -> None:
    """Run those that have no test of their own; raise what the first failing one raises."""
    async with FakeCluster(1) as cluster:
        servers = cluster.bootstrap_servers
        for block in blocks:
            if block.file is not None:
                (folder / block.file).write_text(block.text.replace("localhost:9092", servers))
        async with Producer(servers) as producer:
            names: dict[str, Any] = {"producer": producer, "Producer": Producer, "asyncio": asyncio, "os": os}
            for block in blocks:
                text = block.text.replace("localhost:9092", servers)
                if block.file is not None:
                    continue
                if block.language == "python":
                    await _python(block, text, names)
                else:
                    await _shell(block, text, folder, root)


async def _python(block: Block, text: str, names: dict[str, Any]) -> None:
    # So that a traceback shows the page's line.
    lines = "\n" * block.line + text
    code = compile(lines, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:
        await asyncio.to_thread(exec, code, names)


async def _shell(block: Block, text: str, folder: Path, root: Path) -> None:
    shim = folder / "bin" / "aioproduce"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(_SHIM.format(python=sys.executable))
    shim.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        *("bash", "-e", "-o", "pipefail", "-c", text),
        cwd=folder,
        env=os.environ | {"PATH": f"{shim.parent}:{os.environ['PATH']}", "PYTHONPATH": str(root)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, f"{block.place} ended with {process.returncode}:\n{output.decode()}"
