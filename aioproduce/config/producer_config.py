"""`ProducerConfig`: the settings of one producer, checked, in the units that the core works in.

Created by `Producer` and the CLI, read by every package above. Nothing above this package uses milliseconds or
dotted keys.

Invariants:
1. A `ProducerConfig` from `from_mapping` or `from_keywords` is free of contradictions: the settings fit each other,
   or Kafka's own rule has adjusted them (idempotence off, delivery timeout raised), or `ConfigError` was raised.
2. Every duration is a float of seconds. Only connections_max_idle may be negative, which means "no limit".
3. No repr or message contains a secret, or the value of an unknown key.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, final

from aioproduce.config.environment import ENVIRONMENT_PREFIX, load_environment
from aioproduce.config.kinds import INT_MAX
from aioproduce.config.origins import naming_origins, origins_of
from aioproduce.config.secret import hides_arguments
from aioproduce.config.security_table import unheeded
from aioproduce.config.table import KEYS
from aioproduce.config.user_objects import Serializer as Serializer
from aioproduce.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from typing import Unpack

    from aioproduce.config.secret import Secret
    from aioproduce.config.settings import ProducerKeywords

_log = logging.getLogger("aioproduce")
_warned: Final[set[str]] = set()  # warnings that this process has logged
_client_numbers: Final = itertools.count(1)  # for the whole process, as in Java
_KEYWORDS: Final = {key.keyword: name for name, key in KEYS.items()}
_HELD: Final = {key.attribute: name for name, key in KEYS.items() if key.attribute is not None}


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig:
    """The settings of a producer.

    Created by `from_mapping` (Kafka's dotted keys), `from_keywords` (`linger_ms=5`) or `from_environment`
    (`KAFKA_LINGER_MS=5`), which check them. The constructor itself and `dataclasses.replace` do not. The keys are
    described in `docs/reference/configuration.md`, which `python -m aioproduce.config` prints.

    Durations are seconds: `linger.ms=5` is `config.linger == 0.005`.

    Example:
        >>> config = ProducerConfig.from_keywords(bootstrap_servers="localhost:9092", linger_ms=20, acks=1)
        >>> config.linger, config.acks, config.enable_idempotence
        (0.02, 1, False)
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str
    client_dns_lookup: str
    security_protocol: str
    metadata_max_age: float
    metadata_max_idle: float
    metadata_recovery_strategy: str
    metadata_rebootstrap_trigger: float
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner: object
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout: float
    batch_size: int
    linger: float
    buffer_memory: int
    max_block: float
    max_request_size: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    acks: int
    enable_idempotence: bool
    max_in_flight: int
    retries: int
    delivery_timeout: float
    request_timeout: float
    retry_backoff: float
    retry_backoff_max: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    socket_connection_setup_timeout: float
    socket_connection_setup_timeout_max: float
    connections_max_idle: float
    send_buffer_bytes: int
    receive_buffer_bytes: int
    transactional_id: str | None
    transaction_timeout: float
    enable_metrics_push: bool
    metrics_num_samples: int
    metrics_sample_window: float
    partitioner_rack_aware: bool
    client_rack: str
    interceptors: tuple[object, ...]
    on_delivery_error: Callable[[Any], object] | None
    ssl_truststore_location: str | None
    ssl_truststore_password: Secret | None
    ssl_truststore_certificates: Secret | None
    ssl_truststore_type: str
    ssl_keystore_location: str | None
    ssl_keystore_password: Secret | None
    ssl_keystore_key: Secret | None
    ssl_keystore_certificate_chain: Secret | None
    ssl_keystore_type: str
    ssl_key_password: Secret | None
    ssl_endpoint_identification_algorithm: str
    ssl_enabled_protocols: tuple[str, ...]
    ssl_protocol: str
    ssl_cipher_suites: tuple[str, ...]
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str
    sasl_username: str | None
    sasl_password: Secret | None
    sasl_credentials_provider: Callable[[], Any] | None
    sasl_jaas_config: Secret | None
    sasl_client_callback_handler_class: str | None
    sasl_login_callback_handler_class: str | None
    sasl_login_connect_timeout: float | None
    sasl_login_read_timeout: float | None
    sasl_login_retry_backoff: float
    sasl_login_retry_backoff_max: float
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    sasl_oauthbearer_token_provider: object | None
    sasl_oauthbearer_extensions: Mapping[str, str]
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_token_endpoint_ca_location: str | None
    sasl_oauthbearer_token_endpoint_proxy: str | None
    sasl_oauthbearer_allow_http: bool
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: Secret | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_jwt_validator_class: str
    sasl_oauthbearer_scope_claim_name: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_kerberos_service_name: str | None
    sasl_kerberos_domain_name: str | None
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Key -> file and line, of the settings that came from a file: for errors about them."""

    @classmethod
    @hides_arguments
    def from_mapping(cls, settings: Mapping[str, object]) -> Self:
        """Create a configuration from Kafka's dotted keys.

        Args:
            settings: Key -> value; values typed, or strings as in a properties file.

        Returns:
            The configuration, checked.

        Raises:
            ConfigError: If a key is unknown, refused or out of range, or if two contradict each other.

        Example:
            >>> ProducerConfig.from_mapping({"bootstrap.servers": "a:9092,b:9092", "linger.ms": "20"}).linger
            0.02
        """
        values, given = KEYS.parse(settings)
        origins = origins_of(settings)
        with naming_origins(origins):
            _settle(values, given)
        _warn(values, given)
        if "client.id" not in given:
            values["client.id"] = f"producer-{next(_client_numbers)}"
        held = {held: KEYS[name].kind.to_attribute(values[name]) for held, name in _HELD.items()}
        return cls(**held, origins={KEYS.find(name).name: origin for name, origin in origins.items()})

    @classmethod
    @hides_arguments
    def from_keywords(cls, **settings: Unpack[ProducerKeywords]) -> Self:
        """Create a configuration from keyword arguments: Kafka's keys with underscores for dots.

        Args:
            **settings: `linger_ms=5`, `acks="all"`, ...

        Returns:
            The configuration, checked.

        Raises:
            ConfigError: If `from_mapping` raises it; a suggestion is spelled as a keyword.
        """
        return cls.from_mapping(dotted_keys(settings))

    @classmethod
    @hides_arguments
    def from_environment(
        cls,
        prefix: str = ENVIRONMENT_PREFIX,
        environ: Mapping[str, str] = os.environ,
        **settings: Unpack[ProducerKeywords],
    ) -> Self:
        """Create a configuration from environment variables: `KAFKA_LINGER_MS=5` for `linger.ms=5`.

        A variable `KAFKA_SASL_PASSWORD_FILE` names a file with the value of `KAFKA_SASL_PASSWORD`. Variables with
        the prefix that are not keys are ignored, unless they are similar to one.

        Args:
            prefix: The prefix of the variables' names.
            environ: The variables.
            **settings: Further keyword arguments, which override the variables.

        Returns:
            The configuration, checked.

        Raises:
            ConfigError: If `from_mapping` raises it, if a variable is similar to a key, or if its file cannot be
                read.

        Example:
            >>> environ = {"KAFKA_BOOTSTRAP_SERVERS": "broker:9092", "KAFKA_SECURITY_PROTOCOL": "SSL"}
            >>> ProducerConfig.from_environment(environ=environ).security_protocol
            'SSL'
        """
        return cls.from_mapping({**load_environment(prefix, environ), **dotted_keys(settings)})

    def __repr__(self) -> str:
        shown = {held: KEYS[name].shown(getattr(self, held), held) for held, name in _HELD.items()}
        shown["bootstrap_servers"] = (
            f"bootstrap_servers={self.bootstrap_servers}"  # parsed, hence without passwords
        )
        return f"ProducerConfig({', '.join(shown.values())})"


@hides_arguments
def configured(
    servers: str | Sequence[str] | Mapping[str, object] | ProducerConfig | None,
    settings: Mapping[str, object],
    **parameters: object,
) -> ProducerConfig:
    """Return the configuration for a constructor's arguments: servers or dotted keys with keywords, or a config.

    Args:
        servers: Its first argument.
        settings: The keywords.
        **parameters: Keywords that are parameters of the constructor; None was not given.

    Raises:
        ConfigError: If `ProducerConfig.from_mapping()` raises it.
        TypeError: If a ProducerConfig and further settings were passed.
    """
    settings = {**settings, **{name: given for name, given in parameters.items() if given is not None}}
    if isinstance(servers, ProducerConfig):
        if settings:
            raise TypeError("a ProducerConfig is complete: pass the settings to its constructor instead")
        return servers
    merged: dict[str, object] = {}
    if isinstance(servers, Mapping):
        merged.update(servers)
    elif servers is not None:
        merged["bootstrap.servers"] = servers
    merged.update(dotted_keys(settings))
    return ProducerConfig.from_mapping(merged)


def dotted_keys(keywords: Mapping[str, object]) -> dict[str, object]:
    """Return keyword arguments under their dotted keys, with unchanged values.

    Args:
        keywords: `{"linger_ms": 5}`.

    Returns:
        `{"linger.ms": 5}`.

    Raises:
        ConfigError: If there is no such key; `suggestion` is spelled as a keyword.
    """
    settings: dict[str, object] = {}
    for keyword, value in keywords.items():
        if keyword not in _KEYWORDS:
            raise KEYS.unknown(keyword, separator="_")
        settings[_KEYWORDS[keyword]] = value
    return settings


def _settle(values: dict[str, Any], given: Collection[str]) -> None:
    """Apply Kafka's rules for settings that depend on each other; `values` are parsed and not yet in seconds."""
    # If it is explicitly enabled, contradictory acks or retries are an error of the table.
    values["enable.idempotence"] &= values["acks"] == -1 and values["retries"] > 0
    # Java uses an int; a longer linger has the same effect as no limit.
    linger = values["linger.ms"] = min(values["linger.ms"], INT_MAX)
    timeout, request_timeout = values["delivery.timeout.ms"], values["request.timeout.ms"]
    least = min(linger + request_timeout, INT_MAX)
    if timeout < least and "delivery.timeout.ms" in given:
        raise ConfigError(
            f"delivery.timeout.ms={timeout} is less than linger.ms={linger} + request.timeout.ms="
            f"{request_timeout}: raise it to at least {least}, or lower one of those."
        )
    values["delivery.timeout.ms"] = max(timeout, least)
    if "reconnect.backoff.ms" in given and "reconnect.backoff.max.ms" not in given:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]
    for wait in (
        "retry.backoff",
        "reconnect.backoff",
        "socket.connection.setup.timeout",
        "sasl.login.retry.backoff",
    ):
        # If it is above its bound, it is the bound from the start, as in Java.
        values[f"{wait}.ms"] = min(values[f"{wait}.ms"], values[f"{wait}.max.ms"])
    if values["ssl.protocol"] == "TLSv1.2":  # no newer version, as in Java
        values["ssl.enabled.protocols"] = ("TLSv1.2",)
    _check_protocols(values)
    values["batch.size"] = max(1, values["batch.size"])
    if values["buffer.memory"] < values["batch.size"]:
        # Java starts and then fails every record, because each first takes a buffer of batch.size.
        raise ConfigError(
            f"buffer.memory={values['buffer.memory']} is less than batch.size={values['batch.size']}: no "
            "record could ever be sent. Raise buffer.memory or lower batch.size."
        )


def _check_protocols(values: Mapping[str, Any]) -> None:
    """Check that an address does not name another protocol; Java ignores it."""
    protocol = values["security.protocol"]
    for server in values["bootstrap.servers"]:
        if server.protocol not in ("", protocol):
            raise ConfigError(
                f"bootstrap.servers names {server.protocol}://{server.host}:{server.port}, but security.protocol "
                f"is {protocol}: set security.protocol={server.protocol}, or remove {server.protocol}://.",
                key="bootstrap.servers",
            )


def _warn(values: Mapping[str, Any], given: Collection[str]) -> None:
    for text in unheeded(values, given, KEYS.defaults):
        if text not in _warned:
            _warned.add(text)
            _log.warning("%s", text)
