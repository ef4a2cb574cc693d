"""Tokens for AWS MSK, by AWS's own signer with keys that are nobody's; what needs AWS's network is a stand-in."""

from __future__ import annotations

import base64
import logging
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import ClientError, CredentialRetrievalError  # type: ignore[import-untyped]

from aioproduce.errors import ConfigError, MissingExtraError, TokenError
from aioproduce.security.credentials import Token
from aioproduce.security.tokens.msk import MskSource, region_of
from tests.security.leaks import check_error, check_log

KEY_ID = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SESSION_TOKEN = "session-token-of-nobody"
SECRETS = [SECRET_KEY, SESSION_TOKEN]
SIGNER = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own AWS: no files, no metadata service."""
    for name in (
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION_TOKEN)


def signed_by(source: MskSource) -> tuple[str, dict[str, list[str]]]:
    """The host and the parameters of the URL that the token is."""
    value = source.fetch().value
    assert isinstance(value, Token)
    url = urlsplit(base64.urlsafe_b64decode(value.value.reveal() + "==").decode())
    return str(url.hostname), parse_qs(url.query)


def error_of(source: MskSource) -> TokenError:
    with pytest.raises(TokenError) as raised:
        source.fetch()
    return raised.value


class TestRegion:
    @pytest.mark.parametrize(
        ("server", "region"),
        [
            ("b-1.name.abc123.c2.kafka.eu-west-1.amazonaws.com:9098", "eu-west-1"),
            ("b-1-public.name.abc123.c2.kafka.us-east-1.amazonaws.com:9198", "us-east-1"),
            ("boot-abc.c1.kafka-serverless.ap-southeast-2.amazonaws.com:9098", "ap-southeast-2"),
            ("b-2.name.abc.c3.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
            ("b-2.name.abc.c3.kafka.us-gov-west-1.amazonaws.com:9098", "us-gov-west-1"),
            ("B-1.NAME.ABC.C2.KAFKA.EU-WEST-1.AMAZONAWS.COM:9098", "eu-west-1"),
            ("b-1.name.abc123.c2.kafka.eu-west-1.amazonaws.com.:9098", "eu-west-1"),
            ("b-1.name.abc123.c2.kafka.eu-west-1.amazonaws.com", "eu-west-1"),
        ],
    )
    def test_the_brokers_name_has_it(self, server: str, region: str) -> None:
        assert region_of(["localhost:9092", server], {"AWS_REGION": "eu-north-1"}) == region

    @pytest.mark.parametrize(
        "server",
        [
            "localhost:9098",
            "b-1.kafka.eu-west-1.amazonaws.com.evil.test:9098",
            "b-1.kafka.eu-west-1.amazonaws.org:9098",
            "b-1.mykafka.eu-west-1.amazonaws.com:9098",
            "[::1]:9098",
        ],
    )
    def test_else_the_environment_has_it(self, server: str) -> None:
        assert region_of([server], {"AWS_REGION": "eu-north-1", "AWS_DEFAULT_REGION": "x"}) == "eu-north-1"
        assert region_of([server], {"AWS_DEFAULT_REGION": "eu-north-1"}) == "eu-north-1"
        with pytest.raises(ConfigError) as raised:
            region_of([server], {})
        assert "AWS_REGION" in str(raised.value)

    def test_one_producer_has_one_region(self) -> None:
        servers = [f"b-1.a.b.c2.kafka.{region}.amazonaws.com:9098" for region in ("eu-west-1", "us-east-1")]
        with pytest.raises(ConfigError) as raised:
            region_of(servers, {})
        assert raised.value.key == "bootstrap.servers"


class TestSigning:
    @pytest.mark.usefixtures("keys")
    def test_the_token_is_a_url_that_the_keys_of_the_environment_sign(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        source = MskSource("eu-west-1")

        host, parameters = signed_by(source)
        credential = source.fetch()

        assert host == "kafka.eu-west-1.amazonaws.com"
        assert parameters["Action"] == ["kafka-cluster:Connect"]
        assert parameters["X-Amz-Credential"][0].startswith(f"{KEY_ID}/")
        assert "/eu-west-1/kafka-cluster/aws4_request" in parameters["X-Amz-Credential"][0]
        assert parameters["X-Amz-Expires"] == ["900"]
        # In seconds, 15 minutes after the signing.
        assert credential.expires_at is not None
        assert not source.is_async
        check_log(caplog, [*SECRETS, parameters["X-Amz-Signature"][0]])

    @pytest.mark.usefixtures("keys")
    def test_what_the_signer_tells_in_milliseconds_is_made_seconds(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{SIGNER}.generate_auth_token", lambda region: ("token-1", 1_700_000_900_000))
        credential = MskSource("eu-west-1", now=lambda: 1_700_000_000.0).fetch()
        assert credential.expires_at == 1_700_000_900

    def test_a_profile(self, tmp_path: Path) -> None:
        (tmp_path / "credentials").write_text(
            f"[kafka]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET_KEY}\n"
        )
        _, parameters = signed_by(MskSource("eu-west-1", profile="kafka"))
        assert parameters["X-Amz-Credential"][0].startswith(KEY_ID)

        error = error_of(MskSource("eu-west-1", profile="nobody"))
        assert "ProfileNotFound" in check_error(error, SECRETS, "sasl.jaas.config")

    @pytest.mark.parametrize(
        ("given", "called"), [("my-session", "my-session"), (None, "MSKSASLDefaultSession")]
    )
    def test_a_role_and_the_name_of_its_session(
        self, monkeypatch: pytest.MonkeyPatch, given: str | None, called: str
    ) -> None:
        asked: list[dict[str, str]] = []

        class Sts:
            def assume_role(self, **arguments: str) -> dict[str, Any]:
                asked.append(arguments)
                keys = {
                    "AccessKeyId": "ASIAROLE",
                    "SecretAccessKey": SECRET_KEY,
                    "SessionToken": SESSION_TOKEN,
                }
                return {"Credentials": keys}

        monkeypatch.setattr("boto3.client", lambda name, config: Sts())
        source = MskSource("eu-west-1", role_arn="arn:aws:iam::1:role/r", session_name=given)

        _, parameters = signed_by(source)

        assert asked == [{"RoleArn": "arn:aws:iam::1:role/r", "RoleSessionName": called}]
        assert parameters["X-Amz-Credential"][0].startswith("ASIAROLE/")
        assert source.fetch().principal == "arn:aws:iam::1:role/r"


class TestTrouble:
    def test_no_credentials(self) -> None:
        error = error_of(MskSource("eu-west-1"))
        assert "no AWS credentials were found" in check_error(error, SECRETS, "sasl.mechanism")

    @pytest.mark.usefixtures("keys")
    def test_a_role_that_may_not_be_taken_is_told_in_awss_words(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            password = SECRET_KEY
            assert password
            raise ClientError(
                {"Error": {"Code": "AccessDenied", "Message": "not authorized"}},
                "AssumeRole",
            )

        monkeypatch.setattr(f"{SIGNER}.generate_auth_token_from_role_arn", refuse)
        error = error_of(MskSource("eu-west-1", role_arn="arn:aws:iam::1:role/r"))
        assert "AccessDenied" in check_error(error, SECRETS, "sasl.jaas.config")

    @pytest.mark.parametrize(
        "error",
        [CredentialRetrievalError(provider="custom-process", error_msg=SECRET_KEY), ValueError(SECRET_KEY)],
    )
    def test_other_texts_are_not_shown(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr(f"{SIGNER}.generate_auth_token", refuse)
        assert type(error).__name__ in check_error(error_of(MskSource("eu-west-1")), SECRETS)

    def test_an_expired_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(f"{SIGNER}.generate_auth_token", lambda region: ("token-1", 1_000))
        assert "expired" in check_error(error_of(MskSource("eu-west-1")), ["token-1"])

    def test_a_profile_and_a_role(self) -> None:
        with pytest.raises(ConfigError) as raised:
            MskSource("eu-west-1", profile="a", role_arn="b")
        assert raised.value.key == "sasl.jaas.config"

    def test_without_the_signer_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
        with pytest.raises(MissingExtraError) as raised:
            MskSource("eu-west-1")
        assert raised.value.extra == "msk-iam"


def test_other_threads_log_of_aws_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("botocore.auth")

    def sign(region: str) -> tuple[str, int]:
        logger.debug("of this thread")
        other = threading.Thread(target=logger.debug, args=("of another",))
        other.start()
        other.join()
        return "token-1", 4_000_000_000_000

    monkeypatch.setattr(f"{SIGNER}.generate_auth_token", sign)
    MskSource("eu-west-1").fetch()
    logger.debug("afterwards")

    assert [record.getMessage() for record in caplog.records if record.name == "botocore.auth"] == [
        "of another",
        "afterwards",
    ]
