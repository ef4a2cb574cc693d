"""Prometheus: a collector for producers with jmx_exporter's names, and one for many worker processes.

Used by services with a registry of `prometheus_client`; needs the extra `prometheus`.

Invariants:

1. A scrape may come from any thread, at any time, in any state of the producers.
2. Each series appears once in a scrape: client ids differ within a process, worker numbers between processes.
3. A child that is forked while a server listens does not keep its port.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Final, Self, final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from aioproduce.config.secret import hides_arguments
from aioproduce.errors import ListenError, MissingExtraError, PortInUseError

with MissingExtraError.unless_installed(
    "aioproduce.reporters.prometheus", extra="prometheus", name="prometheus_client"
):
    import prometheus_client
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

from aioproduce.reporters._families import check_labels, families
from aioproduce.reporters.sources import Sources
from aioproduce.reporters.worker_files import WorkerFile, read_workers
from aioproduce.security.http_access import CHALLENGE, REFUSAL, is_loopback, made_access

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family

    from aioproduce.config.secret import Secret
    from aioproduce.reporters.sources import Measured
    from aioproduce.security.http_access import HttpAccess

__all__ = ["CLIENT_TYPE", "MetricsServer", "ProducerCollector", "WorkerFile", "WorkersCollector"]

_log = logging.getLogger("aioproduce")

_SILENCE_SECONDS: Final = 30.0
"""Seconds after which a client that sends nothing is disconnected, during TLS's handshake, too."""

CLIENT_TYPE: Final[Mapping[str, str]] = {"client_type": "producer"}
"""A label that many dashboards for Kafka's clients expect; jmx_exporter's default format does not have it."""


@final
class ProducerCollector(Sources, Collector):
    """Exports the metrics of one process's producers; register it in the service's own registry.

    Args:
        *producers: Producers; `add()` adds further ones.
        labels: Labels of every series; `{}` for exactly those of jmx_exporter's default format.

    Raises:
        ValueError: If two producers have the same client.id, or if a label is not valid.

    Example:
        >>> async with Producer("localhost:9092") as producer:
        ...     prometheus_client.REGISTRY.register(ProducerCollector(producer))
        ...     with MetricsServer(9404):
        ...         await serve(producer)
    """

    def __init__(self, *producers: Measured, labels: Mapping[str, str] = CLIENT_TYPE) -> None:
        self._labels = check_labels(labels)
        super().__init__(*producers)

    def collect(self) -> Iterator[Family]:
        """Return the metric families, for the registry."""
        return families([(self._labels, snapshot) for snapshot in self._read()])

    def describe(self) -> Iterator[Family]:
        """Return the families for the check of `register()`: two collectors must not export the same ones."""
        return self.collect()


@final
class WorkersCollector(Collector):
    """Exports the metrics of all worker processes that have a `WorkerFile` in a directory, with the label `worker`.

    Any process may use one: a worker, or the process that started the workers. It does not need
    PROMETHEUS_MULTIPROC_DIR, and works together with it.

    Args:
        directory: The workers' directory.
        labels: Labels of every series.

    Raises:
        ValueError: If a label is not valid.

    Example:
        >>> registry = prometheus_client.CollectorRegistry()
        >>> prometheus_client.multiprocess.MultiProcessCollector(registry)  # doctest: +SKIP
        >>> registry.register(WorkersCollector("/run/app/kafka-metrics"))  # doctest: +SKIP
        >>> app = prometheus_client.make_asgi_app(registry)  # doctest: +SKIP
    """

    def __init__(self, directory: str | os.PathLike[str], *, labels: Mapping[str, str] = CLIENT_TYPE) -> None:
        self._directory = directory
        self._labels = check_labels(labels)

    def collect(self) -> Iterator[Family]:
        """Return the metric families, for the registry."""
        ages = GaugeMetricFamily(
            "aioproduce_worker_values_age_seconds",
            "How old the values of this worker process are; grows while its event loop is blocked",
        )
        labelled = []
        for worker in read_workers(self._directory):
            labels = {**self._labels, "worker": str(worker.number)}
            ages.add_sample(ages.name, labels, worker.age)
            labelled += [(labels, snapshot) for snapshot in worker.snapshots]
        yield ages
        yield from families(labelled)

    def describe(self) -> Iterator[Family]:
        """Return the same as `collect()`."""
        return self.collect()


@final
class MetricsServer:
    """Serves a registry over HTTP from a thread, optionally with a token and TLS.

    Everyone who can reach the port sees the metrics, unless there is a token, which Prometheus sends with
    `authorization: credentials_file`. A log line warns if other machines can reach it without a token, unless
    `allow_anonymous` is set.

    Args:
        port: The port; 0 for any.
        host: The address to listen on.
        registry: The registry to serve.
        token: The token that a request needs: as `Authorization: Bearer TOKEN`, or as the password of any user.
        allow_anonymous: Whether everyone may see the metrics, without a warning.
        certificate: A PEM file with the server's certificate and the certificates that signed it; enables TLS.
        key: A PEM file with its key, if it is not in the same file.
        key_password: The key's password, if it is encrypted.

    Raises:
        PortInUseError: If another program, or another worker of this one, uses the port.
        ListenError: If it cannot listen for another reason.
        ConfigError: If the token is not valid, or if certificate and key cannot be loaded.

    Example:
        >>> with MetricsServer(0, "127.0.0.1") as server:
        ...     print(f"curl http://localhost:{server.port}/metrics")
    """

    @hides_arguments
    def __init__(
        self,
        port: int,
        host: str = "0.0.0.0",
        *,
        registry: CollectorRegistry = prometheus_client.REGISTRY,
        token: str | Secret | None = None,
        allow_anonymous: bool = False,
        certificate: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        key_password: Secret | None = None,
    ) -> None:
        app = _guarded(prometheus_client.make_wsgi_app(registry), made_access(token))
        context = None
        if certificate is not None:
            from aioproduce.security.http_tls import (
                server_context,  # imports OpenSSL, which http does not need
            )

            context = server_context(certificate, key, key_password)
        try:
            self._server = _make_server(host, port, app)
        except (OSError, OverflowError) as error:  # OverflowError for a port above 65535
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                raise PortInUseError(
                    f"port {port} of {host} is in use: choose another port, or stop the program that uses it "
                    f"(`ss -ltnp 'sport = :{port}'` names it). Workers of one service can share a port with a "
                    "WorkerFile each and one WorkersCollector",
                    host=host,
                    port=port,
                ) from error
            raise ListenError(
                f"cannot listen on port {port} of {host}: {error}; use an address of this machine, and a port "
                "from 1024 to 65535",
                host=host,
                port=port,
            ) from error
        if context is not None:
            # Not in accept(), where a client that sends nothing would block all others.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        address = str(self._server.server_address[0])
        if not (token is not None or allow_anonymous or is_loopback(address)):
            _log.warning(
                "everyone who can reach port %d of %s can read the metrics: set a token for MetricsServer, "
                "listen on 127.0.0.1, or set allow_anonymous=True",
                self.port,
                host,
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="aioproduce metrics", daemon=True
        )
        self._thread.start()
        _listening.add(self)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop listening; do nothing in a forked child, whose parent still listens."""
        if self not in _listening:
            return
        _listening.discard(self)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


@final
class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: scrapes come every few seconds."""


def _make_server(host: str, port: int, app: WSGIApplication) -> WSGIServer:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    server = _Server6 if family == socket.AF_INET6 else _Server
    return make_server(str(address[0]), port, app, server, _Handler)


def _guarded(app: WSGIApplication, access: HttpAccess | None) -> WSGIApplication:
    """Return the application, restricted to requests that access allows."""
    if access is None:
        return app

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if access.allows(environ.get("HTTP_AUTHORIZATION")):
            return app(environ, start_response)
        headers = [
            ("WWW-Authenticate", CHALLENGE),
            ("Content-Type", "text/plain"),
            ("Content-Length", str(len(REFUSAL))),
        ]
        start_response("401 Unauthorized", headers)
        return [REFUSAL]

    return answer


# Holds servers that nobody else holds, because their threads keep running.
_listening: set[MetricsServer] = set()


def _leave_to_the_parent() -> None:
    for server in list(_listening):
        # The listening thread exists only in the parent: a client of this socket would wait for ever.
        server._server.socket.close()
    _listening.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
