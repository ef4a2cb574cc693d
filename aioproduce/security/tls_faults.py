"""Maps errors of OpenSSL and of peers to stable reasons, with setting and remedy.

Used by `tls`, with OpenSSL's error names and numbers.

Invariant: every name and number has a result. For an unknown one, the reason is OpenSSL's own name.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Fault(NamedTuple):
    """Why there is no channel.

    Attributes:
        reason: A stable reason of a word or two: `TlsError.reason`.
        about: The setting to check: `"truststore"`, `"keystore"`, or one of Kafka's keys; empty if none.
        remedy: The cause and what to do, in a clause or two. `{truststore}` and `{keystore}` stand for their
            places.
    """

    reason: str
    about: str
    remedy: str


_PROTOCOLS: Final = "ssl.enabled.protocols"
_CIPHERS: Final = "ssl.cipher.suites"
_HOSTS: Final = "ssl.endpoint.identification.algorithm"

_SELF_SIGNED = Fault(
    "self-signed certificate",
    "truststore",
    "the broker's certificate, or the root that it sends, is not in {truststore}: put the CA's certificate "
    "there if it is yours",
)
_UNKNOWN_ISSUER = Fault(
    "unknown issuer",
    "truststore",
    "the broker's certificate was issued by a CA that is not in {truststore}: put the CA's certificate there. "
    "If it is there, the broker does not send the intermediate certificates",
)
_OTHER_HOST = Fault(
    "host name mismatch",
    _HOSTS,
    "the broker's certificate is for other names: connect with one of its names (bootstrap.servers, and "
    "advertised.listeners of the broker), or give the broker a certificate with this name",
)
_EXPIRED = Fault(
    "certificate expired",
    "truststore",
    "a certificate of the broker has expired: the broker needs a new one. If it has not, the clock here is wrong",
)
_NOT_YET_VALID = Fault(
    "certificate not yet valid",
    "truststore",
    "a certificate of the broker is not valid yet: check this machine's clock and the CA's",
)
_REVOKED = Fault(
    "revoked", "truststore", "the broker's certificate was revoked by its CA: the broker needs a new one"
)
_NO_REVOCATION_LIST = Fault(
    "no revocation list",
    "truststore",
    "revocation is checked, but the CA's list is missing or expired: load a new one",
)
_WEAK = Fault(
    "weak certificate",
    "truststore",
    "a key or signature of the broker's certificates is too weak for this OpenSSL: the broker needs a new "
    "certificate",
)
_WRONG_PURPOSE = Fault(
    "unsuitable certificate",
    "truststore",
    "the broker's certificates are not allowed for a TLS server, or for a CA",
)

_VERIFY: Final = {
    2: _UNKNOWN_ISSUER,
    3: _NO_REVOCATION_LIST,
    9: _NOT_YET_VALID,
    10: _EXPIRED,
    12: _NO_REVOCATION_LIST,
    18: _SELF_SIGNED,
    19: _SELF_SIGNED,
    20: _UNKNOWN_ISSUER,
    21: _UNKNOWN_ISSUER,
    23: _REVOKED,
    24: _WRONG_PURPOSE,
    26: _WRONG_PURPOSE,
    27: _UNKNOWN_ISSUER,
    28: _UNKNOWN_ISSUER,
    62: _OTHER_HOST,
    64: _OTHER_HOST,
    66: _WEAK,
    67: _WEAK,
    68: _WEAK,
    79: _WRONG_PURPOSE,
}
"""OpenSSL's X509_V_ERR_* -> its fault."""

_NO_PROTOCOL = Fault(
    "no common protocol",
    _PROTOCOLS,
    "this client and the broker have no TLS version in common: this client supports 1.2 and 1.3, as far as "
    "ssl.enabled.protocols and ssl.protocol allow",
)
_NO_CIPHER = Fault(
    "no common cipher",
    _CIPHERS,
    "this client and the broker have no cipher suite in common: see ssl.cipher.suites on both sides, and the type "
    "of the key in the broker's certificate",
)
_NOT_TLS = Fault(
    "not TLS",
    "security.protocol",
    "the answer is not TLS: is this port a PLAINTEXT or SASL_PLAINTEXT listener?",
)
_REFUSED = Fault(
    "bad certificate refused by peer",
    "keystore",
    "the broker does not accept the client's certificate ({keystore}): check that the broker's trust store has its "
    "CA and that the key store has the whole chain, and see the broker's log",
)
_REFUSED_AS_EXPIRED = Fault(
    "bad certificate refused by peer",
    "keystore",
    "the broker reports that the client's certificate ({keystore}) has expired",
)
_REFUSED_AS_REVOKED = Fault(
    "revoked",
    "keystore",
    "the broker reports that the client's certificate ({keystore}) was revoked: get a new one",
)
_WANTS_CERTIFICATE = Fault(
    "peer requires a client certificate",
    "keystore",
    "the broker requires a client certificate (ssl.client.auth=required), but none is configured: set "
    "ssl.keystore.location, or ssl.keystore.key with ssl.keystore.certificate.chain",
)
_DAMAGED = Fault("damaged", "", "bytes were changed or lost on the network: the client tries again")
_TOO_LARGE = Fault(
    "oversized message", "", "the peer sent a message larger than TLS allows: it is not a Kafka broker"
)
_CLOSED_EARLY = Fault(
    "closed during handshake",
    "security.protocol",
    "the broker closed the connection during the handshake: is this port a PLAINTEXT listener, or does the broker "
    "require a client certificate?",
)
_TRUNCATED = Fault("truncated", "", "the connection ended without TLS's close_notify")
FLOOD: Final = Fault("flood", "", "the peer keeps sending records without content: it is not a proper broker")
_ENDED: Final = Fault("ended", "", "the channel has ended: nothing can be sent on it")
NOT_ESTABLISHED: Final = Fault("not established", "", "nothing can be sent before the handshake is done")
UNLISTED_CIPHER: Final = Fault(
    "no common cipher",
    _CIPHERS,
    "the broker chose a TLS 1.3 cipher suite that ssl.cipher.suites does not list (this Python cannot restrict "
    "the suites of TLS 1.3): list it, or remove TLSv1.3 from ssl.enabled.protocols",
)

_BY_NAME: Final = {
    "CERTIFICATE_VERIFY_FAILED": _UNKNOWN_ISSUER,
    "WRONG_VERSION_NUMBER": _NO_PROTOCOL,
    "UNSUPPORTED_PROTOCOL": _NO_PROTOCOL,
    "NO_PROTOCOLS_AVAILABLE": _NO_PROTOCOL,
    "TLSV1_ALERT_PROTOCOL_VERSION": _NO_PROTOCOL,
    "VERSION_TOO_LOW": _NO_PROTOCOL,
    "INAPPROPRIATE_FALLBACK": _NO_PROTOCOL,
    "TLSV1_ALERT_INAPPROPRIATE_FALLBACK": _NO_PROTOCOL,
    "NO_CIPHERS_AVAILABLE": _NO_CIPHER,
    "NO_SHARED_CIPHER": _NO_CIPHER,
    "WRONG_CIPHER_RETURNED": _NO_CIPHER,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _NO_CIPHER,
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": _NO_CIPHER,
    "HTTP_REQUEST": _NOT_TLS,
    "HTTPS_PROXY_REQUEST": _NOT_TLS,
    "UNKNOWN_PROTOCOL": _NOT_TLS,
    "NOT_SSL_RECORD_OR_UNEXPECTED": _NOT_TLS,
    "SSLV3_ALERT_BAD_CERTIFICATE": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REFUSED,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _REFUSED,
    "TLSV1_ALERT_UNKNOWN_CA": _REFUSED,
    "TLSV1_ALERT_ACCESS_DENIED": _REFUSED,
    "TLSV1_ALERT_DECRYPT_ERROR": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _REFUSED_AS_EXPIRED,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": _REFUSED_AS_REVOKED,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _WANTS_CERTIFICATE,
    "SSLV3_ALERT_NO_CERTIFICATE": _WANTS_CERTIFICATE,
    "TLSV1_UNRECOGNIZED_NAME": Fault(
        "host name mismatch",
        "bootstrap.servers",
        "the broker, or the proxy before it, does not know this host name",
    ),
    "TLSV1_ALERT_UNRECOGNIZED_NAME": Fault(
        "host name mismatch",
        "bootstrap.servers",
        "the broker, or the proxy before it, does not know this host name",
    ),
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": _DAMAGED,
    "SSLV3_ALERT_BAD_RECORD_MAC": _DAMAGED,
    "BAD_RECORD_TYPE": _DAMAGED,
    "RECORD_LAYER_FAILURE": _DAMAGED,  # from OpenSSL 3.2 on, which reports no details
    "EXCESSIVE_MESSAGE_SIZE": _TOO_LARGE,
    "ENCRYPTED_LENGTH_TOO_LONG": _TOO_LARGE,
    "DATA_LENGTH_TOO_LONG": _TOO_LARGE,
    "PACKET_LENGTH_TOO_LONG": _TOO_LARGE,
    "TOO_MANY_WARN_ALERTS": FLOOD,
    "TOO_MANY_KEY_UPDATES": FLOOD,
    "RECORD_TOO_SMALL": FLOOD,
    "EE_KEY_TOO_SMALL": _WEAK,
    "CA_KEY_TOO_SMALL": _WEAK,
    "CA_MD_TOO_WEAK": _WEAK,
    "DH_KEY_TOO_SMALL": _WEAK,
    "UNEXPECTED_EOF_WHILE_READING": _TRUNCATED,
    "PROTOCOL_IS_SHUTDOWN": _ENDED,
    "CLOSED_DURING_HANDSHAKE": _CLOSED_EARLY,
}
"""OpenSSL's name of an error in a handshake with a broker -> its fault."""

_WITHOUT_IDENTITY: Final = frozenset(
    {
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "TLSV1_ALERT_ACCESS_DENIED",
    }
)
"""Brokers' alerts for a client without a certificate, after the cipher suite was chosen; the first is Java's."""

_LOADING: Final = {
    "KEY_VALUES_MISMATCH": Fault(
        "key does not fit",
        "keystore",
        "the private key in {keystore} does not belong to its first certificate: the client's own certificate "
        "comes first, then those of its CAs",
    ),
    "EE_KEY_TOO_SMALL": Fault(
        "weak certificate",
        "keystore",
        "the key in {keystore} is too small for this OpenSSL: get a larger one",
    ),
    "CA_MD_TOO_WEAK": Fault(
        "weak certificate",
        "keystore",
        "a certificate in {keystore} is signed with a weak hash: get a new one",
    ),
}
_LOADING["KEY_TYPE_MISMATCH"] = _LOADING["NO_CERTIFICATE_ASSIGNED"] = _LOADING["KEY_VALUES_MISMATCH"]
_LOADING["CA_KEY_TOO_SMALL"] = _LOADING["EE_KEY_TOO_SMALL"]


def handshake_fault(name: str, *, verify_code: int, verify_message: str, lacks_identity: bool) -> Fault:
    """Return the fault for an error of a handshake or of a record.

    Args:
        name: OpenSSL's name of the error.
        verify_code: What is wrong with the broker's certificate, 0 if nothing.
        verify_message: OpenSSL's description of that.
        lacks_identity: Whether the cipher suite was chosen and the client has no certificate to send.
    """
    if verify_code:
        fault = _VERIFY.get(verify_code)
        if fault is None:
            remedy = "the broker's certificate is not accepted: compare it with {truststore}"
            fault = Fault(verify_message or "bad certificate", "truststore", remedy)
        return fault._replace(remedy=f"{fault.remedy} (OpenSSL: {verify_message.rstrip('.')})")
    if lacks_identity and name in _WITHOUT_IDENTITY:
        fault = _WANTS_CERTIFICATE
    else:
        fault = _BY_NAME.get(name, Fault(name, "", "TLS failed, see the broker's log for its side"))
    return fault._replace(remedy=f"{fault.remedy} (OpenSSL: {name})")


def loading_fault(name: str, *, is_encrypted: bool, password_setting: str) -> Fault:
    """Return the fault for an error while loading the client's own certificate and key.

    Args:
        name: OpenSSL's name of the error.
        is_encrypted: Whether OpenSSL asked for the key's password before.
        password_setting: Kafka's key for the password.
    """
    fault = _LOADING.get(name)
    if fault is None and is_encrypted:
        remedy = (
            f"the private key in {{keystore}} cannot be opened with {password_setting}: the password is wrong"
        )
        return Fault("wrong password", password_setting, remedy)
    if fault is None:
        fault = Fault(
            "damaged store", "keystore", "a certificate or key in {keystore} is damaged: create it again"
        )
    return fault._replace(remedy=f"{fault.remedy} (OpenSSL: {name})")


def is_tls(head: bytes) -> bool:
    """Return whether a peer's first bytes can be a TLS record: an alert or a handshake of version 3."""
    return head[:1] in (b"\x15", b"\x16") and head[1:2] in (b"", b"\x03")


def not_tls(head: bytes) -> Fault:
    """Name the protocol of a peer that does not use TLS, from up to 5 of its first bytes."""
    if head.startswith(b"HTTP"):
        who = "an HTTP server answers: is this the port of a Kafka broker?"
    elif head.startswith(b"SSH-"):
        who = "an SSH server answers: is this the port of a Kafka broker?"
    elif head[:1] == b"\x00":
        who = "a broker answers without encryption: is this port a PLAINTEXT or SASL_PLAINTEXT listener?"
    else:
        return _NOT_TLS._replace(remedy=f"{_NOT_TLS.remedy} It begins with {head!r}")
    return _NOT_TLS._replace(remedy=who)
