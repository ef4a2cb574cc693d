"""`aioproduce check`: the attempt to reach each broker, the step at which it fails, and why.

Called by `app`. It connects as a producer does: `core.cluster.cluster_check` runs on the producer's driver. This
module puts the outcome of each attempt into words.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce._native.stats import Windows
from aioproduce.cli.exit_codes import ExitCode
from aioproduce.core.bounded_log import BoundedLog
from aioproduce.core.cluster.cluster_check import Attempt, ClusterCheck
from aioproduce.core.cluster.connection_states import ConnectionState
from aioproduce.core.cluster.making_connections import make_broker_connections
from aioproduce.drivers.choice import make_driver
from aioproduce.errors import AuthenticationError, TlsError, TokenError
from aioproduce.metrics import ProducerMetrics
from aioproduce.security.certificates import day_of, peer_certificate
from aioproduce.security.making import make_security
from aioproduce.wire.api import ApiKey
from aioproduce.wire.error_codes import NONE, TOPIC_AUTHORIZATION_FAILED, message_of, name_of
from aioproduce.wire.preload import preload

if TYPE_CHECKING:
    from aioproduce.config import ProducerConfig
    from aioproduce.wire.messages import TopicMetadata

_log = logging.getLogger("aioproduce")

_ABORT_BOUND: Final = 5.0
_WRITE: Final = 1 << 4
"""The bit of AclOperation.WRITE (KIP-430)."""

_EXIT_CODES: Final = {
    "tls": ExitCode.NO_TLS,
    "login": ExitCode.NO_LOGIN,
    "authorize": ExitCode.NOT_AUTHORIZED,
}


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One step of an attempt to reach a broker.

    Attributes:
        name: `resolve`, `connect`, `tls`, `versions`, `login`, `metadata` or `authorize`.
        is_done: Whether it succeeded; if not, it is the last step.
        text: The result, or the cause and the remedy.
        seconds: The time that it took; `None` if that is not known.
        setting: Kafka's key to look at first, if there is one.
    """

    name: str
    is_done: bool
    text: str
    seconds: float | None = None
    setting: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of the attempt at one address."""

    address: str
    is_bootstrap: bool
    node_ids: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def failure(self) -> Step | None:
        """The step that failed; `None` if none did."""
        return None if self.steps[-1].is_done else self.steps[-1]


@final
@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a check."""

    cluster_id: str | None
    brokers: dict[int, str]
    trials: tuple[Trial, ...]

    @property
    def failures(self) -> list[Trial]:
        """The failures that count: a bootstrap server may be down if another answers and no metadata names it."""
        has_answer = any(trial.failure is None for trial in self.trials)
        return [trial for trial in self.trials if trial.failure and (trial.node_ids or not has_answer)]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the process: that of the first failure."""
        for trial in self.failures:
            assert trial.failure is not None
            return _EXIT_CODES.get(trial.failure.name, ExitCode.NOT_ACKNOWLEDGED)
        return ExitCode.DONE

    def as_json(self) -> dict[str, Any]:
        """Return the document of `--json`. Its keys are part of the interface."""
        return {
            "is_reachable": not self.failures,
            "exit_code": int(self.exit_code),
            "cluster_id": self.cluster_id,
            "brokers": {str(node): self.brokers[node] for node in sorted(self.brokers)},
            "trials": [_trial_as_json(trial) for trial in self.trials],
        }


async def examine(config: ProducerConfig, topic: str | None, timeout: float) -> Findings:
    """Try the bootstrap servers, and every broker that they name.

    Args:
        config: The settings.
        topic: A topic to check, too: does it exist, and may this client write to it?
        timeout: Seconds for the whole check.

    Raises:
        ConfigError: if the settings of TLS or the login contradict each other.
    """
    security = make_security(config)
    preload(with_login=security is not None and security.sasl is not None)
    metrics = ProducerMetrics(Windows(config.metrics_num_samples, config.metrics_sample_window))
    connections = make_broker_connections(
        config, random.Random(), metrics, BoundedLog(_log), security, time.time
    )
    check = ClusterCheck(config.client_id, config.bootstrap_servers, connections, topic)
    driver = make_driver(config, metrics, lambda *_: None)
    died: list[BaseException] = []
    driver.start(check, on_death=died.append, on_settled=lambda _: None)
    try:
        if not await driver.join(driver.now() + timeout):
            check.abort(f"this step did not end within {timeout:g} s (--timeout)", driver.now())
            driver.wake()
            await driver.join(driver.now() + _ABORT_BOUND)
    finally:
        await driver.kill()
    if died:
        raise died[0]
    found = await asyncio.gather(*(_addresses(attempt) for attempt in check.attempts))
    trials = tuple(
        Trial(
            f"{attempt.address.host}:{attempt.address.port}",
            attempt.is_bootstrap,
            tuple(attempt.node_ids),
            tuple(_Explanation(attempt, addresses, topic).steps()),
        )
        for attempt, addresses in zip(check.attempts, found, strict=True)
    )
    answers = [attempt.metadata for attempt in check.attempts if attempt.metadata is not None]
    brokers = {one.node_id: f"{one.host}:{one.port}" for answer in answers for one in answer.brokers}
    return Findings(answers[0].cluster_id if answers else None, brokers, trials)


async def _addresses(attempt: Attempt) -> list[str]:
    """Return the addresses of the name; none if it has none, or if the lookup takes too long."""
    loop = asyncio.get_running_loop()
    host, port = attempt.address.host, attempt.address.port
    with contextlib.suppress(OSError, TimeoutError, UnicodeError):  # the attempt itself reports the cause
        async with asyncio.timeout(1.0):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(place[0]) for *_, place in found))
    return []


@final
class _Explanation:
    """The steps of one attempt, in words."""

    __slots__ = ("_addresses", "_attempt", "_topic")

    def __init__(self, attempt: Attempt, addresses: list[str], topic: str | None) -> None:
        self._attempt = attempt
        self._addresses = addresses
        self._topic = topic

    def steps(self) -> list[Step]:
        """Return the steps that succeeded, then the one that failed, if any."""
        attempt = self._attempt
        done = self._done()
        if attempt.metadata is None:
            done.append(self._failed({step.name for step in done}))
        elif done[-1].is_done and self._topic is not None:
            done.append(self._authorized(self._topic, attempt.metadata.topics))
        return done

    def _done(self) -> list[Step]:
        attempt, connection = self._attempt, self._attempt.connection
        found = Step("resolve", True, ", ".join(self._addresses))
        if connection is None or connection.connected_at is None:
            is_resolved = bool(self._addresses) and not _is_of_name(attempt.error)
            return [found] if is_resolved else []
        done = [
            found,
            Step("connect", True, f"port {attempt.address.port}", self._took(ConnectionState.CONNECTING)),
        ]
        if connection.is_encrypted:
            channel = connection.channel
            if channel is None or not channel.is_established:
                return done
            text = "; ".join(filter(None, (channel.describe(), _certificate_words(channel))))
            done.append(Step("tls", True, text, self._took(ConnectionState.ENCRYPTING)))
        versions = connection.api_versions
        if versions is None:
            return done
        words = f"{len(versions.broker_versions)} APIs, Produce v{versions.version(ApiKey.PRODUCE)}"
        words += f", Metadata v{versions.version(ApiKey.METADATA)}"
        done.append(Step("versions", True, words, self._took(ConnectionState.NEGOTIATING)))
        login = connection.authentication
        if login is not None:
            if login.is_first:
                return done
            words = login.mechanism + (f" as {login.principal}" if login.principal else "")
            if login.session_lifetime:
                words += f", for a session of {login.session_lifetime:g} s"
            done.append(Step("login", True, words, self._took(ConnectionState.AUTHENTICATING)))
        answer = attempt.metadata
        if answer is not None and answer.error_code != NONE:
            words = f"{name_of(answer.error_code)}: {message_of(answer.error_code)}"
            done.append(Step("metadata", False, words))
        elif answer is not None:
            words = f"cluster {answer.cluster_id or '(without an id)'}, {len(answer.brokers)} broker(s)"
            done.append(Step("metadata", True, words, self._took(ConnectionState.READY)))
        return done

    def _failed(self, done: set[str]) -> Step:
        error = self._attempt.error
        setting = getattr(error, "setting", None)
        if isinstance(error, TlsError):
            return Step("tls", False, str(error), setting=setting)
        if isinstance(error, AuthenticationError | TokenError):
            return Step("login", False, str(error), setting=setting)
        connection = self._attempt.connection
        order = ["resolve", "connect", "tls", "versions", "login", "metadata"]
        if connection is None or not connection.is_encrypted:
            order.remove("tls")
        if connection is None or connection.authentication is None:
            order.remove("login")
        name = next(step for step in order if step not in done)
        setting = None if name not in _REMEDIES else self._where
        remedy = _REMEDIES.get(name, "").format(setting=setting)
        return Step(name, False, self._attempt.reason + remedy, setting=setting)

    @property
    def _where(self) -> str:
        """The setting that contains this address."""
        return "bootstrap.servers" if self._attempt.is_bootstrap else "advertised.listeners"

    def _authorized(self, topic: str, topics: tuple[TopicMetadata, ...]) -> Step:
        found = next((one for one in topics if one.name == topic), None)
        code = NONE if found is None else found.error_code
        if code == TOPIC_AUTHORIZATION_FAILED:
            return Step(
                "authorize", False, f"the cluster denies topic {topic!r}: grant Describe and Write on it"
            )
        if found is None or code != NONE:
            words = "is not in the answer" if found is None else f"{name_of(code)}: {message_of(code)}"
            return Step("metadata", False, f"topic {topic!r}: {words}. A check creates no topic")
        count = f"{len(found.partitions)} partition(s)"
        if found.authorized_operations is None:
            return Step(
                "authorize", True, f"topic {topic!r}, {count}; the broker does not report who may write"
            )
        if not found.authorized_operations & _WRITE:
            return Step("authorize", False, f"no right to write to topic {topic!r}: grant Write on it")
        return Step("authorize", True, f"may write to topic {topic!r}, {count}")

    def _took(self, state: ConnectionState) -> float | None:
        """Return the seconds from this state to the next one that was reached."""
        began_at = self._attempt.reached.get(state)
        if began_at is None:
            return None
        later = [at for at in self._attempt.reached.values() if at > began_at]
        ended_at = min(later, default=self._attempt.ended_at)
        return None if ended_at is None else ended_at - began_at


_REMEDIES: Final = {
    "resolve": ". Is the name right, and known to this machine's DNS? It is set in {setting}",
    "connect": ". Is the broker up, and can this machine reach that port? It is set in {setting}",
}


def _is_of_name(error: BaseException | None) -> bool:
    cause = None if error is None else error.__cause__
    return isinstance(cause, socket.gaierror | UnicodeError)


def _certificate_words(channel: Any) -> str:
    """Return the subject of the broker's certificate, and when it expires."""
    look = getattr(channel, "peer_certificate", None)  # a channel of a test has none
    shown = None if look is None else peer_certificate(*look())
    if shown is None:
        return "the certificate was not checked"
    days = (shown.ends_at - time.time()) / 86_400
    return f"certificate {shown.subject or ', '.join(shown.names)} until {day_of(shown.ends_at)} ({days:.0f} days)"


def _trial_as_json(trial: Trial) -> dict[str, Any]:
    return {
        "address": trial.address,
        "is_bootstrap": trial.is_bootstrap,
        "node_ids": list(trial.node_ids),
        "failed_at": None if trial.failure is None else trial.failure.name,
        "steps": [
            {
                "step": step.name,
                "is_done": step.is_done,
                "text": step.text,
                "seconds": None if step.seconds is None else round(step.seconds, 6),
                "setting": step.setting,
            }
            for step in trial.steps
        ],
    }
