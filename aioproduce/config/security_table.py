"""The rows of the table for security: `security.protocol`, `ssl.*` and `sasl.*`.

Used by `table`, which includes them, and by `producer_config`, which warns of settings without effect.

Invariants:
1. Settings that contradict each other, or lack what every login of their mechanism needs, are a conflict here,
   reported before a broker is contacted. The contents of `sasl.jaas.config`, of files and of tokens are not read
   here.
2. A setting of a protocol that is not selected has no effect, as in Java, and is reported as a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from aioproduce.config.config_def import Conflict, Key
from aioproduce.config.kinds import (
    BOOL,
    INT_MAX,
    ITEMS,
    SECURITY_PROTOCOLS,
    TEXT,
    Choice,
    Float,
    Function,
    Int,
    Milliseconds,
    Unused,
    optional_text,
)
from aioproduce.config.security_kinds import (
    EXTENSIONS,
    HOST_CHECK,
    PROXY,
    SSL_CONTEXT,
    TLS_VERSIONS,
    TOKEN_PROVIDER,
    URL,
    Hidden,
    JavaClass,
)

SASL_MECHANISMS: Final = (
    "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM",
)  # fmt: skip
_WITH_PASSWORD: Final = SASL_MECHANISMS[:3]
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_MSK_HANDLER: Final = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_OPENSSL: Final = "OpenSSL does this instead of Java's classes; leave it out."
_KERBEROS_TICKETS: Final = (
    "the ticket comes from the credential cache or a keytab, and the program that put it there renews it (kinit, "
    "k5start, KRB5_CLIENT_KTNAME); leave it out."
)
_BROKERS_CHECK: Final = "the brokers check the token, and this is one of their settings; leave it out."
_STORES: Final = (
    "ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain",
    "ssl.truststore.location", "ssl.truststore.certificates",
)  # fmt: skip

_FILE: Final = optional_text("the path of a file")
_NAME: Final = optional_text("text")


def refused(name: str, java_type: str, default: object, text: str, *accepted: object, **more: Any) -> Key:
    """Return a refused key; it accepts Kafka's default, or the values in `accepted` instead."""
    kind = Unused(java_type, *accepted or (default,))
    return Key(name, kind, default, text, has_secret=java_type == "PASSWORD", **more)


def _secret(name: str, text: str, allowed: str, *, can_be_empty: bool = False, is_own: bool = False) -> Key:
    kind = Hidden(allowed, can_be_empty=can_be_empty, keeps_blanks=is_own)
    return Key(name, kind, None, text, has_secret=True, is_own=is_own)


# fmt: off
SECURITY_PROTOCOL: Final = Key("security.protocol", Choice(SECURITY_PROTOCOLS, is_any_case=True), "PLAINTEXT",
    "How to connect to brokers: encrypted (`SSL`), with a login (`SASL_PLAINTEXT`), both (`SASL_SSL`), or neither.")

_STORE_TYPE: Final = Choice(("JKS", "PKCS12", "PEM"), is_any_case=True)
_STORE_TYPE_TEXT: Final = (
    "Accepted for Java's files, but the content decides whether a store is PEM or PKCS12. "
    "An actual JKS store is refused when it is read, with the command that converts it.")

TLS_KEYS: Final[tuple[Key, ...]] = (
    Key("ssl.truststore.location", _FILE, None,
        "Certificates of the authorities that sign the brokers' certificates, in PEM or PKCS12; by "
        "default, those of the system. Reloaded for new connections."),
    _secret("ssl.truststore.password", "Password of a PKCS12 truststore.", "a password", can_be_empty=True),
    _secret("ssl.truststore.certificates", "The same certificates, in PEM, instead of a file.", "PEM"),
    Key("ssl.truststore.type", _STORE_TYPE, "JKS", _STORE_TYPE_TEXT),
    Key("ssl.keystore.location", _FILE, None,
        "This client's certificate, with its chain and its key, in one PEM file or a PKCS12 store: for clusters "
        "that require one (mutual TLS). Reloaded for new connections."),
    _secret("ssl.keystore.password", "Password of a PKCS12 keystore.", "a password", can_be_empty=True),
    _secret("ssl.keystore.key", "The key in PEM (PKCS#8), instead of a file.", "PEM"),
    _secret("ssl.keystore.certificate.chain", "The certificate with its chain in PEM; with ssl.keystore.key.",
        "PEM"),
    Key("ssl.keystore.type", _STORE_TYPE, "JKS", _STORE_TYPE_TEXT),
    _secret("ssl.key.password", "Password of an encrypted key.", "a password", can_be_empty=True),
    Key("ssl.endpoint.identification.algorithm", HOST_CHECK, "https",
        "Whether the broker's certificate must name the host of the connection. If not, anybody with a "
        "certificate of that authority can pose as the broker."),
    Key("ssl.enabled.protocols", TLS_VERSIONS, "TLSv1.2,TLSv1.3", "Allowed versions of TLS."),
    Key("ssl.protocol", Choice(("TLSv1.3", "TLSv1.2", "TLS"),
            dict.fromkeys(("TLSv1.1", "TLSv1", "SSL", "SSLv3", "SSLv2"), "it is no longer safe")), "TLSv1.3",
        "`TLSv1.2`: no newer version, whatever ssl.enabled.protocols says; the others have no effect."),
    Key("ssl.cipher.suites", ITEMS, "", "Cipher suites, with their names in Java or OpenSSL.",
        default_text="OpenSSL's own"),
    Key("ssl.context", SSL_CONTEXT, None, "A custom SSLContext, instead of all stores and versions above.",
        is_own=True),
    refused("ssl.engine.factory.class", "CLASS", None, "a Java class cannot run here; pass an `ssl.context`."),
    refused("ssl.keymanager.algorithm", "STRING", "SunX509", _OPENSSL, "SunX509", "PKIX"),
    refused("ssl.trustmanager.algorithm", "STRING", "PKIX", _OPENSSL, "PKIX", "SunX509"),
    refused("ssl.provider", "STRING", None, _OPENSSL),
    refused("ssl.secure.random.implementation", "STRING", None, _OPENSSL),
    refused("security.providers", "STRING", None, _OPENSSL),
)

SASL_KEYS: Final[tuple[Key, ...]] = (
    Key("sasl.mechanism", Choice(SASL_MECHANISMS), "GSSAPI", "How to log in."),
    Key("sasl.username", _NAME, None, "The user name, for PLAIN and SCRAM.", is_own=True),
    _secret("sasl.password", "The user's password.", "a password", is_own=True),
    Key("sasl.credentials.provider", Function("a callable that returns (username, password)",
            annotation="CredentialsProvider", can_be_async=True),
        None, "Called for both before a login, if passwords change.", is_own=True),
    _secret("sasl.jaas.config",
        "The login in Java's form: PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule, Krb5LoginModule, "
        "IAMLoginModule (MSK).", "a login module of JAAS with its options"),
    Key("sasl.client.callback.handler.class", JavaClass((_MSK_HANDLER,), "leave it out"), None,
        "Accepted for MSK's files; only has an effect with sasl.mechanism=AWS_MSK_IAM."),
    Key("sasl.login.callback.handler.class", JavaClass(
            (f"{_OAUTH}.OAuthBearerLoginCallbackHandler", f"{_OAUTH}.secured.OAuthBearerLoginCallbackHandler"),
            "pass a callable as `sasl.oauthbearer.token.provider`, or for MSK set sasl.mechanism=AWS_MSK_IAM"),
        None, "Accepted for Java's files; sasl.oauthbearer.* select the source of tokens."),
    Key("sasl.login.connect.timeout.ms", Milliseconds(1, INT_MAX, is_optional=True), None,
        "How long connecting to a token endpoint may take.", default_text="none of its own"),
    Key("sasl.login.read.timeout.ms", Milliseconds(1, INT_MAX, is_optional=True), None,
        "How long a token endpoint may take to answer.", default_text="a bound of its own"),
    Key("sasl.login.retry.backoff.ms", Milliseconds(), 100,
        "Wait before a token is requested again; doubles with each failure."),
    Key("sasl.login.retry.backoff.max.ms", Milliseconds(), 10_000,
        "Maximum of that wait, including the first one."),
    Key("sasl.login.refresh.window.factor", Float(0.5, 1.0), 0.8,
        "A token is fetched again after this fraction of its lifetime."),
    Key("sasl.login.refresh.window.jitter", Float(0.0, 0.25), 0.05, "Maximum random fraction that is added to it."),
    Key("sasl.login.refresh.min.period.seconds", Int(0, 900, unit="seconds"), 60,
        "Minimum time after a token was fetched, if its lifetime is long enough."),
    Key("sasl.login.refresh.buffer.seconds", Int(0, 3_600, unit="seconds"), 300,
        "Minimum time before a token expires, if its lifetime is long enough."),
    refused("sasl.login.class", "CLASS", None,
        "a Java class cannot run here; see `sasl.credentials.provider` and `sasl.oauthbearer.token.provider`."),
)

OAUTH_KEYS: Final[tuple[Key, ...]] = (
    Key("sasl.oauthbearer.token.provider", TOKEN_PROVIDER, None,
        "Called for a token whenever one is needed.", is_own=True),
    Key("sasl.oauthbearer.extensions", EXTENSIONS, None,
        "SASL extensions to send with the token (KIP-342), e.g. Confluent Cloud's logicalCluster and "
        "identityPoolId.", is_own=True),
    Key("sasl.oauthbearer.token.endpoint.url", URL, None, "The URL of the token endpoint."),
    Key("sasl.oauthbearer.token.endpoint.ca.location", _FILE, None,
        "Certificates, in PEM, of the authorities that sign the token endpoint's certificate; by default, "
        "those of the "
        "system.", is_own=True),
    Key("sasl.oauthbearer.token.endpoint.proxy", PROXY, None,
        "A proxy for the token endpoint. Proxies from the environment are ignored.", is_own=True),
    Key("sasl.oauthbearer.allow.http", BOOL, False,
        "Whether the token endpoint may be http: for tests, because it shows secret and token to the network.",
        is_own=True),
    Key("sasl.oauthbearer.client.credentials.client.id", _NAME, None,
        "The client id, for the grant client_credentials."),
    _secret("sasl.oauthbearer.client.credentials.client.secret", "The client's secret.", "a secret"),
    Key("sasl.oauthbearer.scope", _NAME, None, "The scope to request."),
    Key("sasl.oauthbearer.header.urlencode", BOOL, False,
        "Whether id and secret are URL-encoded in the header, as RFC 6749 requires and some endpoints expect."),
    Key("sasl.oauthbearer.jwt.retriever.class", JavaClass(
            [f"{_OAUTH}.{name}JwtRetriever" for name in ("Default", "ClientCredentials", "JwtBearer", "File")],
            "pass a callable as `sasl.oauthbearer.token.provider`", is_optional=False),
        f"{_OAUTH}.DefaultJwtRetriever",
        "The source of tokens: client_credentials, jwt-bearer (KIP-1139), or a file."),
    Key("sasl.oauthbearer.jwt.validator.class", JavaClass(
            [f"{_OAUTH}.{name}JwtValidator" for name in ("Default", "Client", "Broker")],
            "tokens are read as Kafka's own clients do, and checked by the brokers; leave it out",
            is_optional=False),
        f"{_OAUTH}.DefaultJwtValidator", "Accepted for Java's files; has no effect."),
    Key("sasl.oauthbearer.scope.claim.name", TEXT, "scope", "The claim of a token that holds its scope."),
    Key("sasl.oauthbearer.sub.claim.name", TEXT, "sub", "The claim of a token that holds the user's name."),
    Key("sasl.oauthbearer.assertion.file", _FILE, None,
        "A file with a signed JWT that another program renews, sent as the assertion (KIP-1139, KIP-1258)."),
    Key("sasl.oauthbearer.assertion.private.key.file", _FILE, None,
        "The private key, in PEM, for assertions that are signed here."),
    _secret("sasl.oauthbearer.assertion.private.key.passphrase", "Password of that key.", "a password",
        can_be_empty=True),
    Key("sasl.oauthbearer.assertion.algorithm", Choice(("RS256", "ES256"), is_any_case=True), "RS256",
        "The signature algorithm of the assertion."),
    Key("sasl.oauthbearer.assertion.template.file", _FILE, None,
        "A JSON file with claims and header fields of the assertion."),
    Key("sasl.oauthbearer.assertion.claim.aud", _NAME, None, "The assertion's audience."),
    Key("sasl.oauthbearer.assertion.claim.iss", _NAME, None, "Its issuer."),
    Key("sasl.oauthbearer.assertion.claim.sub", _NAME, None, "Its subject."),
    Key("sasl.oauthbearer.assertion.claim.exp.seconds", Int(0, 86_400, unit="seconds"), 300,
        "How long the assertion is valid."),
    Key("sasl.oauthbearer.assertion.claim.nbf.seconds", Int(0, 3_600, unit="seconds"), 60,
        "How long before now its validity begins."),
    Key("sasl.oauthbearer.assertion.claim.jti.include", BOOL, False, "Whether each assertion has its own id."),
    refused("sasl.oauthbearer.clock.skew.seconds", "INT", 30, _BROKERS_CHECK),
    refused("sasl.oauthbearer.expected.audience", "LIST", "", _BROKERS_CHECK),
    refused("sasl.oauthbearer.expected.issuer", "STRING", None, _BROKERS_CHECK),
    refused("sasl.oauthbearer.jwks.endpoint.url", "STRING", None, _BROKERS_CHECK),
    refused("sasl.oauthbearer.jwks.endpoint.refresh.ms", "LONG", 3_600_000, _BROKERS_CHECK),
    refused("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "LONG", 100, _BROKERS_CHECK),
    refused("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "LONG", 10_000, _BROKERS_CHECK),
)

KERBEROS_KEYS: Final[tuple[Key, ...]] = (
    Key("sasl.kerberos.service.name", _NAME, None, "The first part of the brokers' principal, usually `kafka`."),
    Key("sasl.kerberos.domain.name", _NAME, None,
        "The host in the brokers' principal, if it is not the host of the connection.", is_own=True),
    refused("sasl.kerberos.kinit.cmd", "STRING", "/usr/bin/kinit", _KERBEROS_TICKETS),
    refused("sasl.kerberos.min.time.before.relogin", "LONG", 60_000, _KERBEROS_TICKETS),
    refused("sasl.kerberos.ticket.renew.jitter", "DOUBLE", 0.05, _KERBEROS_TICKETS),
    refused("sasl.kerberos.ticket.renew.window.factor", "DOUBLE", 0.8, _KERBEROS_TICKETS),
)

_JAAS, _USER, _PASSWORD = "sasl.jaas.config", "sasl.username", "sasl.password"
_PROVIDER, _TOKENS = "sasl.credentials.provider", "sasl.oauthbearer.token.provider"
_ENDPOINT, _RETRIEVER = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.jwt.retriever.class"
_LOGIN_NEEDS: Final = "set sasl.username and sasl.password, or sasl.jaas.config, or sasl.credentials.provider."


def _both(first: str, second: str, remedy: str = "leave one of them out.") -> Conflict:
    return Conflict(None, lambda v, _: v[first] is not None and v[second] is not None,
        f"{first} and {second} are both set: {remedy}")


def _without(name: str, *needed: str) -> Conflict:
    return Conflict(None, lambda v, _: v[name] is not None and all(v[other] is None for other in needed),
        f"{name} is set without {' or '.join(needed)}: set both, or neither.")


def _logs_in(v: Mapping[str, Any], *mechanisms: str) -> bool:
    return v["security.protocol"].startswith("SASL") and v["sasl.mechanism"] in mechanisms


def _is_another(v: Mapping[str, Any], given: Collection[str], *mechanisms: str) -> bool:
    return "sasl.mechanism" in given and v["sasl.mechanism"] not in mechanisms


def _has_endpoint(v: Mapping[str, Any], scheme: str) -> bool:
    return (v[_ENDPOINT] or "").lower().startswith(f"{scheme}:")


SECURITY_CONFLICTS: Final = (
    _both("ssl.keystore.location", "ssl.keystore.key"),
    _both("ssl.keystore.location", "ssl.keystore.certificate.chain"),
    _both("ssl.truststore.location", "ssl.truststore.certificates"),
    _without("ssl.keystore.key", "ssl.keystore.certificate.chain"),
    _without("ssl.keystore.certificate.chain", "ssl.keystore.key"),
    _without("ssl.keystore.password", "ssl.keystore.location", "ssl.keystore.key"),
    _without("ssl.truststore.password", "ssl.truststore.location"),
    *(_both("ssl.context", store, "a context has its own stores. Leave one of the two out.") for store in _STORES),
    Conflict(None, lambda v, _: v["ssl.protocol"] == "TLSv1.2" and "TLSv1.2" not in v["ssl.enabled.protocols"],
        "ssl.protocol=TLSv1.2 contradicts ssl.enabled.protocols, which leaves that version out: leave ssl.protocol "
        "out."),
    _both(_JAAS, _USER, "they mean the same. Leave out sasl.jaas.config, or sasl.username and sasl.password."),
    _both(_JAAS, _PROVIDER),
    _both(_USER, _PROVIDER, "leave out sasl.username and sasl.password, or the provider."),
    _without(_USER, _PASSWORD),
    _without(_PASSWORD, _USER),
    _both(_TOKENS, _ENDPOINT),
    Conflict("sasl.mechanism", lambda v, given: _is_another(v, given, "OAUTHBEARER") and v[_TOKENS] is not None,
        f"{_TOKENS} provides tokens, but sasl.mechanism={{v[sasl.mechanism]}} does not use them: set it to "
        "OAUTHBEARER."),
    Conflict("sasl.mechanism", lambda v, given: _is_another(v, given, *_WITH_PASSWORD)
            and (v[_PROVIDER] is not None or v[_USER] is not None),
        "sasl.mechanism={v[sasl.mechanism]} does not use a name and password: leave them out, or set it to PLAIN, "
        "SCRAM-SHA-256 or SCRAM-SHA-512."),
    Conflict("sasl.client.callback.handler.class",
        lambda v, given: v["sasl.client.callback.handler.class"] and _is_another(v, given, "AWS_MSK_IAM"),
        "sasl.client.callback.handler.class is MSK's, but sasl.mechanism={v[sasl.mechanism]} is not: set "
        "sasl.mechanism=AWS_MSK_IAM."),
    # The default is GSSAPI, which is rarely intended unless it is set.
    Conflict("security.protocol", lambda v, given: _logs_in(v, "GSSAPI") and "sasl.mechanism" not in given
            and v[_JAAS] is None and v["sasl.kerberos.service.name"] is None,
        "security.protocol={v[security.protocol]} needs sasl.mechanism: set it to one of "
        f"{', '.join(SASL_MECHANISMS)}, with the settings that it needs."),
    Conflict("sasl.mechanism", lambda v, _: _logs_in(v, "GSSAPI") and v[_JAAS] is None
            and v["sasl.kerberos.service.name"] is None,
        "sasl.mechanism=GSSAPI needs sasl.kerberos.service.name: set it to the first part of the brokers' "
        "principal, usually kafka."),
    Conflict("sasl.mechanism", lambda v, _: _logs_in(v, *_WITH_PASSWORD)
            and all(v[name] is None for name in (_JAAS, _USER, _PROVIDER)),
        f"sasl.mechanism={{v[sasl.mechanism]}} needs a name and a password: {_LOGIN_NEEDS}"),
    Conflict("sasl.mechanism", lambda v, _: _logs_in(v, "OAUTHBEARER")
            and all(v[name] is None for name in (_JAAS, _TOKENS, _ENDPOINT)),
        f"sasl.mechanism=OAUTHBEARER needs tokens: set {_ENDPOINT}, or pass a callable as {_TOKENS}."),
    Conflict(_ENDPOINT, lambda v, _: _has_endpoint(v, "http") and not v["sasl.oauthbearer.allow.http"],
        f"{_ENDPOINT} is http, which shows secret and token to the network: use https, or for a test set "
        "sasl.oauthbearer.allow.http=true."),
    Conflict(_ENDPOINT, lambda v, _: _has_endpoint(v, "file") and v[_RETRIEVER] != "FileJwtRetriever",
        f"{_ENDPOINT} is a file: to read tokens from it set {_RETRIEVER}={_OAUTH}.FileJwtRetriever."),
    Conflict(_RETRIEVER, lambda v, _: v[_RETRIEVER] == "FileJwtRetriever" and not _has_endpoint(v, "file"),
        f"{_RETRIEVER} is FileJwtRetriever, but {_ENDPOINT} does not name a file: set that to file:///the/path."),
)
# fmt: on


def unheeded(values: Mapping[str, Any], given: Collection[str], defaults: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about settings that are otherwise valid, without any of their values.

    Args:
        values: The values of all keys, parsed.
        given: The names of those that were set.
        defaults: The defaults of all keys, parsed.
    """
    protocol = values["security.protocol"]
    for is_used, prefix, wanted in (
        (protocol.endswith("SSL"), "ssl.", "SSL or SASL_SSL"),
        (protocol.startswith("SASL"), "sasl.", "SASL_SSL or SASL_PLAINTEXT"),
    ):
        names = sorted(
            name
            for name in given
            if name.startswith(prefix) and name in defaults and values[name] != defaults[name]
        )
        if names and not is_used:
            yield (
                f"{', '.join(names)}: no effect with security.protocol={protocol}. Set that to {wanted}, or "
                "leave them out."
            )
    if protocol == "SASL_PLAINTEXT" and values["sasl.mechanism"] == "PLAIN":
        yield (
            "sasl.mechanism=PLAIN with security.protocol=SASL_PLAINTEXT sends the password unencrypted: use "
            "SASL_SSL, or SCRAM."
        )
