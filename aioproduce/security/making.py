"""Creates a producer's security from `security.protocol`, `ssl.*` and `sasl.*` of its configuration.

Called at the producer's start and by the blocking client. Nothing is read or requested here: key files and token
endpoints are used at the first connection, in a thread.

Invariants:

1. Contradictory settings raise `ConfigError` here, before anything is opened. The configuration table has already
   checked each key by itself.
2. No secret leaves its `Secret`.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from aioproduce.errors import ConfigError
from aioproduce.security import oauthbearer, plain, scram
from aioproduce.security.credentials import UserPassword
from aioproduce.security.jaas import (
    IamLogin,
    KerberosLogin,
    Login,
    OAuthBearerLogin,
    PlainLogin,
    ScramLogin,
    parse,
)
from aioproduce.security.key_files import KeyStore, TrustStore
from aioproduce.security.mechanism import Credential, RefreshWindow, Sasl
from aioproduce.security.security import Security
from aioproduce.security.tls_settings import TlsSettings
from aioproduce.security.tokens.provider import StaticSource, TokenProvider, UserPasswordProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.config import ProducerConfig
    from aioproduce.security.mechanism import CredentialSource, Mechanism
    from aioproduce.security.tokens.assertion import SignedAssertion
    from aioproduce.security.tokens.grants import Grant

_log = logging.getLogger("aioproduce")

_JAAS: Final = "sasl.jaas.config"
_MSK: Final = "AWS_MSK_IAM"
_OF_LOGIN: Final[dict[type[Any], tuple[str, ...]]] = {
    PlainLogin: ("PLAIN",),
    ScramLogin: ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    OAuthBearerLogin: ("OAUTHBEARER",),
    KerberosLogin: ("GSSAPI",),
    IamLogin: (_MSK,),
}


def make_security(config: ProducerConfig, *, wall: Callable[[], float] = time.time) -> Security | None:
    """Return the encryption and login of this configuration's connections.

    Args:
        config: The settings.
        wall: Returns the seconds since the epoch.

    Returns:
        `None` for `security.protocol=PLAINTEXT`.

    Raises:
        ConfigError: If settings are missing, or contradict each other.
        MissingExtraError: If a mechanism needs a library that is not installed.
    """
    protocol = config.security_protocol
    if protocol == "PLAINTEXT":
        return None
    return Security(
        channels=make_channels(config, wall) if protocol.endswith("SSL") else None,
        sasl=_make_sasl(config, wall) if protocol.startswith("SASL_") else None,
    )


def make_channels(config: ProducerConfig, wall: Callable[[], float]) -> Any:
    """Return the factory of encrypted channels for Kafka's `ssl.*`."""
    from aioproduce.security.tls import TlsChannels  # imports OpenSSL, which plaintext does not need

    return TlsChannels(
        TlsSettings(
            keystore=KeyStore(
                location=config.ssl_keystore_location,
                password=config.ssl_keystore_password,
                key=config.ssl_keystore_key,
                certificate_chain=config.ssl_keystore_certificate_chain,
                key_password=config.ssl_key_password,
            ),
            truststore=TrustStore(
                location=config.ssl_truststore_location,
                password=config.ssl_truststore_password,
                certificates=config.ssl_truststore_certificates,
            ),
            enabled_protocols=config.ssl_enabled_protocols,
            protocol=config.ssl_protocol,
            cipher_suites=config.ssl_cipher_suites,
            endpoint_identification_algorithm=config.ssl_endpoint_identification_algorithm,
            context=config.ssl_context,
        ),
        wall_clock=wall,
    )


def _make_sasl(config: ProducerConfig, wall: Callable[[], float]) -> Sasl:
    login = None if config.sasl_jaas_config is None else parse(config.sasl_jaas_config)
    mechanism = config.sasl_mechanism
    if login is not None and mechanism not in _OF_LOGIN[type(login)]:
        fitting = " or ".join(_OF_LOGIN[type(login)])
        raise ConfigError(
            f"{_JAAS} is for {fitting}, but sasl.mechanism is {mechanism}: change one of them",
            key=_JAAS,
        )
    source, converse = _PARTS[mechanism](config, login, wall)
    return Sasl(
        # MSK accepts its tokens under this name; AWS_MSK_IAM is the name in Java's library.
        mechanism="OAUTHBEARER" if mechanism == _MSK else mechanism,
        converse=converse,
        source=source,
        refresh=RefreshWindow(
            factor=config.sasl_login_refresh_window_factor,
            jitter=config.sasl_login_refresh_window_jitter,
            min_period=config.sasl_login_refresh_min_period_seconds,
            buffer=config.sasl_login_refresh_buffer_seconds,
            retry_backoff=config.sasl_login_retry_backoff,
            retry_backoff_max=config.sasl_login_retry_backoff_max,
        ),
    )


_Parts = tuple["CredentialSource", "Callable[[str, Credential], Mechanism]"]


def _plain(config: ProducerConfig, login: Login | None, _wall: Callable[[], float]) -> _Parts:
    return _user_password(config, login), plain.converse


def _scram(config: ProducerConfig, login: Login | None, _wall: Callable[[], float]) -> _Parts:
    token_auth = isinstance(login, ScramLogin) and login.tokenauth
    converse = scram.converse_by(config.sasl_mechanism, secrets.token_bytes, token_auth=token_auth)
    return _user_password(config, login), converse


def _user_password(config: ProducerConfig, login: Login | None) -> CredentialSource:
    """Return the source of the name and password for PLAIN and SCRAM."""
    if config.sasl_credentials_provider is not None:
        return UserPasswordProvider(config.sasl_credentials_provider)
    if isinstance(login, PlainLogin | ScramLogin):
        user = UserPassword(login.username, login.password)
    elif config.sasl_username and config.sasl_password is not None:
        user = UserPassword(config.sasl_username, config.sasl_password)
    else:
        raise ConfigError(
            f"sasl.mechanism={config.sasl_mechanism} needs a name and a password: set sasl.username and "
            f"sasl.password, or {_JAAS}",
            key="sasl.username",
        )
    return StaticSource(Credential(value=user, principal=user.username))


def _kerberos(config: ProducerConfig, login: Login | None, _wall: Callable[[], float]) -> _Parts:
    kerberos = login if isinstance(login, KerberosLogin) else KerberosLogin()
    service = config.sasl_kerberos_service_name or kerberos.service_name
    if not service:
        raise ConfigError(
            "sasl.kerberos.service.name is missing: it is the first part of the brokers' principals, usually kafka",
            key="sasl.kerberos.service.name",
        )
    from aioproduce.security import gssapi  # its library is rarely installed

    converse = gssapi.converse_by(service, keytab=kerberos.keytab, principal=kerberos.principal)
    domain = config.sasl_kerberos_domain_name
    if domain:
        return StaticSource(Credential(value=None)), lambda _host, credential: converse(domain, credential)
    return StaticSource(Credential(value=None, principal=kerberos.principal)), converse


def _msk(config: ProducerConfig, login: Login | None, wall: Callable[[], float]) -> _Parts:
    from aioproduce.security.tokens.msk import MskSource, region_of

    iam = login if isinstance(login, IamLogin) else IamLogin()
    if iam.sts_region:
        _log.warning(
            "awsStsRegion of sasl.jaas.config is not used: AWS's signer asks STS in the cluster's region, "
            "or in the region that the environment sets (AWS_STS_REGIONAL_ENDPOINTS)"
        )
    region = region_of(f"{host}:{port}" for host, port in config.bootstrap_servers)
    source = MskSource(
        region,
        profile=iam.profile_name or None,
        role_arn=iam.role_arn or None,
        session_name=iam.role_session_name or None,
        now=wall,
    )
    return source, oauthbearer.converse


def _oauthbearer(config: ProducerConfig, login: Login | None, wall: Callable[[], float]) -> _Parts:
    options = login if isinstance(login, OAuthBearerLogin) else OAuthBearerLogin()
    extensions = {**options.extensions, **config.sasl_oauthbearer_extensions}
    return _token_source(config, options, extensions, wall), oauthbearer.converse


def _token_source(
    config: ProducerConfig, options: OAuthBearerLogin, extensions: dict[str, str], wall: Callable[[], float]
) -> CredentialSource:
    if config.sasl_oauthbearer_token_provider is not None:
        return TokenProvider(config.sasl_oauthbearer_token_provider, extensions=extensions, now=wall)
    url = config.sasl_oauthbearer_token_endpoint_url
    if options.unsecured is not None:
        from aioproduce.security.tokens.unsecured import UnsecuredSource

        return UnsecuredSource(options.unsecured, extensions=extensions, now=wall)
    if url is None:
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs tokens: set sasl.oauthbearer.token.endpoint.url, or "
            "sasl.oauthbearer.token.provider to a callable that returns one",
            key="sasl.oauthbearer.token.endpoint.url",
        )
    if _retriever(config) == "FileJwtRetriever" or url.startswith("file:"):
        from aioproduce.security.tokens.file import FileSource, path_of

        return FileSource(path_of(url), extensions=extensions, now=wall)
    from aioproduce.security.tokens.bounded_post import TokenEndpoint
    from aioproduce.security.tokens.endpoint import EndpointSource

    endpoint = TokenEndpoint(
        url=url,
        is_http_allowed=config.sasl_oauthbearer_allow_http,
        ca_location=config.sasl_oauthbearer_token_endpoint_ca_location,
        proxy=config.sasl_oauthbearer_token_endpoint_proxy,
        connect_timeout=config.sasl_login_connect_timeout or 10.0,
        read_timeout=config.sasl_login_read_timeout or 10.0,
    )
    return EndpointSource(endpoint, _grant(config, options, wall), extensions=extensions, now=wall)


def _retriever(config: ProducerConfig) -> str:
    """Return the last part of the class's name, by which Java's files choose the retriever."""
    return config.sasl_oauthbearer_jwt_retriever_class.rpartition(".")[2]


def _grant(config: ProducerConfig, options: OAuthBearerLogin, wall: Callable[[], float]) -> Grant:
    from aioproduce.security.tokens.assertion import assertion_of
    from aioproduce.security.tokens.grants import JwtBearer, client_credentials

    scope = config.sasl_oauthbearer_scope or options.scope or None
    assertion = assertion_of(
        config.sasl_oauthbearer_assertion_file,
        config.sasl_oauthbearer_assertion_claim_iss,
        lambda: _signed_assertion(config, wall),
    )
    if _retriever(config) == "JwtBearerJwtRetriever":
        return JwtBearer(assertion or _signed_assertion(config, wall), scope=scope)
    return client_credentials(
        client_id=config.sasl_oauthbearer_client_credentials_client_id or options.client_id or None,
        client_secret=config.sasl_oauthbearer_client_credentials_client_secret or options.client_secret,
        assertion=assertion,
        scope=scope,
        is_url_encoded=config.sasl_oauthbearer_header_urlencode,
    )


def _signed_assertion(config: ProducerConfig, wall: Callable[[], float]) -> SignedAssertion:
    from aioproduce.security.tokens.assertion import SignedAssertion

    return SignedAssertion(
        private_key_file=config.sasl_oauthbearer_assertion_private_key_file,
        passphrase=config.sasl_oauthbearer_assertion_private_key_passphrase,
        algorithm=config.sasl_oauthbearer_assertion_algorithm,
        audience=config.sasl_oauthbearer_assertion_claim_aud,
        issuer=config.sasl_oauthbearer_assertion_claim_iss,
        subject=config.sasl_oauthbearer_assertion_claim_sub,
        exp_seconds=config.sasl_oauthbearer_assertion_claim_exp_seconds,
        nbf_seconds=config.sasl_oauthbearer_assertion_claim_nbf_seconds,
        is_jti_included=config.sasl_oauthbearer_assertion_claim_jti_include,
        template_file=config.sasl_oauthbearer_assertion_template_file,
        now=wall,
    )


_PARTS: Final[dict[str, Callable[[ProducerConfig, Login | None, Callable[[], float]], _Parts]]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _oauthbearer,
    "GSSAPI": _kerberos,
    _MSK: _msk,
}
