"""TLS for HTTP: the schema registry's client, and the servers of the dashboard and of metrics.

Used by `serializers.registry_settings`, `dashboard.server` and `reporters.prometheus`. It blocks to read files.
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
    """Return a context with these stores, with the same rules as a producer's connections.

    Raises:
        TlsError: If a file cannot be read or has the wrong content. The error names the setting.
    """
    channels = TlsChannels(TlsSettings(keystore=keystore, truststore=truststore), wall_clock=time.time)
    channels.prepare()
    return channels.context


def server_context(
    certificate: str | os.PathLike[str],
    key: str | os.PathLike[str] | None = None,
    key_password: Secret | None = None,
) -> ssl.SSLContext:
    """Return the context of a server with this certificate, for TLS 1.2 and newer.

    Args:
        certificate: A PEM file with its certificate and the certificates that signed it.
        key: A PEM file with its key; by default the key is in the same file.
        key_password: The key's password, if it is encrypted.

    Raises:
        ConfigError: If a file cannot be read, if the key does not fit, or if it is encrypted and there is no
            password.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a callable, OpenSSL would ask on the terminal.
    password: Callable[[], str] = _no_password if key_password is None else key_password.reveal
    try:
        context.load_cert_chain(certificate, key, password)
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror or str(error)
    else:
        return context
    places = f"{certificate}" if key is None else f"{certificate} and {key}"
    raise ConfigError(
        f"{places} cannot be loaded ({why}): certificate= is a PEM file with the certificate, key= a PEM "
        "file with the key that belongs to it, and key_password= the password of that key",
        key="certificate",
    )


def _no_password() -> NoReturn:
    raise ConfigError("the server's key is encrypted: set key_password=", key="key_password")
