"""The settings of a producer as keyword arguments, for type checkers and editors.

The table of keys prints this module: `python -m aioproduce.config types > aioproduce/config/settings.py`. No
producer reads it: the table itself decides what is accepted.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from aioproduce.config.secret import Secret
from aioproduce.config.user_objects import ChoosesPartition, CredentialsProvider, Serializer, TokenProvider
from aioproduce.errors import DeliveryError

# fmt: off


class PlainSettings(TypedDict, total=False):
    """Kafka's producer keys, with underscores for dots, without serializers."""

    client_id: str
    """Name of this producer in the broker's logs and quotas.

    Accepts a str of at most 32767 bytes in UTF-8. Default: `producer-N`, N counted in the process.
    """

    client_dns_lookup: Literal["use_all_dns_ips"]
    """All addresses of a broker's name are tried in turn.

    Accepts only use_all_dns_ips. Default: `use_all_dns_ips`.
    """

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """How to connect to brokers: encrypted (`SSL`), with a login (`SASL_PLAINTEXT`), both (`SASL_SSL`), or
    neither.

    Accepts one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL. Default: `PLAINTEXT`.
    """

    metadata_max_age_ms: int
    """Metadata older than this is requested again.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `300000`.
    """

    metadata_max_idle_ms: int
    """A topic not sent to for this long is forgotten.

    Accepts 5000 to 9223372036854775807 whole milliseconds. Default: `300000`.
    """

    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    """If no known broker is reachable: `rebootstrap` starts again from bootstrap.servers (KIP-899).

    Accepts one of rebootstrap, none. Default: `rebootstrap`.
    """

    metadata_recovery_rebootstrap_trigger_ms: int
    """This long without any metadata also leads to a re-bootstrap (KIP-1102).

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `300000`.
    """

    partitioner_class: Literal[
        "uniform_sticky", "sticky", "sticky_ignoring_keys", "round_robin", "random", "murmur2",
        "murmur2_random", "consistent", "consistent_random", "fnv1a", "fnv1a_random",
    ] | ChoosesPartition | None
    """The partition choice for records that do not name a partition: a name of partitioners, or a custom object.

    Accepts one of uniform_sticky, sticky, sticky_ignoring_keys, round_robin, random, murmur2, murmur2_random,
    consistent, consistent_random, fnv1a, fnv1a_random, the name of a partitioner class of Kafka's, or an
    object with partition(topic, key, value, view). Default: `uniform_sticky`.
    """

    partitioner_ignore_keys: bool
    """Choose partitions as if records had no key; no effect on a custom partitioner.

    Accepts true or false. Default: `false`.
    """

    partitioner_adaptive_partitioning_enable: bool
    """For `uniform_sticky`: fewer keyless records for partitions with more waiting batches (KIP-794).

    Accepts true or false. Default: `true`.
    """

    partitioner_availability_timeout_ms: int
    """For adaptive `uniform_sticky`: no records for brokers that a batch has waited for this long; 0 excludes no
    broker.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `0`.
    """

    batch_size: int
    """A partition's batch is full at this size; 0 sends records one by one, as does 1.

    Accepts 0 to 2147483647 bytes. Default: `16384`.
    """

    linger_ms: int
    """How long an incomplete batch waits for more records.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `5`.
    """

    buffer_memory: int
    """Maximum bytes of accepted and unacknowledged records; at least batch.size.

    Accepts 0 to 9223372036854775807 bytes. Default: `33554432`.
    """

    max_block_ms: int
    """How long `send()` waits for metadata and memory together; 0 never waits.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `60000`.
    """

    max_request_size: int
    """Maximum size of a request, and so of a record before compression.

    Accepts 0 to 2147483647 bytes. Default: `1048576`.
    """

    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """Codec of the record batches.

    Accepts one of none, gzip, snappy, lz4, zstd. Default: `none`.
    """

    compression_gzip_level: int
    """Level for gzip, 9 the smallest; -1 is zlib's default.

    Accepts 1 to 9 or -1. Default: `-1`.
    """

    compression_lz4_level: int
    """Level for lz4, 17 the smallest.

    Accepts 1 to 17. Default: `9`.
    """

    compression_zstd_level: int
    """Level for zstd, 22 the smallest.

    Accepts -131072 to 22. Default: `3`.
    """

    acks: Literal["all", -1, 0, 1]
    """Which replicas must have a record before it counts as acknowledged: all in-sync replicas (`all`, -1), the
    leader (1), or none (0: no offset, no retries). Other values than `all` turn default idempotence off.

    Accepts one of all, -1, 0, 1. Default: `all`.
    """

    enable_idempotence: bool
    """Retries neither duplicate nor reorder. Needs acks=all, retries > 0 and at most 5 in flight; if it is not
    set, contradictory acks or retries turn it off.

    Accepts true or false. Default: `true`.
    """

    max_in_flight_requests_per_connection: int
    """Unanswered requests per broker. Values above 5 need enable.idempotence=false; above 1, a retry may then
    reorder records.

    Accepts 1 to 2147483647. Default: `5`.
    """

    retries: int
    """How often a batch is retried; delivery.timeout.ms is usually the better bound.

    Accepts 0 to 2147483647. Default: `2147483647`.
    """

    delivery_timeout_ms: int
    """The time within which an accepted record is acknowledged or fails. At least linger.ms +
    request.timeout.ms; raised to that if it is not set.

    Accepts 0 to 2147483647 whole milliseconds. Default: `120000`.
    """

    request_timeout_ms: int
    """How long a broker may take to answer one request.

    Accepts 0 to 2147483647 whole milliseconds. Default: `30000`.
    """

    retry_backoff_ms: int
    """Wait before the first retry; doubles each time, 20 % jitter (KIP-580).

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `100`.
    """

    retry_backoff_max_ms: int
    """Maximum of that wait, including the first one.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `1000`.
    """

    reconnect_backoff_ms: int
    """Wait before connecting again; doubles with each failure, 20 % jitter.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `50`.
    """

    reconnect_backoff_max_ms: int
    """Maximum of that wait, including the first one. If only reconnect.backoff.ms is set, this equals it.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `1000`.
    """

    socket_connection_setup_timeout_ms: int
    """How long opening a connection may take; doubles with each failure, 20 % jitter.

    Accepts 1 to 9223372036854775807 whole milliseconds. Default: `10000`.
    """

    socket_connection_setup_timeout_max_ms: int
    """Maximum of that time, including the first one.

    Accepts 1 to 9223372036854775807 whole milliseconds. Default: `30000`.
    """

    connections_max_idle_ms: int
    """A connection that is idle for this long is closed.

    Accepts -1 to 9223372036854775807 whole milliseconds (-1: no limit). Default: `540000`.
    """

    send_buffer_bytes: int
    """SO_SNDBUF of the sockets; -1 leaves it to the OS.

    Accepts -1 to 2147483647 bytes. Default: `131072`.
    """

    receive_buffer_bytes: int
    """SO_RCVBUF of the sockets; -1 leaves it to the OS.

    Accepts -1 to 2147483647 bytes. Default: `32768`.
    """

    transaction_timeout_ms: int
    """How long a transaction may be open before its coordinator aborts it; no effect without transactional.id.

    Accepts 1 to 2147483647 whole milliseconds. Default: `60000`.
    """

    transactional_id: str | None
    """The name under which this producer's transactions continue after a restart. Only one producer uses it at a
    time: a later one takes over. It needs enable.idempotence and acks=all.

    Accepts a name, or None. Default: none.
    """

    partitioner_rack_aware: bool
    """Keyless records go to leaders in the producer's own rack, `client.rack`, if there are any (KIP-1123).

    Accepts true or false. Default: `false`.
    """

    client_rack: str
    """The rack, or zone, of this producer, in the terms of the brokers' `broker.rack`.

    Accepts a str of at most 32767 bytes in UTF-8. Default: empty.
    """

    interceptors: list[Any] | tuple[Any, ...]
    """Objects called for each record and acknowledgement, in order; instead of interceptor.classes.

    Accepts a list of objects that have on_send(record), on_acknowledgement(metadata, error) or both, or
    intercept(record), or intercept_transaction(transactional_id), or an Auditor. Default: none.
    """

    on_delivery_error: Callable[[DeliveryError], object] | None
    """Called with the error of a failed delivery that nobody awaits.

    Accepts a callable that receives the error (not async), or None. Default: none: counted and logged.
    """

    enable_metrics_push: bool
    """Push metrics to clusters that request them (KIP-714); needs `aioproduce[telemetry]`.

    Accepts true or false. Default: `true`.
    """

    metrics_num_samples: int
    """Number of sample windows of rates, averages and maxima.

    Accepts 1 to 2147483647. Default: `2`.
    """

    metrics_sample_window_ms: int
    """Length of a sample window; 0 means 1.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `30000`.
    """

    ssl_truststore_location: str | None
    """Certificates of the authorities that sign the brokers' certificates, in PEM or PKCS12; by default, those
    of the system. Reloaded for new connections.

    Accepts the path of a file. Default: none.
    """

    ssl_truststore_password: str | Secret | None
    """Password of a PKCS12 truststore.

    Accepts a password, as a str or a `Secret`, or None. Default: none.
    """

    ssl_truststore_certificates: str | Secret | None
    """The same certificates, in PEM, instead of a file.

    Accepts PEM, as a str or a `Secret`, or None. Default: none.
    """

    ssl_truststore_type: Literal["JKS", "PKCS12", "PEM"]
    """Accepted for Java's files, but the content decides whether a store is PEM or PKCS12. An actual JKS store
    is refused when it is read, with the command that converts it.

    Accepts one of JKS, PKCS12, PEM. Default: `JKS`.
    """

    ssl_keystore_location: str | None
    """This client's certificate, with its chain and its key, in one PEM file or a PKCS12 store: for clusters
    that require one (mutual TLS). Reloaded for new connections.

    Accepts the path of a file. Default: none.
    """

    ssl_keystore_password: str | Secret | None
    """Password of a PKCS12 keystore.

    Accepts a password, as a str or a `Secret`, or None. Default: none.
    """

    ssl_keystore_key: str | Secret | None
    """The key in PEM (PKCS#8), instead of a file.

    Accepts PEM, as a str or a `Secret`, or None. Default: none.
    """

    ssl_keystore_certificate_chain: str | Secret | None
    """The certificate with its chain in PEM; with ssl.keystore.key.

    Accepts PEM, as a str or a `Secret`, or None. Default: none.
    """

    ssl_keystore_type: Literal["JKS", "PKCS12", "PEM"]
    """Accepted for Java's files, but the content decides whether a store is PEM or PKCS12. An actual JKS store
    is refused when it is read, with the command that converts it.

    Accepts one of JKS, PKCS12, PEM. Default: `JKS`.
    """

    ssl_key_password: str | Secret | None
    """Password of an encrypted key.

    Accepts a password, as a str or a `Secret`, or None. Default: none.
    """

    ssl_endpoint_identification_algorithm: Literal["https", ""]
    """Whether the broker's certificate must name the host of the connection. If not, anybody with a certificate
    of that authority can pose as the broker.

    Accepts https, or "" (empty): host names are not checked. Default: `https`.
    """

    ssl_enabled_protocols: str | list[str] | tuple[str, ...]
    """Allowed versions of TLS.

    Accepts TLSv1.2, TLSv1.3 or both (older ones are ignored). Default: `TLSv1.2,TLSv1.3`.
    """

    ssl_protocol: Literal["TLSv1.3", "TLSv1.2", "TLS"]
    """`TLSv1.2`: no newer version, whatever ssl.enabled.protocols says; the others have no effect.

    Accepts one of TLSv1.3, TLSv1.2, TLS. Default: `TLSv1.3`.
    """

    ssl_cipher_suites: str | list[str] | tuple[str, ...]
    """Cipher suites, with their names in Java or OpenSSL.

    Accepts a list of str, or one str with commas. Default: OpenSSL's own.
    """

    ssl_context: ssl.SSLContext | None
    """A custom SSLContext, instead of all stores and versions above.

    Accepts an `ssl.SSLContext`, or None. Default: none.
    """

    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"]
    """How to log in.

    Accepts one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM. Default: `GSSAPI`.
    """

    sasl_username: str | None
    """The user name, for PLAIN and SCRAM.

    Accepts text. Default: none.
    """

    sasl_password: str | Secret | None
    """The user's password.

    Accepts a password, as a str or a `Secret`, or None. Default: none.
    """

    sasl_credentials_provider: CredentialsProvider | None
    """Called for both before a login, if passwords change.

    Accepts a callable that returns (username, password), or None. Default: none.
    """

    sasl_jaas_config: str | Secret | None
    """The login in Java's form: PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule, Krb5LoginModule,
    IAMLoginModule (MSK).

    Accepts a login module of JAAS with its options, as a str or a `Secret`, or None. Default: none.
    """

    sasl_client_callback_handler_class: Literal[
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    ] | None
    """Accepted for MSK's files; only has an effect with sasl.mechanism=AWS_MSK_IAM.

    Accepts None or software.amazon.msk.auth.iam.IAMClientCallbackHandler. Default: none.
    """

    sasl_login_callback_handler_class: Literal[
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    ] | None
    """Accepted for Java's files; sasl.oauthbearer.* select the source of tokens.

    Accepts None or org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler,
    org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler. Default: none.
    """

    sasl_login_connect_timeout_ms: int | None
    """How long connecting to a token endpoint may take.

    Accepts 1 to 2147483647 whole milliseconds. Default: none of its own.
    """

    sasl_login_read_timeout_ms: int | None
    """How long a token endpoint may take to answer.

    Accepts 1 to 2147483647 whole milliseconds. Default: a bound of its own.
    """

    sasl_login_retry_backoff_ms: int
    """Wait before a token is requested again; doubles with each failure.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `100`.
    """

    sasl_login_retry_backoff_max_ms: int
    """Maximum of that wait, including the first one.

    Accepts 0 to 9223372036854775807 whole milliseconds. Default: `10000`.
    """

    sasl_login_refresh_window_factor: float
    """A token is fetched again after this fraction of its lifetime.

    Accepts 0.5 to 1.0. Default: `0.8`.
    """

    sasl_login_refresh_window_jitter: float
    """Maximum random fraction that is added to it.

    Accepts 0.0 to 0.25. Default: `0.05`.
    """

    sasl_login_refresh_min_period_seconds: int
    """Minimum time after a token was fetched, if its lifetime is long enough.

    Accepts 0 to 900 seconds. Default: `60`.
    """

    sasl_login_refresh_buffer_seconds: int
    """Minimum time before a token expires, if its lifetime is long enough.

    Accepts 0 to 3600 seconds. Default: `300`.
    """

    sasl_oauthbearer_token_provider: TokenProvider | None
    """Called for a token whenever one is needed.

    Accepts a callable that returns a token, async or not, an object whose token() does, or None. Default:
    none.
    """

    sasl_oauthbearer_extensions: Mapping[str, str] | str | None
    """SASL extensions to send with the token (KIP-342), e.g. Confluent Cloud's logicalCluster and
    identityPoolId.

    Accepts a dict of str, or "name=value,name=value". Default: none.
    """

    sasl_oauthbearer_token_endpoint_url: str | None
    """The URL of the token endpoint.

    Accepts an https URL; http only with sasl.oauthbearer.allow.http, file: only with FileJwtRetriever.
    Default: none.
    """

    sasl_oauthbearer_token_endpoint_ca_location: str | None
    """Certificates, in PEM, of the authorities that sign the token endpoint's certificate; by default, those of
    the system.

    Accepts the path of a file. Default: none.
    """

    sasl_oauthbearer_token_endpoint_proxy: str | None
    """A proxy for the token endpoint. Proxies from the environment are ignored.

    Accepts the http or https URL of a proxy without a password, or None. Default: none.
    """

    sasl_oauthbearer_allow_http: bool
    """Whether the token endpoint may be http: for tests, because it shows secret and token to the network.

    Accepts true or false. Default: `false`.
    """

    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client id, for the grant client_credentials.

    Accepts text. Default: none.
    """

    sasl_oauthbearer_client_credentials_client_secret: str | Secret | None
    """The client's secret.

    Accepts a secret, as a str or a `Secret`, or None. Default: none.
    """

    sasl_oauthbearer_scope: str | None
    """The scope to request.

    Accepts text. Default: none.
    """

    sasl_oauthbearer_header_urlencode: bool
    """Whether id and secret are URL-encoded in the header, as RFC 6749 requires and some endpoints expect.

    Accepts true or false. Default: `false`.
    """

    sasl_oauthbearer_jwt_retriever_class: Literal[
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever",
    ]
    """The source of tokens: client_credentials, jwt-bearer (KIP-1139), or a file.

    Accepts org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever,
    org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever,
    org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever,
    org.apache.kafka.common.security.oauthbearer.FileJwtRetriever. Default:
    `org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever`.
    """

    sasl_oauthbearer_jwt_validator_class: Literal[
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator",
        "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
    ]
    """Accepted for Java's files; has no effect.

    Accepts org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator,
    org.apache.kafka.common.security.oauthbearer.ClientJwtValidator,
    org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator. Default:
    `org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator`.
    """

    sasl_oauthbearer_scope_claim_name: str
    """The claim of a token that holds its scope.

    Accepts a str of at most 32767 bytes in UTF-8. Default: `scope`.
    """

    sasl_oauthbearer_sub_claim_name: str
    """The claim of a token that holds the user's name.

    Accepts a str of at most 32767 bytes in UTF-8. Default: `sub`.
    """

    sasl_oauthbearer_assertion_file: str | None
    """A file with a signed JWT that another program renews, sent as the assertion (KIP-1139, KIP-1258).

    Accepts the path of a file. Default: none.
    """

    sasl_oauthbearer_assertion_private_key_file: str | None
    """The private key, in PEM, for assertions that are signed here.

    Accepts the path of a file. Default: none.
    """

    sasl_oauthbearer_assertion_private_key_passphrase: str | Secret | None
    """Password of that key.

    Accepts a password, as a str or a `Secret`, or None. Default: none.
    """

    sasl_oauthbearer_assertion_algorithm: Literal["RS256", "ES256"]
    """The signature algorithm of the assertion.

    Accepts one of RS256, ES256. Default: `RS256`.
    """

    sasl_oauthbearer_assertion_template_file: str | None
    """A JSON file with claims and header fields of the assertion.

    Accepts the path of a file. Default: none.
    """

    sasl_oauthbearer_assertion_claim_aud: str | None
    """The assertion's audience.

    Accepts text. Default: none.
    """

    sasl_oauthbearer_assertion_claim_iss: str | None
    """Its issuer.

    Accepts text. Default: none.
    """

    sasl_oauthbearer_assertion_claim_sub: str | None
    """Its subject.

    Accepts text. Default: none.
    """

    sasl_oauthbearer_assertion_claim_exp_seconds: int
    """How long the assertion is valid.

    Accepts 0 to 86400 seconds. Default: `300`.
    """

    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    """How long before now its validity begins.

    Accepts 0 to 3600 seconds. Default: `60`.
    """

    sasl_oauthbearer_assertion_claim_jti_include: bool
    """Whether each assertion has its own id.

    Accepts true or false. Default: `false`.
    """

    sasl_kerberos_service_name: str | None
    """The first part of the brokers' principal, usually `kafka`.

    Accepts text. Default: none.
    """

    sasl_kerberos_domain_name: str | None
    """The host in the brokers' principal, if it is not the host of the connection.

    Accepts text. Default: none.
    """


class ProducerSettings(PlainSettings, total=False):
    """Kafka's producer keys, with underscores for dots: the keyword arguments of `Producer`.

    A function of your own passes them on with their types by `Unpack`.

    Example:
        >>> def made(**settings: Unpack[ProducerSettings]) -> Producer[Any, Any]:
        ...     return Producer("localhost:9092", **settings)
    """

    key_serializer: Serializer | None
    """Converts a record's key to bytes; without it, a key must be bytes or None.

    Accepts a callable from the object to bytes or None (not async), or None, or the name
    org.apache.kafka.common.serialization.ByteArraySerializer, or the name
    org.apache.kafka.common.serialization.StringSerializer. Default: none: bytes are sent unchanged.
    """

    value_serializer: Serializer | None
    """Converts a record's value to bytes; without it, a value must be bytes or None.

    Accepts a callable from the object to bytes or None (not async), or None, or the name
    org.apache.kafka.common.serialization.ByteArraySerializer, or the name
    org.apache.kafka.common.serialization.StringSerializer. Default: none: bytes are sent unchanged.
    """


class ProducerKeywords(ProducerSettings, total=False):
    """All keys: also the one that producers take first."""

    bootstrap_servers: str | list[str] | tuple[str, ...]
    """The first brokers to contact, from which the client learns the others; name several, in case one is down.

    Accepts "host:port,host:port" or a list of "host:port", ports 1 to 65535, IPv6 as "[::1]:9092". Default:
    required.
    """
