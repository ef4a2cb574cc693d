"""Tokens that another program writes into a file: Kafka's `FileJwtRetriever`.

An example is a Kubernetes service account's token, which the node renews in place. As in Java, a `file:` URL in
`sasl.oauthbearer.token.endpoint.url` names the file. This class must then be named in
`sasl.oauthbearer.jwt.retriever.class`: a URL alone must not make the producer read a file (CVE-2025-27817).
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

# Repeated from `bounded_post`, which needs a library that this module does not.
URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"


@final
class FileSource:
    """Reads the file on each fetch.

    Args:
        path: The file, which contains only the token.
        extensions: SASL extensions to send with each token.
        now: Returns the seconds since the epoch.
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
        """Read the token. It blocks as long as the file system does.

        Raises:
            TokenError: If the file cannot be read, or does not hold a token that is valid now.
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
    """Return the path of a `file:` URL.

    Raises:
        ConfigError: If it is another kind of URL, or of another machine.
    """
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError(f"{URL_KEY} must be file:///and/a/path for FileJwtRetriever", key=URL_KEY)
    return unquote(parts.path)
