"""No password, key or plaintext is in an error, its causes, a repr, a log line, or a traceback with its locals."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from aioproduce.config.secret import Secret
from aioproduce.errors import ProducerError
from aioproduce.security.key_files import KeyStore, TrustStore
from aioproduce.security.tls import TlsSettings
from tests.security.leaks import told
from tests.security.tls_peer import (
    HOST,
    Peer,
    encrypted,
    made,
    pem,
    server_context,
    shake,
    trusting,
    with_file,
)

PASSWORD = "correct-horse-battery"
WRONG = "staple-of-a-horse"
PLAINTEXT = b"\0user\0sasl-plain-password"


def pieces(key: bytes) -> list[str]:
    """What must not be seen of a private key: a middle part of its encodings."""
    lines = key.decode().splitlines()
    raw: Any = load_pem_private_key(key, None)
    der = raw.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return [lines[1][10:30], repr(der[40:48])[2:-1], str(raw.private_numbers().private_value)]


def cases(client: trustme.LeafCert, folder: Path) -> dict[str, Callable[[], object]]:
    chain, key = client.cert_chain_pems[0].bytes().decode(), client.private_key_pem.bytes().decode()
    locked = encrypted(key.encode(), PASSWORD)
    other = trustme.CA().issue_cert("other").private_key_pem.bytes().decode()
    broken = key[:70] + key[90:]

    def store(name: str, text: str, **passwords: Secret) -> Callable[[], object]:
        settings = TlsSettings(keystore=with_file(folder / name, text, **passwords))
        return lambda: made(settings)

    def inline(key: str, chain: str, password: str | None = None) -> Callable[[], object]:
        secret = None if password is None else Secret(password)
        return lambda: made(
            TlsSettings(
                keystore=KeyStore(key=Secret(key), certificate_chain=Secret(chain), key_password=secret)
            )
        )

    loaded: Any = load_pem_private_key(key.encode(), None)
    bare = serialize_key_and_certificates(None, loaded, None, None, NoEncryption())
    (folder / "bare.p12").write_bytes(bare)
    (folder / "cut.p12").write_bytes(bare[: len(bare) // 2])
    (folder / "key.der").write_bytes(loaded.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    p12 = {
        name: KeyStore(location=str(folder / name), password=Secret(WRONG))
        for name in ("bare.p12", "cut.p12", "key.der")
    }
    return {
        "no certificate": store("1.pem", key),
        "two keys": store("2.pem", chain + key + key),
        "wrong password": store("3.pem", chain + locked, key_password=Secret(WRONG)),
        "no password": store("4.pem", chain + locked),
        "another key": store("5.pem", chain + other + "", key_password=Secret(PASSWORD)),
        "damaged key": store("6.pem", chain + broken, key_password=Secret(PASSWORD)),
        "long password": inline(locked, chain, PASSWORD * 100),
        "surrogate": inline(locked, chain, PASSWORD + "\ud800"),
        "inline, no chain": inline(key, key, PASSWORD),
        "inline, damaged": inline(broken, chain, PASSWORD),
        "trust store is a key": lambda: made(
            TlsSettings(truststore=TrustStore(location=str(folder / "1.pem")))
        ),
        "PKCS12 without certificate": lambda: made(TlsSettings(keystore=p12["bare.p12"])),
        "PKCS12 cut": lambda: made(TlsSettings(keystore=p12["cut.p12"])),
        "DER key": lambda: made(TlsSettings(keystore=p12["key.der"])),
    }


def test_errors_of_key_stores(
    client: trustme.LeafCert, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = client.private_key_pem.bytes()
    hidden = [PASSWORD, WRONG, *pieces(key)]
    assert all(piece in str(key) + repr(load_pem_private_key(key, None)) for piece in hidden[2:3])
    with caplog.at_level(logging.DEBUG):
        for name, case in cases(client, tmp_path).items():
            with pytest.raises(ProducerError) as caught:
                case()
            seen = told(caught.value)
            assert "aioproduce/security" in seen, "the locals of our frames are looked at"
            for piece in hidden:
                assert piece not in seen, (name, piece)
    for piece in hidden:
        assert piece not in caplog.text


def test_plaintext_is_in_no_error_of_sending(ca: trustme.CA, broker: trustme.LeafCert) -> None:
    def fail(channel: Any) -> BaseException:
        with pytest.raises(ProducerError) as caught:
            channel.send([PLAINTEXT])
        return caught.value

    channel, peer = made(trusting(ca)).open(HOST), Peer(server_context(broker))
    channel.start()
    assert "sasl-plain" not in told(fail(channel))
    shake(channel := made(trusting(ca)).open(HOST), peer)
    shut = channel._tls
    with pytest.raises(ProducerError):
        channel.receive(b"\x17\x03\x03\0\x20" + bytes(32))
    assert "sasl-plain" not in told(fail(channel))
    # OpenSSL itself refuses, as it does when a peer forced an end.
    channel._fault = None
    assert shut is channel._tls
    assert "sasl-plain" not in told(fail(channel))


def test_plaintext_is_in_no_error_of_receiving(ca: trustme.CA, broker: trustme.LeafCert) -> None:
    channel, peer = made(trusting(ca)).open(HOST), Peer(server_context(broker))
    shake(channel, peer)
    wire = peer.say(b"a-token-in-an-answer") + b"\x17\x03\x03\0\x20" + bytes(32)
    with pytest.raises(ProducerError) as caught:
        channel.receive(wire)
    assert "a-token-in-an-answer" not in told(caught.value)


def test_reprs(client: trustme.LeafCert, ca: trustme.CA, tmp_path: Path) -> None:
    store = with_file(tmp_path / "client.pem", pem(client), key_password=Secret(PASSWORD))
    channels = made(trusting(ca, keystore=store))
    ready = channels._ready
    seen = "\n".join(
        map(repr, [store, store.read(), channels, ready, channels._settings, channels.open(HOST)])
    )
    for piece in [PASSWORD, *pieces(client.private_key_pem.bytes())]:
        assert piece not in seen
