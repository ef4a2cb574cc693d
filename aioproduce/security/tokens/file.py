"""Tokens that another program writes into a file: Kafka's `FileJwtRetriever`.

A Kubernetes service account's token, say, which the node renews in place. Java names the file by a `file:` URL as
`sasl.oauthbearer.token.endpoint.url`, and so does this, but only with that class named as
`sasl.oauthbearer.jwt.retriever.class`: whoever can set the URL alone makes the producer read nothing
(CVE-2025-27817).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, final
from urllib.parse import unquote, urlsplit

from aioproduce.errors import ConfigError
from aioproduce.security.tokens.checking import credential_of
from aioproduce.security.tokens.text_file import read_text
from aioproduce.security.tokens.trouble import Trouble, given

if TYPE_CHECKING:
    from aioproduce.security.mechanism import Credential

# As `bounded_post` has it, which needs a library that this does not.
URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"


@final
class FileSource:
    """Reads the file whenever a token is wanted.

    Args:
        path: The file, with nothing but the token in it.
        extensions: SASL extensions to send with each token.
        now: Seconds since the epoch.
    """

    is_async: Final = False
    is_static: Final = False

    def __init__(
        self,
        path: str,
        *,
        extensions: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._extensions = extensions or {}
        self._now = now

    def fetch(self) -> Credential:
        """Read it. It blocks for as long as the file system does.

        Raises:
            TokenError: The file cannot be read, or does not hold a token of now.
        """
        return given(self._read())

    def _read(self) -> Credential | Trouble:
        text = read_text(self._path, URL_KEY)
        if isinstance(text, Trouble):
            return text
        return credential_of(
            text,
            now=self._now(),
            what=f"the file {self._path}",
            setting=URL_KEY,
            extensions=self._extensions,
        )


def path_of(url: str) -> str:
    """The path of a `file:` URL.

    Raises:
        ConfigError: It is another kind of URL, or of another machine.
    """
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError(
            f"{URL_KEY} is not file:///and/a/path, where FileJwtRetriever finds the token", key=URL_KEY
        )
    return unquote(parts.path)
