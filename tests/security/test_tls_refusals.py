"""Handshakes that fail: each a TlsError with a reason that does not change, the setting and a remedy."""

from __future__ import annotations

import datetime
import logging
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme

from aioproduce.config.secret import Secret
from aioproduce.errors import TlsError
from aioproduce.security.key_files import TrustStore
from aioproduce.security.tls import TlsSettings
from aioproduce.security.tls_faults import handshake_fault, loading_fault
from tests.security.tls_peer import (
    HOST,
    NOW,
    VERSIONS,
    Peer,
    made,
    pem,
    server_context,
    shake,
    trusting,
    with_file,
)

DAY = 86_400.0


def at(days: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)


def refused(settings: TlsSettings, context: ssl.SSLContext, host: str = HOST) -> TlsError:
    channel, peer = made(settings).open(host), Peer(context)
    with pytest.raises(TlsError) as caught:
        shake(channel, peer)
    assert caught.value.host == host
    assert host in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    with pytest.raises(TlsError) as again:
        channel.receive(b"more")
    assert again.value.reason == caught.value.reason
    with pytest.raises(TlsError):
        channel.send([b"more"])
    return caught.value


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("begins", "ends", "reason"),
    [(-10, -1, "certificate expired"), (1, 10, "certificate not yet valid")],
)
def test_dates_of_the_brokers_certificate(
    ca: trustme.CA, version: str, begins: float, ends: float, reason: str
) -> None:
    leaf = ca.issue_cert(HOST, not_before=at(begins), not_after=at(ends))
    error = refused(trusting(ca), server_context(leaf, version=version))
    assert (error.reason, error.setting) == (reason, "ssl.truststore.certificates")


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_issuer(ca: trustme.CA, version: str) -> None:
    error = refused(trusting(ca), server_context(trustme.CA().issue_cert(HOST), version=version))
    assert (error.reason, error.setting) == ("unknown issuer", "ssl.truststore.certificates")


def test_without_a_trust_store_the_setting_is_named_all_the_same(broker: trustme.LeafCert) -> None:
    error = refused(TlsSettings(), server_context(broker))
    assert (error.reason, error.setting) == ("unknown issuer", "ssl.truststore.location")
    assert "not set" in str(error)


def test_self_signed(ca: trustme.CA, tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    assert refused(trusting(ca), context).reason == "self-signed certificate"
    # In the trust store it is trusted, as Java has it.
    channel = made(TlsSettings(truststore=TrustStore(location=str(tmp_path / "cert.pem")))).open(HOST)
    shake(channel, Peer(context))
    assert channel.is_established


@pytest.mark.parametrize("host", ["kafka-2.example", "127.0.0.2", "::2", "example"])
def test_another_host(ca: trustme.CA, broker: trustme.LeafCert, host: str) -> None:
    error = refused(trusting(ca), server_context(broker), host)
    assert (error.reason, error.setting) == ("host name mismatch", "ssl.endpoint.identification.algorithm")


def test_revoked(ca: trustme.CA, broker: trustme.LeafCert, tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

    leaf = x509.load_pem_x509_certificate(broker.cert_chain_pems[0].bytes())
    root = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    key: Any = load_pem_private_key(ca.private_key_pem.bytes(), None)
    gone = x509.RevokedCertificateBuilder().serial_number(leaf.serial_number).revocation_date(at(-1)).build()
    revoked = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(root.subject).last_update(at(-1)).next_update(at(1)).add_revoked_certificate(gone)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path / "revoked.pem"
    path.write_bytes(revoked.public_bytes(Encoding.PEM))
    context = ssl.create_default_context()
    ca.configure_trust(context)
    context.load_verify_locations(path)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    error = refused(TlsSettings(context=context), server_context(broker))
    assert (error.reason, error.setting) == ("revoked", "ssl.context")


def after_handshake(settings: TlsSettings, context: ssl.SSLContext) -> TlsError:
    """In TLS 1.3 the broker looks at the client's certificate when the client is done."""
    channel, peer = made(settings).open(HOST), Peer(context)
    with pytest.raises(TlsError) as caught:
        shake(channel, peer)
    return caught.value


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_wants_a_certificate(ca: trustme.CA, broker: trustme.LeafCert, version: str) -> None:
    error = after_handshake(trusting(ca), server_context(broker, version=version, client_ca=ca))
    assert (error.reason, error.setting) == ("peer requires a client certificate", "ssl.keystore.location")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_does_not_take_the_certificate(
    ca: trustme.CA, broker: trustme.LeafCert, version: str, tmp_path: Path
) -> None:
    store = with_file(tmp_path / "client.pem", pem(trustme.CA().issue_cert("client@example.org")))
    error = after_handshake(
        trusting(ca, keystore=store), server_context(broker, version=version, client_ca=ca)
    )
    assert (error.reason, error.setting) == ("bad certificate refused by peer", "ssl.keystore.location")
    assert store.location is not None
    assert store.location in str(error)


@pytest.mark.parametrize(
    ("alert", "reason"),
    [
        ("SSLV3_ALERT_BAD_CERTIFICATE", "peer requires a client certificate"),  # Java's word for none
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "peer requires a client certificate"),
        ("TLSV1_ALERT_UNKNOWN_CA", "bad certificate refused by peer"),
        ("SOMETHING_NEW", "SOMETHING_NEW"),
    ],
)
def test_alerts_to_a_client_without_a_certificate(alert: str, reason: str) -> None:
    fault = handshake_fault(alert, verify_code=0, verify_message="", lacks_identity=True)
    assert fault.reason == reason
    assert alert in fault.remedy


def test_no_common_cipher(ca: trustme.CA, broker: trustme.LeafCert) -> None:
    settings = trusting(ca, cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",))  # the key is EC
    error = refused(settings, server_context(broker))
    assert (error.reason, error.setting) == ("no common cipher", "ssl.cipher.suites")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH", "SSH"),
        (b"\0\0\0\x1a\0\0\0\x01", "PLAINTEXT listener"),
        (b"220 mail.example", "PLAINTEXT"),
        (b"\x16\x05\x01\0\0\0", "not TLS"),
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_what_is_not_tls(ca: trustme.CA, answer: bytes, says: str, size: int) -> None:
    channel = made(trusting(ca)).open(HOST)
    channel.start()
    *begin, last = [answer[start : start + size] for start in range(0, min(len(answer), max(size, 5)), size)]
    for piece in begin:
        assert channel.receive(piece) == b""
    with pytest.raises(TlsError, match=says) as caught:
        channel.receive(last)
    assert (caught.value.reason, caught.value.setting) == ("not TLS", "security.protocol")


@pytest.mark.parametrize(
    ("wrong", "reason", "setting"),
    [
        ("expired", "certificate expired", "ssl.keystore.location"),
        ("early", "certificate not yet valid", "ssl.keystore.location"),
        ("key", "key does not fit", "ssl.keystore.location"),
        ("key type", "key does not fit", "ssl.keystore.location"),
        ("damaged", "damaged store", "ssl.keystore.location"),
        ("trusted", "damaged store", "ssl.truststore.certificates"),
    ],
)
def test_stores_that_openssl_refuses(
    ca: trustme.CA, tmp_path: Path, wrong: str, reason: str, setting: str
) -> None:
    good = ca.issue_cert("client@example.org")
    text, settings = pem(good), {}
    chain = good.cert_chain_pems[0].bytes().decode()
    if wrong == "expired":
        text = pem(ca.issue_cert("client@example.org", not_before=at(-9), not_after=at(-1)))
    elif wrong == "early":
        text = pem(ca.issue_cert("client@example.org", not_before=at(1), not_after=at(9)))
    elif wrong == "key":
        text = chain + ca.issue_cert("other@example.org").private_key_pem.bytes().decode()
    elif wrong == "key type":
        other = ca.issue_cert("other@example.org", key_type=trustme.KeyType.RSA)
        text = chain + other.private_key_pem.bytes().decode()
    elif wrong == "damaged":
        text = text.replace(chain[200:230], "A" * 30)
    else:
        settings["truststore"] = TrustStore(certificates=Secret(chain[:200] + chain[260:]))
    store = with_file(tmp_path / "client.pem", text)
    with pytest.raises(TlsError) as caught:
        made(TlsSettings(keystore=store, **settings))  # type: ignore[arg-type]
    assert (caught.value.reason, caught.value.setting) == (reason, setting)
    assert caught.value.__context__ is None


def test_a_wrong_password_and_one_that_is_too_long(
    ca: trustme.CA, client: trustme.LeafCert, tmp_path: Path
) -> None:
    from tests.security.tls_peer import encrypted

    chain = client.cert_chain_pems[0].bytes().decode()
    text = chain + encrypted(client.private_key_pem.bytes(), "right")
    for number, password in enumerate(["wrong", "x" * 2_000, "\ud800"]):
        store = with_file(tmp_path / f"{number}.pem", text, key_password=Secret(password))
        with pytest.raises(TlsError) as caught:
            made(trusting(ca, keystore=store))
        assert (caught.value.reason, caught.value.setting) == ("wrong password", "ssl.key.password")


def test_words_for_loading_that_nobody_knows() -> None:
    fault = loading_fault("SOMETHING_NEW", is_encrypted=False, password_setting="ssl.key.password")
    assert (fault.reason, fault.about) == ("damaged store", "keystore")


def test_certificates_that_end_soon_are_told_once_a_day(
    ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = NOW
    ours = ca.issue_cert("client@example.org", not_after=at(20))
    theirs = server_context(ca.issue_cert(HOST, not_after=at(31.5)))
    store = with_file(tmp_path / "client.pem", pem(ours))
    channels = made(trusting(ca, keystore=store), lambda: now)

    def told() -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                channels.prepare()
                shake(channels.open(HOST), Peer(theirs))
        return [record.getMessage() for record in caplog.records]

    assert told() == []  # said when they were made
    now += 0.9 * DAY
    assert told() == []
    now += 0.2 * DAY
    (line,) = told()
    assert "this client" in line
    assert str(tmp_path) in line
    now += 1.1 * DAY
    ours_again, broker = told()
    assert "18." in ours_again or "17." in ours_again
    assert f"broker {HOST}" in broker
    now += 20 * DAY
    with pytest.raises(TlsError) as caught:
        channels.prepare()
    assert caught.value.reason == "certificate expired"
