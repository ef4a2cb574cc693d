"""Tokens for IAM of AWS MSK, signed by AWS's own signer: `AWS_MSK_IAM` in Java's files, OAUTHBEARER on the wire.

The signer finds the AWS credentials as every AWS program does (environment, profile, container, instance), which
may block on the network. It signs a URL with them, and that URL is the token, for 15 minutes.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.errors import ConfigError, MissingExtraError
from aioproduce.security.tokens.checking import credential_of
from aioproduce.security.tokens.trouble import Trouble, given, printable

if TYPE_CHECKING:
    from aioproduce.security.mechanism import Credential

MECHANISM_KEY: Final = "sasl.mechanism"
JAAS_KEY: Final = "sasl.jaas.config"

# b-1.name.abc123.c2.kafka.eu-west-1.amazonaws.com, boot-abc.c1.kafka-serverless.us-east-1.amazonaws.com; in China
# they end with .amazonaws.com.cn.
_HOST: Final = re.compile(
    r".*\.kafka(?:-serverless)?\.([a-z]{2,4}(?:-[a-z]+)+-[0-9]+)\.amazonaws\.com(?:\.cn)?\.?", re.IGNORECASE
)
# These errors name the principal or the missing part, and never contain a secret.
_TOLD: Final = ("ProfileNotFound", "ClientError", "NoCredentialsError", "PartialCredentialsError")
_NOISY: Final = ("boto3", "botocore", "urllib3")


def region_of(servers: Iterable[str], environ: Mapping[str, str] = os.environ) -> str:
    """Return the AWS region to sign for: from the names of MSK's brokers, else from the environment.

    Args:
        servers: `bootstrap.servers`, as `host:port` or hosts.
        environ: The environment, with `AWS_REGION` or `AWS_DEFAULT_REGION` for brokers with custom names.

    Raises:
        ConfigError: If there is no region, or more than one.
    """
    hosts = [server.strip().rpartition(":")[0] or server.strip() for server in servers]
    regions = sorted({found[1].lower() for host in hosts if (found := _HOST.fullmatch(host)) is not None})
    if len(regions) > 1:
        raise ConfigError(
            f"bootstrap.servers are in several AWS regions ({', '.join(regions)}): name the brokers of one cluster",
            key="bootstrap.servers",
        )
    region = regions[0] if regions else environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(
            "the AWS region to log in to is unknown: bootstrap.servers are not names of MSK "
            "(*.kafka.REGION.amazonaws.com), so set AWS_REGION in the environment",
            key="bootstrap.servers",
        )
    return region


@final
class MskSource:
    """Has a token signed on each fetch.

    Args:
        region: The AWS region, see `region_of()`.
        profile: A profile of the AWS configuration (`awsProfileName` of `sasl.jaas.config`).
        role_arn: A role to assume (`awsRoleArn`); not with a profile, which can name a role itself.
        session_name: The name of the role's session (`awsRoleSessionName`). It is part of the principal, which
            must not change while a connection lasts (KIP-368).
        now: Returns the seconds since the epoch.

    Raises:
        ConfigError: If both a profile and a role are given.
        MissingExtraError: If the signer is not installed.
    """

    is_async: Final = False
    is_static: Final = False

    def __init__(
        self,
        region: str,
        *,
        profile: str | None = None,
        role_arn: str | None = None,
        session_name: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if profile and role_arn:
            raise ConfigError(
                f"{JAAS_KEY} has awsProfileName and awsRoleArn: set one of them; a profile can name a role itself",
                key=JAAS_KEY,
            )
        self._region = region
        self._profile = profile
        self._role_arn = role_arn
        self._session_name = session_name
        self._now = now
        self._signer = _signer()

    def fetch(self) -> Credential:
        """Have a token signed. It blocks, on the network if the credentials come from there.

        Raises:
            TokenError: If there are no AWS credentials, or if they do not allow the role.
        """
        return given(self._fetched())

    def _fetched(self) -> Credential | Trouble:
        try:
            with _hushed():
                token, expires_at_ms = self._signed()
            return credential_of(
                token,
                now=self._now(),
                what="the signer of AWS MSK",
                setting=MECHANISM_KEY,
                expires_at=expires_at_ms / 1000,
                principal=self._role_arn or "",
            )
        except Exception as error:
            # Frames and some messages of AWS's libraries contain the keys.
            return self._trouble(error)

    def _signed(self) -> tuple[str, int]:
        """Return a token, and when it expires in milliseconds since the epoch."""
        signed: tuple[str, int]
        if self._role_arn and self._session_name:
            signed = self._signer.generate_auth_token_from_role_arn(
                self._region, self._role_arn, self._session_name
            )
        elif self._role_arn:
            signed = self._signer.generate_auth_token_from_role_arn(self._region, self._role_arn)
        elif self._profile:
            signed = self._signer.generate_auth_token_from_profile(self._region, self._profile)
        else:
            signed = self._signer.generate_auth_token(self._region)
        return signed

    def _trouble(self, error: Exception) -> Trouble:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        if isinstance(error, AttributeError) and getattr(error, "obj", 0) is None:
            # Without credentials, the AWS libraries return None, and the signer reads its key.
            why = "no AWS credentials were found"
        elif any(kind in _TOLD for kind in kinds):
            why = f"{kinds[0]}: {printable(error)}"
        else:
            why = kinds[0]
        return Trouble(
            f"no token for AWS MSK in {self._region} ({why}): check the AWS credentials of this process "
            f"(environment, profile, role of the instance), and awsProfileName, awsRoleArn in {JAAS_KEY}",
            JAAS_KEY if self._profile or self._role_arn else MECHANISM_KEY,
        )


def _signer() -> Any:
    with MissingExtraError.unless_installed(
        "SASL AWS_MSK_IAM", extra="msk-iam", name="aws_msk_iam_sasl_signer"
    ):
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # type: ignore[import-untyped]
    return MSKAuthTokenProvider


@contextmanager
def _hushed() -> Iterator[None]:
    """Hide this thread's log records of AWS's libraries: at DEBUG they contain the parts of the token."""
    here = threading.get_ident()

    def is_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != here

    known = list(logging.getLogger().manager.loggerDict)
    loggers = [logging.getLogger(name) for name in known if name.partition(".")[0] in _NOISY]
    for logger in loggers:
        logger.addFilter(is_elsewhere)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_elsewhere)
