"""The kinds of values that the keys of security take: secrets, classes of Java's that have a meaning here, URLs.

Called by `security_table`.

Invariants:
1. A secret is a `Secret` from here on. Its white space is its own: nothing is stripped.
2. No message holds what was given where that may be a secret.
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
    """A text that nobody sees, or None; what is parsed is a `Secret`.

    Args:
        allowed: What it is, in words.
        can_be_empty: Whether the empty text is one, as for the password of a store.
        keeps_blanks: Whether blanks around a str belong to it. Java drops them from its own keys, and a file of its
            must mean the same here. A `Secret` is always taken as it is.
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
    """The name of a class of Java's of which the meaning is known here, or None where that is the default.

    What is parsed is the name without its package.

    Args:
        names: The names, with packages.
        instead: What to use in Python where another class is named.
        is_optional: Whether None is taken.
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
        raise WrongValueError(f"is not a class whose meaning is known here; {self._instead}")


def _tls_versions(value: object) -> tuple[str, ...]:
    items = ITEMS.parse(value)
    for item in items:
        if item not in _TLS_VERSIONS and item not in _OLD_TLS_VERSIONS:
            raise WrongValueError("is not a version of TLS", item)
    # What Java's own security properties switch off in any case is left out here as there.
    versions = tuple(dict.fromkeys(item for item in items if item in _TLS_VERSIONS))
    if not versions:
        raise WrongValueError("names no version that is still safe")
    return versions


TLS_VERSIONS: Final = Kind(
    "list", "TLSv1.2, TLSv1.3 or both (older ones beside them are left out)", _tls_versions, ITEMS.annotation
)
"""Versions of TLS, without those that nobody should speak any more."""


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
    """Without what stands before the last `@`, which may be a password."""
    _, found, rest = text.rpartition("@")
    return f"...@{rest}" if found else text


URL: Final = Kind(
    "str",
    "an https URL; http only with sasl.oauthbearer.allow.http, file: only with FileJwtRetriever",
    _url,
    "str | None",
)
"""Where tokens come from."""


def _proxy(value: object) -> str | None:
    text = _url_text.parse(value)
    if text is None:
        return None
    why = None
    try:
        parts = urlsplit(text)
        if "@" in parts.netloc:
            why = "has a name or a password in it, which would be seen in errors: use a proxy that asks for none"
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
    "str", "the http or https URL of a proxy that asks for no password, or None", _proxy, "str | None"
)
"""What the token endpoint is asked through."""


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
            raise WrongValueError("holds what is not a str")
        # RFC 7628, 3.1, and `auth` is what the token itself is sent as.
        if not name.isascii() or not name.isalpha() or name == "auth":
            raise WrongValueError("holds a name that is not of letters, or is `auth`")
        if not text or not all(" " <= letter <= "~" or letter in "\t\r\n" for letter in text):
            raise WrongValueError("holds a value that is empty or not printable ASCII")
    return found


EXTENSIONS: Final = Kind(
    "dict", 'a dict of str, or "name=value,name=value"', _extensions, "Mapping[str, str] | str | None"
)
"""SASL extensions of OAUTHBEARER (KIP-342)."""


def _ssl_context(value: object) -> Any:
    # Not by its class: who has no TLS need not import `ssl`, and `truststore` has a class of its own.
    if value is not None and not callable(getattr(value, "wrap_bio", None)):
        raise WrongValueError(f"({type(value).__name__}) is not an SSLContext")
    return value


def _token_provider(value: object) -> object:
    if value is not None and not callable(getattr(value, "token", value)):
        raise WrongValueError(f"({type(value).__name__}) cannot be called")
    return value


TOKEN_PROVIDER: Final = Kind(
    "callable",
    "a callable that gives a token, async or not, an object whose token() does, or None",
    _token_provider,
    "TokenProvider | None",
)
"""Where the user's own tokens come from."""

SSL_CONTEXT: Final = Kind("object", "an `ssl.SSLContext`, or None", _ssl_context, "ssl.SSLContext | None")
"""The user's own context."""

HOST_CHECK: Final = Choice(
    {"https": "https", "": ""}, is_any_case=True, allowed='https, or "" (empty): host names are not checked'
)
"""How a certificate is compared with the host's name."""
