"""The kinds of values of security keys: secrets, supported Java classes, URLs.

Used by `security_table`.

Invariants:
1. A secret is a `Secret` from here on. Its white space is kept.
2. Messages do not contain a value that may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, final
from urllib.parse import urlsplit

from aioproduce.config.kinds import ITEMS, Choice, Kind, WrongValueError, literal, optional_text
from aioproduce.config.secret import Secret

_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_OLD_TLS_VERSIONS: Final = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})


@final
class Hidden(Kind):
    """A hidden text, or None; the parsed value is a `Secret`.

    Args:
        allowed: A description of it.
        can_be_empty: Whether it may be empty, as the password of a store may.
        keeps_blanks: Whether to keep white space around a str. Java drops it from its own keys, and its files must
            have the same meaning here. A `Secret` is always kept unchanged.
    """

    def __init__(self, allowed: str, *, can_be_empty: bool = False, keeps_blanks: bool = False) -> None:
        self._can_be_empty = can_be_empty
        self._keeps_blanks = keeps_blanks
        super().__init__(
            "secret", f"{allowed}, as a str or a `Secret`, or None", self._parse, "str | Secret | None"
        )

    def _parse(self, value: object) -> Secret | None:
        if value is None:
            return None
        if not isinstance(value, (str, Secret)):
            raise WrongValueError(f"({type(value).__name__}) is not a str")
        if isinstance(value, Secret):
            secret = value
        else:
            secret = Secret(value if self._keeps_blanks else value.strip())
        if not secret and not self._can_be_empty:
            raise WrongValueError("is empty")
        if not _is_utf8(secret):
            raise WrongValueError("cannot be written in UTF-8")
        return secret


def _is_utf8(secret: Secret) -> bool:
    try:
        secret.reveal().encode()
    except UnicodeEncodeError:
        return False
    return True


@final
class JavaClass(Kind):
    """The name of a supported Java class, or None if that is the default.

    The parsed value is the name without its package.

    Args:
        names: The names, with packages.
        instead: What to use in Python instead of another class.
        is_optional: Whether None is accepted.
    """

    def __init__(self, names: Iterable[str], instead: str, *, is_optional: bool = True) -> None:
        self._simple = {name: name.rpartition(".")[2] for name in names}
        self._instead, self._is_optional = instead, is_optional
        words = f"{'None or ' if is_optional else ''}{', '.join(self._simple)}"
        annotation = f"{literal(self._simple)}{' | None' if is_optional else ''}"
        super().__init__("str", words, self._parse, annotation)

    def _parse(self, value: object) -> str | None:
        if value is None and self._is_optional:
            return None
        if isinstance(value, str) and value.strip() in self._simple:
            return self._simple[value.strip()]
        raise WrongValueError(f"is not a supported class; {self._instead}")


def _tls_versions(value: object) -> tuple[str, ...]:
    items = ITEMS.parse(value)
    for item in items:
        if item not in _TLS_VERSIONS and item not in _OLD_TLS_VERSIONS:
            raise WrongValueError("is not a version of TLS", item)
    # Versions that Java's own security properties always disable are left out here, too.
    versions = tuple(dict.fromkeys(item for item in items if item in _TLS_VERSIONS))
    if not versions:
        raise WrongValueError("does not name a version that is still safe")
    return versions


TLS_VERSIONS: Final = Kind(
    "list", "TLSv1.2, TLSv1.3 or both (older ones are ignored)", _tls_versions, ITEMS.annotation
)
"""Versions of TLS, without the insecure ones."""


_url_text: Final = optional_text("a URL")


def _url(value: object) -> str | None:
    text = _url_text.parse(value)
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        is_whole = parts.port != 0  # reading it checks it
    except ValueError:
        raise WrongValueError("is not a URL", _without_user(text)) from None
    scheme = parts.scheme.lower()
    if scheme not in ("https", "http", "file"):
        raise WrongValueError("is not an https URL", _without_user(text))
    if not is_whole or (not parts.hostname and scheme != "file"):
        raise WrongValueError("is a URL without a host, or with port 0", _without_user(text))
    return str(text)


def _without_user(text: str) -> str:
    """Return the text without everything before the last `@`, which may be a password."""
    _, found, rest = text.rpartition("@")
    return f"...@{rest}" if found else text


URL: Final = Kind(
    "str",
    "an https URL; http only with sasl.oauthbearer.allow.http, file: only with FileJwtRetriever",
    _url,
    "str | None",
)
"""The URL of a token endpoint or of a token file."""


def _proxy(value: object) -> str | None:
    text = _url_text.parse(value)
    if text is None:
        return None
    why = None
    try:
        parts = urlsplit(text)
        if "@" in parts.netloc:
            why = (
                "has a name or a password in it, which would appear in errors: use a proxy without a password"
            )
        elif parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            why = "is not an http URL with a host"
        elif parts.path not in ("", "/") or parts.query or parts.fragment:
            why = "has more than a host and a port"
    except ValueError:
        why = "is not a URL"
    if why is not None:
        raise WrongValueError(why, _without_user(text))
    return str(text)


PROXY: Final = Kind(
    "str", "the http or https URL of a proxy without a password, or None", _proxy, "str | None"
)
"""The proxy for the token endpoint."""


def _extensions(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        pairs = [item.partition("=") for item in value.split(",") if item.strip()]
        if not all(found for _, found, _ in pairs):
            raise WrongValueError("is not name=value,name=value")
        found = {name.strip(): text.strip() for name, _, text in pairs}
    elif isinstance(value, Mapping):
        found = dict(value)
    else:
        raise WrongValueError(f"({type(value).__name__}) is not a dict")
    for name, text in found.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise WrongValueError("contains a value that is not a str")
        # RFC 7628, 3.1; the token itself is sent as `auth`.
        if not name.isascii() or not name.isalpha() or name == "auth":
            raise WrongValueError("contains a name with other characters than letters, or `auth`")
        if not text or not all(" " <= letter <= "~" or letter in "\t\r\n" for letter in text):
            raise WrongValueError("contains a value that is empty or not printable ASCII")
    return found


EXTENSIONS: Final = Kind(
    "dict", 'a dict of str, or "name=value,name=value"', _extensions, "Mapping[str, str] | str | None"
)
"""SASL extensions of OAUTHBEARER (KIP-342)."""


def _ssl_context(value: object) -> Any:
    # Not by its class: without TLS there is no need to import `ssl`, and `truststore` has a class of its own.
    if value is not None and not callable(getattr(value, "wrap_bio", None)):
        raise WrongValueError(f"({type(value).__name__}) is not an SSLContext")
    return value


def _token_provider(value: object) -> object:
    if value is not None and not callable(getattr(value, "token", value)):
        raise WrongValueError(f"({type(value).__name__}) cannot be called")
    return value


TOKEN_PROVIDER: Final = Kind(
    "callable",
    "a callable that returns a token, async or not, an object whose token() does, or None",
    _token_provider,
    "TokenProvider | None",
)
"""The user's own source of tokens."""

SSL_CONTEXT: Final = Kind("object", "an `ssl.SSLContext`, or None", _ssl_context, "ssl.SSLContext | None")
"""The user's own context."""

HOST_CHECK: Final = Choice(
    {"https": "https", "": ""}, is_any_case=True, allowed='https, or "" (empty): host names are not checked'
)
"""The check of a certificate against the host's name."""
