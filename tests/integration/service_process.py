"""An example service under its real server, on a listening socket that it is given: run by `test_services_kafka`.

    python -m tests.integration.service_process fastapi|aiohttp FILE_DESCRIPTOR

The socket outlives the process, so that clients who connect between two lives of the service wait instead of being
refused: as behind a load balancer that tries again.
"""

from __future__ import annotations

import importlib.util
import logging
import socket
import sys
from pathlib import Path
from types import ModuleType

import uvicorn
from aiohttp import web

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    framework, descriptor = sys.argv[1], int(sys.argv[2])
    example = load(f"{framework}_service")
    listener = socket.socket(fileno=descriptor)
    if framework == "fastapi":
        config = uvicorn.Config(example.app, timeout_graceful_shutdown=15, log_level="info")
        uvicorn.Server(config).run(sockets=[listener])
    else:
        web.run_app(example.make_app(), sock=listener, shutdown_timeout=15)


if __name__ == "__main__":
    main()
