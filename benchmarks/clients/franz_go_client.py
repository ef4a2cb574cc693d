"""franz-go, the fastest client known: a Go program (`benchmarks/franz_go`), built once into the cache folder.

Go's runtime uses as many threads as there are processors; here its goroutines share one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from benchmarks.cases import Case, Outcome
from benchmarks.process import payload

SOURCE = Path(__file__).parent.parent / "franz_go"
# Fetching the module and compiling it takes about half a minute the first time.
BUILD_TIMEOUT = 600.0


class FranzGoUnavailableError(Exception):
    """The program cannot be built here; the text says why."""


@cache
def _program() -> Path:
    files = [SOURCE / name for name in ("main.go", "go.mod", "go.sum")]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache_folder = configured if configured.is_absolute() else Path.home() / ".cache"
    program = cache_folder / "aioproduce" / f"franz-go-{digest}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise FranzGoUnavailableError("no go on PATH: install Go 1.26 or later")
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_name(f"{program.name}.{os.getpid()}")
    try:
        answer = subprocess.run(
            [go, "build", "-o", str(partial), "."],
            cwd=SOURCE,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise FranzGoUnavailableError(f"go build did not finish in {BUILD_TIMEOUT:.0f} s") from error
    if answer.returncode != 0:
        raise FranzGoUnavailableError(f"go build failed: {answer.stderr.strip()[-300:]}")
    partial.rename(program)
    return program


def _run(case: Case, bootstrap_servers: str, rate: int) -> Outcome:
    settings = case.settings
    with tempfile.TemporaryDirectory() as folder:
        values = Path(folder) / "values"
        values.write_bytes(b"\n".join(payload(settings.value_size)))
        flags = {
            "bootstrap": bootstrap_servers,
            "topic": case.topic,
            "values": values,
            "records": case.records,
            "warmup": case.warmup,
            "batch": settings.batch_size,
            "linger": settings.linger_ms,
            "memory": settings.buffer_memory,
            "acks": settings.acks,
            "compression": settings.compression,
            "rate": rate,
        }
        command = [str(_program()), *(f"-{key}={value}" for key, value in flags.items())]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if answer.returncode != 0:
        raise RuntimeError(f"the franz-go program failed: {answer.stderr.strip()[-1000:]}")
    return Outcome(**json.loads(answer.stdout)["outcome"])


class FranzGoClient:
    """`kgo.Client`."""

    name = "franz-go"
    loops = ("",)
    modes: Mapping[str, int] = {"callback": 1_200_000}

    def unavailable(self) -> str | None:
        try:
            _program()
        except FranzGoUnavailableError as error:
            return str(error)
        return None

    def version(self) -> str:
        match = re.search(r"twmb/franz-go v([\d.]+)", (SOURCE / "go.mod").read_text())
        return match[1] if match else "unknown"

    def throughput(self, case: Case, bootstrap_servers: str) -> Outcome:
        return _run(case, bootstrap_servers, 0)

    def latency(self, case: Case, bootstrap_servers: str) -> Outcome | None:
        return _run(case, bootstrap_servers, int(case.options.get("rate", 5000)))


CLIENT = FranzGoClient()
