"""TLS and login of the cluster of `aioproduce dev`, and the file with its clients' settings.

Called by `app` and `dev`. `aioproduce.testing` makes certificates, logins and the clients' settings.

Invariants:
1. Only the file's owner can read it, from the first byte on.
2. Only a file that `aioproduce dev` has written is replaced.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from aioproduce.config.properties import properties_text
from aioproduce.errors import ConfigError
from aioproduce.testing import FakeSecurity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproduce.testing import FakeCluster

_USER: Final = "developer"
_PASSWORD_BYTES: Final = 12
_FIRST_LINE: Final = "# Written by `aioproduce dev`, for the clients of one run: it is of no use after it.\n"


@final
@dataclass(frozen=True, slots=True)
class Access:
    """What clients need to connect.

    Attributes:
        security: The cluster's TLS and logins; `None` for neither.
        has_made_password: Whether the password is a new one, which must be shown to the user.
        path: The clients' file; `None` for one in a directory that exists as long as the cluster.
    """

    security: FakeSecurity | None
    has_made_password: bool
    path: Path | None

    @property
    def protocol(self) -> str:
        """Kafka's `security.protocol`."""
        return "PLAINTEXT" if self.security is None else self.security.protocol

    @property
    def mechanism(self) -> str | None:
        """Kafka's `sasl.mechanism`; `None` without a login."""
        return self.security.mechanisms[0] if self.security is not None and self.security.has_sasl else None

    @property
    def user(self) -> str | None:
        """The name of the user that may log in; `None` without a login."""
        return next(iter(self.security.users)) if self.security is not None and self.mechanism else None

    @property
    def made_password(self) -> str | None:
        """The password, if it is a new one."""
        assert self.security is not None or not self.has_made_password
        return next(iter(self.security.users.values())) if self.security and self.has_made_password else None

    @contextlib.contextmanager
    def written(self, cluster: FakeCluster) -> Iterator[Path | None]:
        """Write the clients' settings to a file if there are any, or if a file was asked for.

        Yields:
            The file's path; `None` if none was written.

        Raises:
            ConfigError: if it cannot be written, or another file is in its place.
        """
        text = _FIRST_LINE + properties_text(
            {"bootstrap.servers": cluster.bootstrap_servers, **cluster.client_settings(self.user)}
        )
        if self.path is not None:
            _replace(self.path, text)
            yield self.path
        elif self.security is None:
            yield None
        else:
            with tempfile.TemporaryDirectory(prefix="aioproduce-dev-") as directory:
                path = Path(directory) / "client.properties"
                _replace(path, text)
                yield path


def make_access(
    *, has_tls: bool, mechanism: str | None, user: str | None, password: str | None, path: Path | None
) -> Access:
    """Return the access that the options ask for.

    Raises:
        ConfigError: if they contradict each other.
    """
    if mechanism is None and (user is not None or password is not None):
        raise ConfigError(
            "--user and --password are for a login: give --sasl as well, e.g. --sasl SCRAM-SHA-256"
        )
    if mechanism == "OAUTHBEARER" and password is not None:
        raise ConfigError(
            "--sasl OAUTHBEARER uses tokens: leave --password out; --user names the token's owner"
        )
    if "" in (user, password):
        raise ConfigError("--user and --password must not be empty")
    if mechanism is None:
        return Access(FakeSecurity("SSL") if has_tls else None, False, path)
    given = secrets.token_urlsafe(_PASSWORD_BYTES) if password is None else password
    security = FakeSecurity(
        "SASL_SSL" if has_tls else "SASL_PLAINTEXT", users={user or _USER: given}, mechanisms=(mechanism,)
    )
    return Access(security, password is None and mechanism != "OAUTHBEARER", path)


def _replace(path: Path, text: str) -> None:
    """Write a new file that only the owner can read, then rename it to the path."""
    try:
        if path.exists() and not _is_ours(path):
            raise ConfigError(
                f"--write-config {path}: the file exists, and is not from `aioproduce dev`: name another one"
            )
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(text)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"--write-config {path} cannot be written: {error.strerror or error}") from None


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_FIRST_LINE)) == _FIRST_LINE.encode()
