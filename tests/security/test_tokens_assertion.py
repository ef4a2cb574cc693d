"""Assertions: read from a file, or made and signed here; the signatures judged by OpenSSL and by `cryptography`."""

from __future__ import annotations

import base64
import errno
import json
import logging
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from joserfc.jwk import RSAKey

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, TokenError
from aioproduce.security.tokens.assertion import FileAssertion, SignedAssertion, assertion_of
from aioproduce.security.tokens.grants import JwtBearer
from aioproduce.security.tokens.trouble import Trouble, given
from tests.security.leaks import check_error, check_log

FILE = "sasl.oauthbearer.assertion.file"
KEY = "sasl.oauthbearer.assertion.private.key.file"
PASSPHRASE = "sasl.oauthbearer.assertion.private.key.passphrase"
TEMPLATE = "sasl.oauthbearer.assertion.template.file"
ALGORITHM = "sasl.oauthbearer.assertion.algorithm"

NOW = 1_700_000_000.9


def encoded(section: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(section).encode()).decode().rstrip("=")


def decoded(section: str) -> bytes:
    return base64.urlsafe_b64decode(section + "=" * (-len(section) % 4))


def jwt_of(claims: dict[str, Any]) -> str:
    return f"{encoded({'alg': 'RS256'})}.{encoded(claims)}.c2lnbmF0dXJl"


def made(assertion: SignedAssertion) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Header, claims, what is signed, the signature."""
    outcome = assertion.create()
    assert isinstance(outcome, Secret), outcome
    header, claims, signature = outcome.reveal().split(".")
    return (
        json.loads(decoded(header)),
        json.loads(decoded(claims)),
        f"{header}.{claims}".encode(),
        decoded(signature),
    )


def error_of(assertion: FileAssertion | SignedAssertion) -> TokenError:
    with pytest.raises(TokenError) as raised:
        given(assertion.create())
    return raised.value


def pem(key: Any, passphrase: bytes | None = None, kind: Any = serialization.PrivateFormat.PKCS8) -> bytes:
    how: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        how = serialization.BestAvailableEncryption(passphrase)
    content = key.private_bytes(serialization.Encoding.PEM, kind, how)
    assert isinstance(content, bytes)
    return content


@pytest.fixture(scope="module")
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class TestSigned:
    def test_openssl_accepts_rs256(self, rsa_key_file: str, tmp_path: Path) -> None:
        assertion = SignedAssertion(
            private_key_file=rsa_key_file,
            audience="https://idp.test",
            issuer="me",
            subject="alice",
            is_jti_included=True,
            exp_seconds=600,
            nbf_seconds=120,
            now=lambda: NOW,
            new_id=lambda: "id-1",
        )
        header, claims, signed, signature = made(assertion)

        assert header == {"alg": "RS256", "typ": "JWT"}
        assert claims == {
            "aud": "https://idp.test",
            "iss": "me",
            "sub": "alice",
            "iat": 1_700_000_000,
            "exp": 1_700_000_600,
            "nbf": 1_699_999_880,
            "jti": "id-1",
        }
        (tmp_path / "signed").write_bytes(signed)
        (tmp_path / "signature").write_bytes(signature)
        public = tmp_path / "public.pem"
        subprocess.run(["openssl", "pkey", "-in", rsa_key_file, "-pubout", "-out", public], check=True)
        done = subprocess.run(
            [
                "openssl",
                "dgst",
                "-sha256",
                "-verify",
                public,
                "-signature",
                tmp_path / "signature",
                tmp_path / "signed",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == "Verified OK"

    @pytest.mark.parametrize("algorithm", ["ES256", "es256"])
    def test_cryptography_accepts_es256(
        self, ec_key: ec.EllipticCurvePrivateKey, tmp_path: Path, algorithm: str
    ) -> None:
        path = tmp_path / "ec.pem"
        path.write_bytes(pem(ec_key))
        path.chmod(0o600)

        header, _, signed, signature = made(
            SignedAssertion(private_key_file=str(path), algorithm=algorithm, issuer="me")
        )

        assert header["alg"] == "ES256"
        # RFC 7518, 3.4: both numbers, of 32 bytes each.
        assert len(signature) == 64
        der = encode_dss_signature(
            int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        )
        ec_key.public_key().verify(der, signed, ec.ECDSA(hashes.SHA256()))

    def test_defaults_are_kafkas(self, rsa_key_file: str) -> None:
        _, claims, _, _ = made(SignedAssertion(private_key_file=rsa_key_file, now=lambda: NOW))
        assert claims == {"iat": 1_700_000_000, "exp": 1_700_000_300, "nbf": 1_699_999_940}

    def test_each_has_an_id_of_its_own(self, rsa_key_file: str) -> None:
        assertion = SignedAssertion(private_key_file=rsa_key_file, is_jti_included=True)
        ids = {made(assertion)[1]["jti"] for _ in range(3)}
        assert len(ids) == 3

    def test_a_template_wins_over_the_configuration_and_not_over_now(
        self, rsa_key_file: str, tmp_path: Path
    ) -> None:
        template = tmp_path / "template.json"
        template.write_text(
            json.dumps(
                {
                    "header": {"kid": "key-1", "some-random-header": 123456, "alg": "none", "typ": "X"},
                    "payload": {
                        "iss": "template",
                        "exp": 1,
                        "animals": ["cat", "dog"],
                        "useIt": False,
                        "ü": None,
                    },
                }
            )
        )
        assertion = SignedAssertion(
            private_key_file=rsa_key_file,
            issuer="me",
            subject="alice",
            template_file=str(template),
            now=lambda: NOW,
        )

        header, claims, _, _ = made(assertion)

        assert header == {"kid": "key-1", "some-random-header": 123456, "alg": "RS256", "typ": "JWT"}
        assert claims == {
            "iss": "template",
            "sub": "alice",
            "animals": ["cat", "dog"],
            "useIt": False,
            "ü": None,
            "iat": 1_700_000_000,
            "exp": 1_700_000_300,
            "nbf": 1_699_999_940,
        }
        # It is read again: no restart is needed for another issuer.
        template.write_text("{}")
        assert made(assertion)[1]["iss"] == "me"

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "{",
            "[]",
            "17",
            '{"header": []}',
            '{"payload": "x"}',
            "[" * 100_000,
            '{"header": {"crit": ["x"]}}',
        ],
    )
    def test_a_template_that_is_none(self, rsa_key_file: str, tmp_path: Path, content: str) -> None:
        (tmp_path / "template.json").write_text(content)
        assertion = SignedAssertion(
            private_key_file=rsa_key_file, template_file=str(tmp_path / "template.json")
        )
        check_error(error_of(assertion), ["BEGIN PRIVATE"], TEMPLATE)

    def test_a_key_file_is_needed_and_an_algorithm_that_is_known(self, rsa_key_file: str) -> None:
        with pytest.raises(ConfigError) as raised:
            SignedAssertion(private_key_file=None)
        assert raised.value.key == KEY
        with pytest.raises(ConfigError) as raised:
            SignedAssertion(private_key_file=rsa_key_file, algorithm="HS256")
        assert raised.value.key == ALGORITHM


class TestKeys:
    def test_an_encrypted_key_opens_by_its_passphrase(self, rsa_key: RSAKey, tmp_path: Path) -> None:
        path = tmp_path / "key.pem"
        path.write_bytes(pem(rsa_key.private_key, b"open sesame"))
        made(SignedAssertion(private_key_file=str(path), passphrase=Secret("open sesame")))

    @pytest.mark.parametrize("passphrase", [None, "", "wrong horse"])
    def test_a_passphrase_that_is_wrong_or_missing(
        self, rsa_key: RSAKey, tmp_path: Path, passphrase: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        path = tmp_path / "key.pem"
        path.write_bytes(pem(rsa_key.private_key, b"open sesame"))
        secret = None if passphrase is None else Secret(passphrase)

        error = error_of(SignedAssertion(private_key_file=str(path), passphrase=secret))

        body = path.read_text().splitlines()[1]
        check_error(error, ["wrong horse", body], PASSPHRASE)
        check_log(caplog, ["wrong horse", body])

    def test_a_passphrase_for_a_key_that_is_open_is_not_used(self, rsa_key_file: str) -> None:
        made(SignedAssertion(private_key_file=rsa_key_file, passphrase=Secret("not needed")))

    def test_the_older_shape_of_pem_is_read(self, rsa_key: RSAKey, tmp_path: Path) -> None:
        path = tmp_path / "key.pem"
        path.write_bytes(pem(rsa_key.private_key, kind=serialization.PrivateFormat.TraditionalOpenSSL))
        assert b"BEGIN RSA PRIVATE KEY" in path.read_bytes()
        made(SignedAssertion(private_key_file=str(path)))

    @pytest.mark.parametrize(
        "content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"]
    )
    def test_a_file_without_a_key(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "key.pem").write_bytes(content)
        check_error(error_of(SignedAssertion(private_key_file=str(tmp_path / "key.pem"))), ["AAAA"], KEY)

    def test_a_key_that_does_not_fit_the_algorithm(
        self, rsa_key_file: str, ec_key: ec.EllipticCurvePrivateKey, tmp_path: Path
    ) -> None:
        check_error(
            error_of(SignedAssertion(private_key_file=rsa_key_file, algorithm="ES256")), [], ALGORITHM
        )
        (tmp_path / "ec.pem").write_bytes(pem(ec_key))
        check_error(error_of(SignedAssertion(private_key_file=str(tmp_path / "ec.pem"))), [], ALGORITHM)
        (tmp_path / "ec.pem").write_bytes(pem(ec.generate_private_key(ec.SECP384R1())))
        other_curve = SignedAssertion(private_key_file=str(tmp_path / "ec.pem"), algorithm="ES256")
        check_error(error_of(other_curve), [], ALGORITHM)

    def test_a_short_key_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "key.pem").write_bytes(pem(rsa.generate_private_key(65537, 1024)))
        error = error_of(SignedAssertion(private_key_file=str(tmp_path / "key.pem")))
        assert "1024 bits" in check_error(error, [], KEY)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        error = error_of(SignedAssertion(private_key_file=str(tmp_path / "none.pem")))
        assert "No such file" in check_error(error, [], KEY)

    def test_a_file_that_may_not_be_read(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        # Tests may run as root, who may read everything.
        def refuse(path: str, flags: int) -> int:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

        assertion = SignedAssertion(private_key_file=str(tmp_path / "key.pem"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refuse)
            outcome = assertion.create()
        assert isinstance(outcome, Trouble)
        assert "Permission denied" in outcome.message
        assert outcome.setting == KEY

    def test_a_key_that_everybody_can_read_is_told_once(
        self, rsa_key_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        made(SignedAssertion(private_key_file=rsa_key_file))
        assert caplog.records == []
        path = tmp_path / "key.pem"
        path.write_bytes(Path(rsa_key_file).read_bytes())
        path.chmod(0o644)
        assertion = SignedAssertion(private_key_file=str(path))
        made(assertion)
        made(assertion)
        assert [KEY in record.getMessage() for record in caplog.records] == [True]


class TestFile:
    def test_it_is_read_anew_each_time(self, tmp_path: Path) -> None:
        path = tmp_path / "assertion.jwt"
        for claims in ({"sub": "a"}, {"sub": "b"}):
            path.write_text(f"\n{jwt_of(claims)}\n")
            assert FileAssertion(path=str(path)).create() == Secret(jwt_of(claims))

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "a.b",
            f"{encoded({})}.{encoded({})}.",
            "a.b.c",
            f"{encoded([])}.{encoded({})}.x",
            "ä.ö.ü",
            "{}",
        ],
    )
    def test_what_is_not_a_signed_jwt(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "assertion.jwt"
        path.write_text(content)
        check_error(error_of(FileAssertion(path=str(path))), [], FILE)

    def test_one_that_has_expired(self, tmp_path: Path) -> None:
        path = tmp_path / "assertion.jwt"
        path.write_text(jwt_of({"exp": 1000}))
        assert isinstance(FileAssertion(path=str(path), now=lambda: 1029.0).create(), Secret)
        error = error_of(FileAssertion(path=str(path), now=lambda: 1045.0))
        assert "expired 45 s ago" in check_error(error, [jwt_of({"exp": 1000})], FILE)

    def test_files_that_are_none(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
        (tmp_path / "large").write_bytes(b"a" * (1024 * 1024 + 1))
        for name in ("pipe", "binary", "large", "none", "nul\0"):
            check_error(error_of(FileAssertion(path=str(tmp_path / name))), [], FILE)
        check_error(error_of(FileAssertion(path="/dev/zero")), [], FILE)

    def test_the_trouble_of_an_assertion_is_that_of_its_grant(self) -> None:
        assert isinstance(JwtBearer(FileAssertion(path="/nowhere")).request(), Trouble)


def test_kafkas_order_is_file_then_made_then_none(
    rsa_key_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    def signed() -> SignedAssertion:
        return SignedAssertion(private_key_file=rsa_key_file)

    assert isinstance(assertion_of("/file", None, signed), FileAssertion)
    assert caplog.records == []
    assert isinstance(assertion_of("/file", "issuer", signed), FileAssertion)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert isinstance(assertion_of(None, "issuer", signed), SignedAssertion)
    assert assertion_of(None, None, signed) is None
