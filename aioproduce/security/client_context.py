"""The context of the key stores of a producer, for a client of another protocol: a schema registry's, say."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aioproduce.security.tls import TlsChannels
from aioproduce.security.tls_settings import TlsSettings

if TYPE_CHECKING:
    import ssl

    from aioproduce.security.key_files import KeyStore, TrustStore


def client_context(keystore: KeyStore, truststore: TrustStore) -> ssl.SSLContext:
    """The context of these stores. It blocks.

    Raises:
        TlsError: A file cannot be read, or does not hold what it should; names the setting.
    """
    settings = TlsSettings(keystore=keystore, truststore=truststore)
    channels = TlsChannels(settings, wall_clock=time.time)
    channels.prepare()
    return channels.context
