"""What a configuration makes of a producer's security, where the parts' own tests do not see it."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from aioproduce import ProducerConfig
from aioproduce.errors import ConfigError, TokenError
from aioproduce.security.making import make_security
from aioproduce.security.security import Security

LOGIN = "org.apache.kafka.common.security"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
MSK = "b-1.demo.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098"


def made(**settings: Any) -> Security:
    keys = {"bootstrap.servers": "a:1", **{name.replace("_", "."): value for name, value in settings.items()}}
    security = make_security(ProducerConfig.from_mapping(keys))
    assert security is not None
    return security


def test_plaintext_has_none() -> None:
    assert make_security(ProducerConfig.from_mapping({"bootstrap.servers": "a:1"})) is None


@pytest.mark.parametrize(
    ("protocol", "has_channels", "has_login"),
    [("SSL", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_a_protocol_has_its_parts(protocol: str, has_channels: bool, has_login: bool) -> None:
    login = (
        {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "a", "sasl_password": "b"} if has_login else {}
    )
    security = made(security_protocol=protocol, **login)
    assert (security.channels is not None, security.sasl is not None) == (has_channels, has_login)


def test_a_login_of_another_mechanism_is_refused() -> None:
    plain = f'{LOGIN}.plain.PlainLoginModule required username="a" password="b";'
    with pytest.raises(ConfigError, match="is for PLAIN, but") as refused:
        made(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=plain)
    assert refused.value.key == "sasl.jaas.config"


def test_the_token_endpoint_is_asked_through_its_proxy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(5)
        keys = {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "hidden-secret",
            "sasl.oauthbearer.token.endpoint.proxy": f"http://127.0.0.1:{proxy.getsockname()[1]}",
            "sasl.login.read.timeout.ms": "200",
        }
        security = make_security(ProducerConfig.from_mapping(keys))
        assert security is not None
        assert security.sasl is not None
        with pytest.raises(TokenError, match=r"sasl\.oauthbearer\.token\.endpoint\.proxy"):
            security.sasl.source.fetch()
        connection, _ = proxy.accept()
        with connection:
            assert connection.recv(4096).startswith(b"CONNECT idp.example:443 ")


def test_msk_logs_in_as_oauthbearer_by_the_region_of_its_brokers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """awsStsRegion is where STS is asked for a role, and not where the cluster is."""
    signer = pytest.importorskip("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    regions: list[str] = []

    def sign(region: str, **_: Any) -> tuple[str, int]:
        regions.append(region)
        return "e30.e30.c2ln", 32_503_680_000_000

    for name in ("generate_auth_token", "generate_auth_token_from_role_arn"):
        monkeypatch.setattr(signer, name, sign)
    security = made(
        bootstrap_servers=MSK,
        security_protocol="SASL_SSL",
        sasl_mechanism="AWS_MSK_IAM",
        sasl_jaas_config=f'{IAM} required awsStsRegion="us-east-1";',
    )
    assert security.sasl is not None
    assert security.sasl.mechanism == "OAUTHBEARER"
    assert "awsStsRegion" in caplog.text
    security.sasl.source.fetch()
    assert regions == ["eu-west-1"]
