"""The TLS channel against OpenSSL's own server side: versions, names, clients' certificates, files that change."""

from __future__ import annotations

import gc
import os
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, TlsError
from aioproduce.security.key_files import KeyStore, TrustStore
from aioproduce.security.tls import TlsChannel, TlsChannels, TlsSettings
from aioproduce.security.tls_settings import openssl_name
from tests.security.tls_peer import (
    HOST,
    NOW,
    VERSIONS,
    Peer,
    encrypted,
    made,
    pem,
    server_context,
    shake,
    trusting,
    with_file,
)


def connected(
    ca: trustme.CA, broker: trustme.LeafCert, version: str = "TLSv1.3", host: str = HOST
) -> tuple[TlsChannel, Peer]:
    channel, peer = made(trusting(ca)).open(host), Peer(server_context(broker, version=version))
    shake(channel, peer)
    return channel, peer


@pytest.mark.parametrize("version", VERSIONS)
def test_there_and_back(ca: trustme.CA, broker: trustme.LeafCert, version: str) -> None:
    channel, peer = made(trusting(ca)).open(HOST), Peer(server_context(broker, version=version))
    assert (channel.describe(), channel.is_established) == ("", False)
    shake(channel, peer)
    assert channel.is_established
    assert peer.server_name == HOST
    cipher = peer.tls.cipher()
    assert cipher is not None
    assert channel.describe() == f"{version}, {cipher[0]}"
    sent: list[bytes | bytearray | memoryview] = [
        b"header",
        os.urandom(20_000),
        bytearray(os.urandom(16_384)),
        memoryview(b"end"),
        b"",
    ]
    channel.send(sent)
    peer.receive(channel.outgoing())
    assert bytes(peer.received) == b"".join(sent)
    answer = os.urandom(100_000)
    assert channel.receive(peer.say(answer)) == answer
    assert not channel.is_ended
    assert channel.outgoing() == b""


def test_byte_by_byte(ca: trustme.CA, broker: trustme.LeafCert) -> None:
    channel, peer = made(trusting(ca)).open(HOST), Peer(server_context(broker))
    channel.start()
    got = bytearray()
    for round_ in range(3):
        peer.receive(channel.outgoing())
        answered = peer.outgoing.read() if round_ < 2 else peer.say(b"answer")
        for at in range(len(answered)):
            got += channel.receive(answered[at : at + 1])
    assert bytes(got) == b"answer"


def test_small_pieces_share_records_and_large_ones_are_cut(ca: trustme.CA, broker: trustme.LeafCert) -> None:
    channel, _ = connected(ca, broker)
    channel.send([b"x" * 10] * 1_000 + [b"y" * 40_000] + [b"z" * 10] * 100)
    wire, sizes = channel.outgoing(), []
    while wire:
        size = int.from_bytes(wire[3:5])
        sizes.append(size - 17)  # 1 byte of type, 16 of the tag
        wire = wire[5 + size :]
    assert sum(sizes) == 51_000
    assert sizes == [16_384, 16_384, 16_384, 51_000 - 3 * 16_384]


def test_no_view_is_held_after_sending(ca: trustme.CA, broker: trustme.LeafCert) -> None:
    channel, _ = connected(ca, broker)
    buffer = bytearray(50_000)
    gc.disable()
    try:
        channel.send([buffer, b"tail"])
        buffer.append(0)  # a BufferError while there is a view
    finally:
        gc.enable()


@pytest.mark.parametrize("host", [f"{HOST}.", "127.0.0.1", "::1", "::1%lo"])
def test_names_that_are_the_brokers(ca: trustme.CA, broker: trustme.LeafCert, host: str) -> None:
    channel, peer = connected(ca, broker, host=host)
    assert channel.is_established
    assert peer.server_name == (HOST if HOST in host else None), "an address is not sent as a name"


@pytest.mark.parametrize("host", ["", ".", "a..b", "x" * 64 + ".org", "nul\0byte"])
def test_what_is_no_host_name(ca: trustme.CA, host: str) -> None:
    with pytest.raises(TlsError) as caught:
        made(trusting(ca)).open(host)
    assert caught.value.setting == "bootstrap.servers"


def test_names_are_not_checked_where_that_is_asked_for(
    ca: trustme.CA, broker: trustme.LeafCert, caplog: pytest.LogCaptureFixture
) -> None:
    channels = made(trusting(ca, endpoint_identification_algorithm=""))
    assert "ssl.endpoint.identification.algorithm is empty" in caplog.text
    channel = channels.open("elsewhere")
    shake(channel, Peer(server_context(broker)))
    assert channel.is_established


def on_one_line(text: str) -> Secret:
    return Secret(text.replace("\n", " "))


def client_stores(client: trustme.LeafCert, folder: Path) -> dict[str, KeyStore]:
    key, chain = (
        client.private_key_pem.bytes(),
        b"".join(blob.bytes() for blob in client.cert_chain_pems).decode(),
    )
    locked = encrypted(key, "pä=ss")
    (folder / "in.pem").write_text(pem(client))
    subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", "in.pem", "-out", "out.jks", "-passout", "pass:letmein"],
        cwd=folder,
        check=True,
    )
    (folder / "out.jks").chmod(0o600)
    return {
        "PEM file": with_file(folder / "client.p12", pem(client)),
        "PEM file, key first": with_file(folder / "first.pem", key.decode() + chain),
        "encrypted": with_file(folder / "locked.pem", chain + locked, key_password=Secret("pä=ss")),
        "inline": KeyStore(key=Secret(locked), certificate_chain=Secret(chain), key_password=Secret("pä=ss")),
        "inline on one line": KeyStore(key=on_one_line(key.decode()), certificate_chain=on_one_line(chain)),
        "PKCS12": KeyStore(location=str(folder / "out.jks"), password=Secret("letmein")),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_mutual_with_the_intermediate_ca(
    ca: trustme.CA, broker: trustme.LeafCert, client: trustme.LeafCert, tmp_path: Path, version: str
) -> None:
    # The broker knows the root alone, so it takes the client only with the certificate between.
    for name, store in client_stores(client, tmp_path).items():
        peer = Peer(server_context(broker, version=version, client_ca=ca))
        shake(made(trusting(ca, keystore=store)).open(HOST), peer)
        assert peer.is_established, (name, peer.error)
        shown = peer.tls.getpeercert(binary_form=True)
        expected = ssl.PEM_cert_to_DER_cert(client.cert_chain_pems[0].bytes().decode())
        assert shown == expected, name


def test_without_memfd_the_key_is_in_a_file_for_a_moment(
    ca: trustme.CA,
    broker: trustme.LeafCert,
    client: trustme.LeafCert,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = client_stores(client, tmp_path)["encrypted"]
    folder = tmp_path / "temporary"
    folder.mkdir()
    peer = Peer(server_context(broker, client_ca=ca))  # trustme has temporary files of its own
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    modes: list[int] = []
    unlink = os.unlink

    def look_and_unlink(path: str) -> None:
        modes.append(os.stat(path).st_mode & 0o777)
        unlink(path)

    monkeypatch.setattr(os, "unlink", look_and_unlink)
    shake(made(trusting(ca, keystore=store)).open(HOST), peer)
    assert peer.is_established
    assert modes == [0o600, 0o600]  # the trust store's, the key's
    assert list(folder.iterdir()) == []


def test_no_file_descriptor_is_left(ca: trustme.CA, client: trustme.LeafCert, tmp_path: Path) -> None:
    store = with_file(tmp_path / "client.pem", pem(client))
    made(trusting(ca, keystore=store))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        made(trusting(ca, keystore=store))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_certificate_that_is_replaced_on_disk_is_used_by_the_next_connection(
    ca: trustme.CA, broker: trustme.LeafCert, tmp_path: Path
) -> None:
    path = tmp_path / "client.pem"
    store = with_file(path, pem(ca.issue_cert("one@example.org")))
    channels = made(trusting(ca, keystore=store))

    def shown() -> str:
        channels.prepare()
        peer = Peer(server_context(broker, client_ca=ca))
        shake(channels.open(HOST), peer)
        certificate = peer.tls.getpeercert(binary_form=True)
        assert certificate is not None
        names = x509.load_der_x509_certificate(certificate).extensions
        found = names.get_extension_for_class(x509.SubjectAlternativeName).value
        return str(found.get_values_for_type(x509.RFC822Name)[0])

    assert shown() == "one@example.org"
    ready = channels._ready
    assert shown() == "one@example.org"
    assert channels._ready is ready, "an unchanged file is not read again"
    other = tmp_path / "other.pem"
    other.write_text(pem(ca.issue_cert("two@example.org")))
    other.replace(path)
    assert shown() == "two@example.org"
    path.write_text("half-writt")
    with pytest.raises(TlsError):
        channels.prepare()
    path.write_text(pem(ca.issue_cert("three@example.org")))
    assert shown() == "three@example.org"


def test_of_several_cas_all_are_loaded(broker: trustme.LeafCert, ca: trustme.CA, tmp_path: Path) -> None:
    others = [trustme.CA().cert_pem.bytes().decode() for _ in range(2)]
    path = tmp_path / "cas.pem"
    path.write_text("# ours and theirs\n" + others[0] + others[1] + ca.cert_pem.bytes().decode())
    channel = made(TlsSettings(truststore=TrustStore(location=str(path)))).open(HOST)
    shake(channel, Peer(server_context(broker)))
    assert channel.is_established


def test_an_intermediate_ca_may_be_trusted_as_java_has_it(ca: trustme.CA) -> None:
    child = ca.create_child_ca()
    channel = made(trusting(child)).open(HOST)
    shake(channel, Peer(server_context(child.issue_cert(HOST))))
    assert channel.is_established


def test_a_context_of_the_users_own_is_used_as_it_is(ca: trustme.CA, broker: trustme.LeafCert) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca.configure_trust(context)
    context.check_hostname = False
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    before = (context.options, context.verify_flags, context.minimum_version, len(context.get_ciphers()))
    channel = made(TlsSettings(context=context)).open("elsewhere")
    shake(channel, Peer(server_context(broker)))
    assert channel.describe().startswith("TLSv1.2")
    assert before == (
        context.options,
        context.verify_flags,
        context.minimum_version,
        len(context.get_ciphers()),
    )
    context.check_hostname = True
    with pytest.raises(TlsError) as caught:
        shake(made(TlsSettings(context=context)).open("elsewhere"), Peer(server_context(broker)))
    assert (caught.value.reason, caught.value.setting) == ("host name mismatch", "ssl.context")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(TlsError) as caught:
        made(TlsSettings(context=server)).open(HOST)
    assert caught.value.setting == "ssl.context"


def test_the_systems_store_is_loaded_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = made(TlsSettings()), made(TlsSettings())
    assert first._ready is not None
    assert second._ready is not None
    assert first._ready.context is second._ready.context
    other = made(TlsSettings(enabled_protocols=("TLSv1.2",)))
    assert other._ready is not None
    assert other._ready.context is not first._ready.context
    with pytest.raises(RuntimeError):
        TlsChannels(TlsSettings(), wall_clock=lambda: NOW).open(HOST)


def test_a_system_that_trusts_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    settings = TlsSettings(enabled_protocols=("TLSv1.3",))  # no other test has had its context made
    with pytest.raises(TlsError, match="ca-certificates") as caught:
        made(settings)
    assert (caught.value.reason, caught.value.setting) == ("empty store", "ssl.truststore.location")
    monkeypatch.undo()
    made(settings)


def test_renegotiation_and_compression_are_off(ca: trustme.CA) -> None:
    ready = made(trusting(ca))._ready
    assert ready is not None
    assert ready.context.options & ssl.OP_NO_RENEGOTIATION
    assert ready.context.options & ssl.OP_NO_COMPRESSION
    assert ready.context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("settings", "offered"),
    [
        ({}, ["TLSv1.2", "TLSv1.3"]),
        ({"enabled_protocols": ("TLSv1.3",)}, ["TLSv1.3"]),
        ({"enabled_protocols": ("TLSv1.2", "TLSv1.1", "TLSv1")}, ["TLSv1.2"]),
        ({"protocol": "TLSv1.2"}, ["TLSv1.2"]),
        ({"protocol": "TLS"}, ["TLSv1.2", "TLSv1.3"]),
        ({"cipher_suites": ("TLS_AES_256_GCM_SHA384",)}, ["TLSv1.3"]),
        ({"cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)}, ["TLSv1.2"]),
        (
            {"cipher_suites": ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_AES_256_GCM_SHA384")},
            ["TLSv1.2", "TLSv1.3"],
        ),
    ],
)
def test_versions(
    ca: trustme.CA, broker: trustme.LeafCert, settings: dict[str, object], offered: list[str]
) -> None:
    channels = made(trusting(ca, **settings))
    for version in VERSIONS:
        channel, peer = channels.open(HOST), Peer(server_context(broker, version=version))
        if version in offered:
            shake(channel, peer)
            assert channel.describe().startswith(version)
            continue
        with pytest.raises(TlsError) as caught:
            shake(channel, peer)
        assert caught.value.reason == "no common protocol"


def test_ciphers_by_their_names_in_java() -> None:
    # The oracle is OpenSSL's own list of both names.
    listed = subprocess.run(
        ["openssl", "ciphers", "-stdname", "-v", "ALL:!aNULL:!eNULL:!PSK:!SRP@SECLEVEL=0"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    names = [(words[0], words[2], words[3]) for words in map(str.split, listed)]
    older = [(java, name) for java, name, version in names if version != "TLSv1.3"]
    assert len(older) > 50
    assert [openssl_name(java) for java, _ in older] == [name for _, name in older]


def test_the_cipher_that_is_listed_is_used(ca: trustme.CA, broker: trustme.LeafCert) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    channel = made(trusting(ca, cipher_suites=(suite,))).open(HOST)
    shake(channel, Peer(server_context(broker)))
    assert channel.describe() == "TLSv1.2, ECDHE-ECDSA-AES128-GCM-SHA256"
    # This Python offers all suites of TLS 1.3 or none: what is not listed is refused once it is chosen.
    channel = made(trusting(ca, cipher_suites=("TLS_AES_128_GCM_SHA256",))).open(HOST)
    with pytest.raises(TlsError) as caught:
        shake(channel, Peer(server_context(broker)))
    assert (caught.value.reason, caught.value.setting) == ("no common cipher", "ssl.cipher.suites")
    assert not channel.is_established


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"enabled_protocols": ("TLSv1.1",)}, "ssl.enabled.protocols"),
        ({"enabled_protocols": ("TLSv1.4",)}, "ssl.enabled.protocols"),
        ({"enabled_protocols": ("TLSv1.3",), "protocol": "TLSv1.2"}, "ssl.enabled.protocols"),
        ({"protocol": "SSLv3"}, "ssl.protocol"),
        ({"endpoint_identification_algorithm": "ldaps"}, "ssl.endpoint.identification.algorithm"),
        ({"cipher_suites": ("TLS_RSA_WITH_RC4_128_MD5",)}, "ssl.cipher.suites"),
        ({"cipher_suites": ("TLS_AES_128_GCM_SHA256",), "protocol": "TLSv1.2"}, "ssl.cipher.suites"),
        (
            {"context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "keystore": KeyStore(location="x")},
            "ssl.context",
        ),
    ],
)
def test_settings_that_are_refused(settings: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TlsChannels(TlsSettings(**settings), wall_clock=lambda: NOW)  # type: ignore[arg-type]
    assert caught.value.key == key


def test_an_unknown_cipher_is_told_with_the_list() -> None:
    with pytest.raises(ConfigError, match="ECDHE-RSA-AES256-GCM-SHA384"):
        TlsChannels(TlsSettings(cipher_suites=("NONE_SUCH",)), wall_clock=lambda: NOW)
