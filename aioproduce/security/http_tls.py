"""TLS of what is not Kafka: a schema registry's client, and the servers of the dashboard and of metrics.

Called by `serializers.registry_settings`, `dashboard.server` and `reporters.prometheus`. It blocks: files are read.
"""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, NoReturn

from aioproduce.errors import ConfigError
from aioproduce.security.tls import TlsChannels, TlsSettings

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aioproduce.config.secret import Secret
    from aioproduce.security.key_files import KeyStore, TrustStore


def client_context(keystore: KeyStore, truststore: TrustStore) -> ssl.SSLContext:
    """The context of these stores, as a producer's connections have it.

    Raises:
        TlsError: A file cannot be read, or does not hold what it should; names the setting.
    """
    channels = TlsChannels(TlsSettings(keystore=keystore, truststore=truststore), wall_clock=time.time)
    channels.prepare()
    return channels.context


def server_context(
    certificate: str | os.PathLike[str],
    key: str | os.PathLike[str] | None = None,
    key_password: Secret | None = None,
) -> ssl.SSLContext:
    """The context of a server that shows this certificate, TLS 1.2 and newer.

    Args:
        certificate: A PEM file: its certificate, and those that signed it.
        key: A PEM file with its key; by default that is in the same one.
        key_password: What opens the key, if it is encrypted.

    Raises:
        ConfigError: A file cannot be read, the key does not fit, or it is encrypted and there is no password.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a callable OpenSSL would ask on the terminal.
    password: Callable[[], str] = _no_password if key_password is None else key_password.reveal
    try:
        context.load_cert_chain(certificate, key, password)
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror or str(error)
    else:
        return context
    places = f"{certificate}" if key is None else f"{certificate} and {key}"
    raise ConfigError(
        f"{places} cannot be loaded ({why}): certificate= is a PEM file with the certificate, key= one with the "
        "key that goes with it, and key_password= opens that key",
        key="certificate",
    )


def _no_password() -> NoReturn:
    raise ConfigError("the server's key is encrypted: key_password= opens it", key="key_password")
