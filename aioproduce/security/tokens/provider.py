"""Credentials from the user's own code: `sasl.oauthbearer.token.provider` and `sasl.credentials.provider`.

If a provider raises, our error names only the type of its error and the line that raised it. It leaves out the
message and the error itself: a provider handles secrets, which its messages and frames may hold. A provider that
needs more detail can log it.
"""

from __future__ import annotations

import inspect
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, final

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError
from aioproduce.security.credentials import UserPassword
from aioproduce.security.mechanism import Credential
from aioproduce.security.tokens.checking import credential_of
from aioproduce.security.tokens.trouble import Trouble, given

TOKEN_KEY: Final = "sasl.oauthbearer.token.provider"
CREDENTIALS_KEY: Final = "sasl.credentials.provider"

_TOKEN_SHAPES: Final = (
    "it must return a str, (token, expires_at), "
    "a mapping with access_token, or an object with value and expires_at"
)


@final
class TokenProvider:
    """Calls a callable for tokens.

    It may return:

    - the token, a str or a `Secret`; a JWT contains its own expiry;
    - `(token, expires_at)`, the latter in seconds since the epoch or `None` (azure-identity's `AccessToken`);
    - a mapping like a token endpoint's answer: `access_token`, with `expires_at` or `expires_in` (seconds);
    - an object with `value` and, optionally, `expires_at`, `begins_at`, `principal`, `extensions`.

    Args:
        provider: A callable without arguments, or an object whose `token()` is one (aiokafka's
            `AbstractTokenProvider`). A coroutine function runs on the event loop. Any other runs in a thread, where
            it may block. A thread cannot be stopped, so the provider should have its own timeout.
        extensions: SASL extensions to send with each token.
        now: Returns the seconds since the epoch.

    Raises:
        ConfigError: If the provider cannot be called.
    """

    is_static: Final = False

    def __init__(
        self,
        provider: object,
        *,
        extensions: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._asking = _Asking(getattr(provider, "token", provider), TOKEN_KEY)
        self._extensions = extensions or {}
        self._now = now

    @property
    def is_async(self) -> bool:
        """Whether the provider is a coroutine function."""
        return self._asking.is_async

    def fetch(self) -> Credential | Awaitable[Credential]:
        """Request a token.

        Raises:
            TokenError: If the provider raised, or did not return a usable token.
        """
        return self._asking.ask(self._credential)

    def _credential(self, gave: object) -> Credential | Trouble:
        now = self._now()
        parts = _parts(gave)
        if isinstance(parts, Trouble):
            return parts
        extensions = parts.pop("extensions", None) or {}
        return credential_of(
            **parts,
            now=now,
            what="the token provider",
            setting=TOKEN_KEY,
            extensions={**self._extensions, **extensions}
            if isinstance(extensions, Mapping)
            else self._extensions,
        )


@final
class UserPasswordProvider:
    """Calls a callable for a name and a password, for PLAIN and SCRAM.

    Args:
        provider: A callable without arguments that returns `(username, password)`, the latter a str or a `Secret`.
            A coroutine function runs on the event loop, any other in a thread.

    Raises:
        ConfigError: If the provider cannot be called.
    """

    is_static: Final = False

    def __init__(self, provider: object) -> None:
        self._asking = _Asking(provider, CREDENTIALS_KEY)

    @property
    def is_async(self) -> bool:
        """Whether the provider is a coroutine function."""
        return self._asking.is_async

    def fetch(self) -> Credential | Awaitable[Credential]:
        """Request the name and the password.

        Raises:
            TokenError: If the provider raised, or returned something else.
        """
        return self._asking.ask(_user_password)


@final
class StaticSource:
    """A source with one credential: a name and a password of the configuration.

    Args:
        credential: The credential.
    """

    is_async: Final = False
    is_static: Final = True

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    def fetch(self) -> Credential:
        """Return the credential."""
        return self._credential


@final
class _Asking:
    """Calls or awaits a provider, and checks its result so that no error escapes with it."""

    def __init__(self, provider: object, setting: str) -> None:
        if not callable(provider):
            raise ConfigError(f"{setting} cannot be called: set a function or an async function", key=setting)
        self._provider = provider
        self._setting = setting
        self.is_async = inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(
            getattr(provider, "__call__", None)  # noqa: B004
        )

    def ask(self, judge: Callable[[object], Credential | Trouble]) -> Credential | Awaitable[Credential]:
        return self._awaited(judge) if self.is_async else given(self._called(judge))

    async def _awaited(self, judge: Callable[[object], Credential | Trouble]) -> Credential:
        return given(await self._outcome(judge))

    async def _outcome(self, judge: Callable[[object], Credential | Trouble]) -> Credential | Trouble:
        try:
            return judge(await self._provider())
        except Exception as error:
            return self._raised(error)

    def _called(self, judge: Callable[[object], Credential | Trouble]) -> Credential | Trouble:
        try:
            gave = self._provider()
            if inspect.isawaitable(gave):
                if inspect.iscoroutine(gave):
                    gave.close()
                return Trouble(
                    "the provider returned an awaitable but is not a coroutine function: use `async def`",
                    self._setting,
                )
            return judge(gave)
        except Exception as error:
            return self._raised(error)

    def _raised(self, error: Exception) -> Trouble:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" in {frames[-1].name} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})"
        return Trouble(
            f"the provider raised {type(error).__name__}{where}: look there; its message is not shown "
            "because it may hold a secret",
            self._setting,
        )


def _parts(gave: object) -> dict[str, Any] | Trouble:
    """Return the result of a token provider as the arguments of `credential_of()`."""
    if isinstance(gave, (str, Secret, bytes, bytearray)):
        return {"token": gave}
    if isinstance(gave, tuple):
        if len(gave) != 2:
            return Trouble(f"the token provider returned a tuple of {len(gave)}: {_TOKEN_SHAPES}", TOKEN_KEY)
        return {"token": gave[0], "expires_at": gave[1]}
    if isinstance(gave, Mapping):
        # A library that caches the answer adds `expires_at`; its `expires_in` counts from when it was fetched.
        name = "expires_in" if gave.get("expires_at") is None else "expires_at"
        return {"token": gave.get("access_token"), name: gave.get(name)}
    if hasattr(gave, "value"):
        principal = getattr(gave, "principal", "")
        return {
            "token": gave.value,
            "expires_at": getattr(gave, "expires_at", None),
            "begins_at": getattr(gave, "begins_at", None),
            "principal": principal if isinstance(principal, str) else "",
            "extensions": getattr(gave, "extensions", None),
        }
    return Trouble(
        f"the token provider returned an object of type {type(gave).__name__}: {_TOKEN_SHAPES}", TOKEN_KEY
    )


def _user_password(gave: object) -> Credential | Trouble:
    if not isinstance(gave, tuple) or len(gave) != 2:
        return Trouble(
            f"the credentials provider returned an object of type {type(gave).__name__}: it must return a "
            "tuple (username, password)",
            CREDENTIALS_KEY,
        )
    for part, what, kinds in ((gave[0], "username", str), (gave[1], "password", (str, Secret))):
        if not isinstance(part, kinds):
            return Trouble(
                f"the credentials provider returned a {what} of type {type(part).__name__}: it must be a str",
                CREDENTIALS_KEY,
            )
        if not part:
            return Trouble(f"the credentials provider returned an empty {what}", CREDENTIALS_KEY)
    password = gave[1] if isinstance(gave[1], Secret) else Secret(gave[1])
    return Credential(value=UserPassword(username=gave[0], password=password), principal=gave[0])
