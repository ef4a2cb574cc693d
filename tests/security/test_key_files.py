"""Key stores and trust stores, made by OpenSSL's command line and by Java's keytool, told by their content."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, MissingExtraError, TlsError
from aioproduce.security.certificates import pem_blocks, validity
from aioproduce.security.key_files import KeyStore, TrustStore
from tests.security.tls_peer import encrypted, made, pem, trusting, with_file

KEYTOOL = shutil.which("keytool")
needs_java = pytest.mark.skipif(KEYTOOL is None, reason="needs keytool of Java 17")


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def keytool(folder: Path, *arguments: str) -> None:
    subprocess.run([str(KEYTOOL), *arguments], cwd=folder, check=True, capture_output=True)


def subjects(text: str) -> list[str]:
    return [found.subject.rfc4514_string() for found in x509.load_pem_x509_certificates(text.encode())]


def refusal(store: KeyStore | TrustStore) -> TlsError:
    with pytest.raises(TlsError) as caught:
        store.read()
    assert caught.value.__cause__ is None
    return caught.value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, client: trustme.LeafCert, ca: trustme.CA) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    (folder / "client.pem").write_text(pem(client))
    (folder / "ca.pem").write_bytes(ca.cert_pem.bytes())
    os.chmod(folder / "client.pem", 0o600)
    return folder


def is_the_clients(store: KeyStore, client: trustme.LeafCert) -> None:
    identity = store.read()
    assert identity is not None
    sent = "".join(blob.bytes().decode() for blob in client.cert_chain_pems)
    assert subjects(identity.chain)[: len(client.cert_chain_pems)] == subjects(sent)
    ours = load_pem_private_key(identity.key.reveal().encode(), None)
    theirs = load_pem_private_key(client.private_key_pem.bytes(), None)
    assert ours.private_numbers() == theirs.private_numbers()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "how",
    [
        (),
        (
            "-legacy",
            "-certpbe",
            "PBE-SHA1-RC2-40",
            "-keypbe",
            "PBE-SHA1-3DES",
            "-macalg",
            "sha1",
        ),  # of Java 8
        ("-keypbe", "NONE", "-certpbe", "NONE"),
        ("-name", "an alias"),
    ],
)
def test_pkcs12_of_openssl(folder: Path, client: trustme.LeafCert, how: tuple[str, ...]) -> None:
    openssl(folder, "pkcs12", "-export", "-in", "client.pem", "-out", "o.jks", "-passout", "pass:pä ss", *how)
    os.chmod(folder / "o.jks", 0o600)
    is_the_clients(KeyStore(location=str(folder / "o.jks"), password=Secret("pä ss")), client)
    is_the_clients(KeyStore(location=str(folder / "o.jks"), key_password=Secret("pä ss")), client)


def test_certificates_of_others_are_not_sent(folder: Path, client: trustme.LeafCert) -> None:
    other = trustme.CA()
    (folder / "mixed.pem").write_bytes((folder / "client.pem").read_bytes() + other.cert_pem.bytes())
    openssl(folder, "pkcs12", "-export", "-in", "mixed.pem", "-out", "m.p12", "-passout", "pass:x")
    identity = KeyStore(location=str(folder / "m.p12"), password=Secret("x")).read()
    assert identity is not None
    assert subjects(other.cert_pem.bytes().decode())[0] not in subjects(identity.chain)
    is_the_clients(KeyStore(location=str(folder / "m.p12"), password=Secret("x")), client)


@needs_java
def test_stores_of_keytool(folder: Path, client: trustme.LeafCert, ca: trustme.CA) -> None:
    openssl(folder, "pkcs12", "-export", "-in", "client.pem", "-out", "k.p12", "-passout", "pass:letmein")
    for kind in ("jks", "pkcs12"):
        keytool(
            folder, "-importkeystore", "-srckeystore", "k.p12", "-srcstorepass", "letmein", "-noprompt",
            "-destkeystore", f"of-java.{kind}", "-deststoretype", kind, "-deststorepass", "letmein",
        )  # fmt: skip
    password = Secret("letmein")
    is_the_clients(KeyStore(location=str(folder / "of-java.pkcs12"), password=password), client)
    error = refusal(KeyStore(location=str(folder / "of-java.jks"), password=password))
    assert (error.reason, error.setting) == ("JKS store", "ssl.keystore.location")
    command = str(error).partition("keytool ")[2].split()
    assert command[-1] == "pkcs12"
    # What is recommended works.
    keytool(folder, *command, "-srcstorepass", "letmein", "-deststorepass", "letmein", "-noprompt")
    is_the_clients(KeyStore(location=str(folder / "of-java.p12"), password=password), client)


@needs_java
def test_a_trust_store_of_keytool(folder: Path, ca: trustme.CA) -> None:
    (folder / "other.pem").write_bytes(trustme.CA().cert_pem.bytes())
    for name in ("ca", "other"):
        keytool(
            folder, "-importcert", "-noprompt", "-alias", name, "-file", f"{name}.pem", "-keystore", "trusted.jks",
            "-storetype", "pkcs12", "-storepass", "changeit",
        )  # fmt: skip
    location = str(folder / "trusted.jks")
    found = TrustStore(location=location, password=Secret("changeit")).read()
    assert found is not None
    assert sorted(subjects(found)) == sorted(
        subjects((folder / "ca.pem").read_text() + (folder / "other.pem").read_text())
    )
    assert refusal(TrustStore(location=location)).reason == "password needed"
    wrong = refusal(TrustStore(location=location, password=Secret("wrong")))
    assert (wrong.reason, wrong.setting) == ("wrong password", "ssl.truststore.password")
    no_key = refusal(KeyStore(location=location, password=Secret("changeit")))
    assert (no_key.reason, no_key.setting) == ("no private key", "ssl.keystore.location")


@pytest.mark.parametrize("magic", [b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"])
def test_formats_of_java_alone(tmp_path: Path, magic: bytes) -> None:
    (tmp_path / "a b.jks").write_bytes(magic + b"\0\0\0\2")
    error = refusal(TrustStore(location=str(tmp_path / "a b.jks")))
    assert "-deststoretype pkcs12" in str(error)
    assert f"'{tmp_path}/a b.jks'" in str(error)


@pytest.mark.parametrize(
    ("content", "reason", "says"),
    [
        (b"", "empty store", "is empty"),
        (b"\x30\x82\x01\x0a\x30\x81\x02", "not a store", "openssl x509 -inform der"),
        (b"\x7fELF", "not a store", "neither PEM"),
        (b"-----BEGIN CERTIFICATE-----\nno end", "empty store", "not hold a certificate"),
        (
            b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
            "empty store",
            "not hold a certificate",
        ),
        (b"\x30\x82\x01\x0a\x02\x01\x03garbage", "password needed", "ssl.truststore.password"),
    ],
)
def test_what_is_no_trust_store(tmp_path: Path, content: bytes, reason: str, says: str) -> None:
    (tmp_path / "trusted").write_bytes(content)
    error = refusal(TrustStore(location=str(tmp_path / "trusted")))
    assert error.reason == reason
    assert says in str(error)
    assert str(error.setting).startswith("ssl.truststore.")


def test_halves_of_a_key_store(tmp_path: Path, client: trustme.LeafCert) -> None:
    chain, key = client.cert_chain_pems[0].bytes().decode(), client.private_key_pem.bytes().decode()
    for text, reason in [
        (chain, "no private key"),
        (key, "no certificate"),
        (chain + key + key, "several private keys"),
    ]:
        error = refusal(with_file(tmp_path / "half.pem", text))
        assert (error.reason, error.setting) == (reason, "ssl.keystore.location")
    swapped = refusal(KeyStore(key=Secret(chain), certificate_chain=Secret(chain)))
    assert (swapped.reason, swapped.setting) == ("no private key", "ssl.keystore.key")
    swapped = refusal(KeyStore(key=Secret(key), certificate_chain=Secret("none")))
    assert (swapped.reason, swapped.setting) == ("no certificate", "ssl.keystore.certificate.chain")


def test_an_encrypted_key_without_its_password_is_no_question(
    tmp_path: Path, client: trustme.LeafCert, ca: trustme.CA
) -> None:
    chain = client.cert_chain_pems[0].bytes().decode()
    openssl(tmp_path, "version")
    (tmp_path / "plain.pem").write_bytes(client.private_key_pem.bytes())
    openssl(tmp_path, "ec", "-in", "plain.pem", "-aes128", "-passout", "pass:old", "-out", "old.pem")
    old = (tmp_path / "old.pem").read_text()
    assert "Proc-Type: 4,ENCRYPTED" in old, "OpenSSL's first format"
    for text in (encrypted(client.private_key_pem.bytes(), "new"), old):
        error = refusal(with_file(tmp_path / "client.pem", chain + text))
        assert (error.reason, error.setting) == ("password needed", "ssl.key.password")
    made(trusting(ca, keystore=with_file(tmp_path / "c.pem", chain + old, key_password=Secret("old"))))


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.pem"
    secret.touch(mode=0)
    cases = {
        str(tmp_path / "none.pem"): "no such file",
        str(tmp_path): "not a file",
        "nul\0byte": "unreadable file",
        "/dev/null": "not a file",
    }
    for location, reason in cases.items():
        error = refusal(KeyStore(location=location))
        assert (error.reason, error.setting) == (reason, "ssl.keystore.location")
        assert repr(location) in str(error)
        error = refusal(TrustStore(location=location))
        assert (error.reason, error.setting) == (reason, "ssl.truststore.location")
    with somebody_else():
        assert refusal(KeyStore(location=str(secret))).reason == "permission denied"


def test_an_enormous_file_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "disk.img", "wb") as file:
        file.truncate(1 << 40)
    assert refusal(TrustStore(location=str(tmp_path / "disk.img"))).reason == "not a store"


def test_a_key_that_everybody_may_read_is_told_once(
    tmp_path: Path, client: trustme.LeafCert, caplog: pytest.LogCaptureFixture
) -> None:
    store = with_file(tmp_path / "client.pem", pem(client))
    with caplog.at_level(logging.WARNING):
        store.read()
        assert caplog.records == []
        (tmp_path / "client.pem").chmod(0o644)
        store.read()
        store.read()
    (record,) = caplog.records
    assert f"{tmp_path}/client.pem" in record.getMessage()
    assert "chmod o-r" in record.getMessage()


def test_pkcs12_without_the_extra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openssl(folder, "pkcs12", "-export", "-in", "client.pem", "-out", "e.p12", "-passout", "pass:x")
    monkeypatch.setitem(
        __import__("sys").modules, "cryptography.hazmat.primitives.serialization.pkcs12", None
    )
    monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
    with pytest.raises(MissingExtraError, match=r"aioproduce\[tls\]"):
        KeyStore(location=str(folder / "e.p12"), password=Secret("x")).read()


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (
            lambda: KeyStore(location="a", key=Secret("k"), certificate_chain=Secret("c")),
            "ssl.keystore.location",
        ),
        (lambda: KeyStore(key=Secret("k")), "ssl.keystore.certificate.chain"),
        (lambda: KeyStore(certificate_chain=Secret("c")), "ssl.keystore.key"),
        (lambda: TrustStore(location="a", certificates=Secret("c")), "ssl.truststore.location"),
    ],
)
def test_settings_at_odds(make: type[KeyStore], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key


def test_nothing_is_set() -> None:
    assert KeyStore().read() is None
    assert TrustStore().read() is None


@pytest.mark.parametrize("end", ["20491231235959Z", "20500101000000Z", "99991231235959Z"])
def test_dates_are_those_that_openssl_prints(tmp_path: Path, end: str) -> None:
    openssl(tmp_path, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=a",
            "-keyout", "key.pem", "-out", "request.pem")  # fmt: skip
    (tmp_path / "index.txt").touch()
    (tmp_path / "ca.cnf").write_text(
        "[ca]\ndefault_ca=a\n[a]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n"
        "[p]\ncommonName=supplied\n"
    )
    openssl(tmp_path, "ca", "-config", "ca.cnf", "-selfsign", "-keyfile", "key.pem", "-in", "request.pem", "-batch",
            "-startdate", "19991231235958Z", "-enddate", end, "-out", "cert.pem", "-notext")  # fmt: skip
    certificate = x509.load_pem_x509_certificate((tmp_path / "cert.pem").read_bytes())
    from cryptography.hazmat.primitives.serialization import Encoding

    found = validity(certificate.public_bytes(Encoding.DER))
    assert found is not None
    assert found.begins_at == certificate.not_valid_before_utc.timestamp() == 946684798
    assert found.ends_at == certificate.not_valid_after_utc.timestamp()


def test_what_is_no_certificate_has_no_dates(ca: trustme.CA) -> None:
    der = x509.load_pem_x509_certificate(ca.cert_pem.bytes()).public_bytes
    from cryptography.hazmat.primitives.serialization import Encoding

    whole = der(Encoding.DER)
    for size in range(120):
        assert validity(whole[:size]) is None
    assert validity(b"\x30" * 100) is None


def test_pem_is_as_openssl_has_it(client: trustme.LeafCert) -> None:
    text = pem(client)
    assert (
        "".join(block.text for block in pem_blocks("Bag Attributes\n" + text.replace("\n", "\r\n"))) == text
    )
    assert [block.label for block in pem_blocks(text)][-1].endswith("PRIVATE KEY")
