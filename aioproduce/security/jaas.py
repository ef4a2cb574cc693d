"""Parses Java's `sasl.jaas.config` as Kafka's `JaasConfig` does: `Class required option="value" ...;`.

1. The syntax is exactly Java's: comments, quotes, escapes, and bare numbers, which are not values.
2. Every text of the configuration is a `Secret` from the tokenizer on. Errors do not contain values, nor names that
   might be part of a value after a misplaced quote.
3. Options of a login module that have no meaning here are refused and not ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, NoReturn, TypeAlias, final

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError

KEY: Final = "sasl.jaas.config"


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLogin:
    """`org.apache.kafka.common.security.plain.PlainLoginModule`."""

    username: str
    password: Secret


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScramLogin:
    """`org.apache.kafka.common.security.scram.ScramLoginModule`.

    Attributes:
        username: The user, or the id of a delegation token.
        password: The password, or the HMAC of that token.
        tokenauth: Whether it is a delegation token.
    """

    username: str
    password: Secret
    tokenauth: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredClaims:
    """The claims of an unsigned token: OAuthBearerLoginModule's `unsecuredLogin*`.

    Attributes:
        strings: Claims with one text each, e.g. `sub`.
        numbers: Claims with one number each.
        lists: Claims with several texts each.
        extensions: SASL extensions (KIP-342).
        lifetime: The token's lifetime in seconds.
        principal_claim: The claim that names the user.
        scope_claim: The claim that contains the scope.
    """

    strings: Mapping[str, str] = field(default_factory=_nothing)
    numbers: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    extensions: Mapping[str, str] = field(default_factory=_nothing)
    lifetime: int = 3600
    principal_claim: str = "sub"
    scope_claim: str = "scope"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthBearerLogin:
    """`org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule`; any part may be missing.

    Attributes:
        client_id: The id for the token endpoint.
        client_secret: The secret for the token endpoint.
        scope: The scope to request.
        extensions: SASL extensions (KIP-342), without the prefix `extension_` of their options.
        unsecured: The claims of an unsigned token, if any option requests one.
    """

    client_id: str = ""
    client_secret: Secret = field(default_factory=lambda: Secret(""))
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=_nothing)
    unsecured: UnsecuredClaims | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosLogin:
    """`com.sun.security.auth.module.Krb5LoginModule`.

    Attributes:
        keytab: The file with keys; empty unless `useKeyTab` is true.
        principal: The client's principal; if empty, that of the keytab or of the ticket.
        use_ticket_cache: Whether to use a cached ticket.
        service_name: The same as `sasl.kerberos.service.name`.
    """

    keytab: str = ""
    principal: str = ""
    use_ticket_cache: bool = False
    service_name: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IamLogin:
    """`software.amazon.msk.auth.iam.IAMLoginModule`."""

    profile_name: str = ""
    role_arn: str = ""
    role_session_name: str = ""
    sts_region: str = ""
    debug_creds: bool = False


Login: TypeAlias = PlainLogin | ScramLogin | OAuthBearerLogin | KerberosLogin | IamLogin

# java.io.StreamTokenizer as Kafka configures it: any '/' begins a comment; digits, '.' and '-' begin a number but
# continue a word; the end of a line ends a quoted text.
_TOKEN: Final = re.compile(
    r"""
    (?P<nothing> [\x00-\x20]+ | /\*[\s\S]*?(?:\*/|\Z) | //[^\r\n]* | /[^*/]?[^\r\n]* )
    | (?P<number> -?(?:[0-9]+\.?[0-9]*|\.[0-9]*) )
    | (?P<word> [A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9._$\xa0-\U0010ffff-]* )
    | " (?P<double> (?:\\[\s\S]|[^"\\\r\n])* ) \\? (?:"|(?=[\r\n])|\Z)
    | ' (?P<single> (?:\\[\s\S]|[^'\\\r\n])* ) \\? (?:'|(?=[\r\n])|\Z)
    | (?P<other> [\s\S] )
    """,
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|[\s\S])")
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{0,18})?(?:[eE][+-]?[0-9]{1,2})?")
_SECONDS: Final = re.compile(r"[0-9]{1,18}")

_Token: TypeAlias = Secret | str
"""A word or a quoted text; `=`, `;`, or `?` for any other character, which may be part of a password."""


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind in ("double", "single"):
            yield Secret(_ESCAPE.sub(_unescaped, found[kind]))
        elif kind == "word":
            yield Secret(found[0])
        elif kind != "nothing":
            yield found[0] if found[0] in "=;" else "?"


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    return chr(int(escaped, 8)) if "0" <= escaped[0] <= "7" else _ESCAPES.get(escaped, escaped)


def parse(config: Secret) -> Login:
    """Parse `sasl.jaas.config`.

    Raises:
        ConfigError: If it is not valid for Java, or does not have exactly one known login module with known
            options. The error's key is `sasl.jaas.config`.

    Example:
        >>> parse(Secret('org.apache.kafka.common.security.plain.PlainLoginModule required '
        ...              'username="alice" password="letmein";'))
        PlainLogin(username='alice', password=Secret(<hidden>))
    """
    module, options = entry(config)
    read = _MODULES.get(module)
    if read is None:
        _refuse(
            f"{_shown(module)} is not a login module that aioproduce supports: use one of"
            f" {', '.join(name.reveal() for name in _MODULES)}; or sasl.username and sasl.password instead"
        )
    login = read(options)
    options.refuse_the_rest()
    return login


def entry(config: Secret) -> tuple[Secret, Options]:
    """Return the login module's class and its options.

    Raises:
        ConfigError: If the text is not valid; see `parse()`.
    """
    tokens = list(_tokens(config.reveal()))
    if not tokens:
        _refuse('it is empty: write Class required option="value";')
    entries = []
    at = 0
    while at < len(tokens):
        module, options, at = _entry(tokens, at)
        entries.append((module, options))
    if len(entries) > 1:
        _refuse(
            f"{len(entries)} login modules, but Kafka accepts one: is a semicolon, or a quote, in the wrong place?"
        )
    return entries[0]


def _entry(tokens: list[_Token], at: int) -> tuple[Secret, Options, int]:
    module = tokens[at]
    if not isinstance(module, Secret) or not module:
        _refuse("it does not begin with the class of the login module")
    flag = tokens[at + 1] if at + 1 < len(tokens) else None
    if not isinstance(flag, Secret) or flag.reveal().upper() not in (
        "REQUIRED",
        "REQUISITE",
        "SUFFICIENT",
        "OPTIONAL",
    ):
        _refuse("the class of the login module is not followed by a flag: write required after it")
    options: dict[Secret, Secret] = {}
    at += 2
    while at < len(tokens) and tokens[at] != ";":
        key, equals, value = (*tokens[at : at + 3], None, None)[:3]
        if equals != "=" or not isinstance(value, Secret):
            _refuse(
                f'option {len(options) + 1} has no value: write name="value", in quotes if the value is not a'
                " word (a number, a path), and a semicolon after the last one"
            )
        if not isinstance(key, Secret):
            _refuse(f"option {len(options) + 1} has no name")
        options[key] = value
        at += 3
    if at >= len(tokens):
        _refuse("there is no semicolon after the last option")
    return module, Options(options), at + 1


@final
class Options:
    """The options of one login module. Each is read by name; options that nobody read are refused.

    Args:
        found: The options by name. The names are hidden, too, until they are read: see invariant 2.
    """

    __slots__ = ("_asked", "_left")

    def __init__(self, found: dict[Secret, Secret]) -> None:
        self._left = found
        self._asked: list[str] = []

    def secret(self, name: str) -> Secret:
        """Return a hidden value, empty if the option is missing."""
        self._asked.append(name)
        return self._left.pop(Secret(name), Secret(""))

    def text(self, name: str) -> str:
        """Return a value that is not a secret."""
        return self.secret(name).reveal()

    def required(self, name: str) -> Secret:
        """Return a value that must be set.

        Raises:
            ConfigError: If it is missing or empty.
        """
        return self.secret(name) or _refuse(
            f'it lacks the option {name}: write {name}="..." in front of the semicolon'
        )

    def flag(self, name: str) -> bool:
        """Return whether a flag is true; a missing flag is false.

        Raises:
            ConfigError: If it is neither true nor false, which Java treats as false.
        """
        value = self.secret(name)
        if value.reveal().lower() not in ("", "true", "false"):
            _refuse(f"the option {name} is neither true nor false")
        return value.reveal().lower() == "true"

    def with_prefix(self, prefix: str) -> dict[str, Secret]:
        """Return all options with this prefix, by the rest of their names."""
        self._asked.append(f"{prefix}*")
        names = [name for name in self._left if name.reveal().startswith(prefix) and name.reveal() != prefix]
        return {name.reveal().removeprefix(prefix): self._left.pop(name) for name in names}

    def left(self) -> Mapping[Secret, Secret]:
        """Return the options that were not read yet."""
        return MappingProxyType(self._left)

    def refuse_the_rest(self) -> None:
        """Refuse the options that were not read.

        Raises:
            ConfigError: If an option is left. The error does not name it: it may be part of a password.
        """
        if not self._left:
            return
        close = [
            near for name in self._left for near in get_close_matches(name.reveal(), self._asked, 1, 0.7)
        ]
        raise ConfigError(
            f"{KEY}: it has {len(self._left)} option(s) that aioproduce does not support for this login "
            f"module, whose options are {', '.join(self._asked)}; remove the others, and put values in "
            "quotes" + (f" (did you mean {close[0]}?)" if close else ""),
            key=KEY,
            suggestion=close[0] if close else None,
        )


def _plain(options: Options) -> Login:
    return PlainLogin(username=options.required("username").reveal(), password=options.required("password"))


def _scram(options: Options) -> Login:
    return ScramLogin(
        username=options.required("username").reveal(),
        password=options.required("password"),
        tokenauth=options.flag("tokenauth"),
    )


def _oauthbearer(options: Options) -> Login:
    return OAuthBearerLogin(
        client_id=options.text("clientId"),
        client_secret=options.secret("clientSecret"),
        scope=options.text("scope"),
        extensions=_revealed(options.with_prefix("extension_")),
        unsecured=_unsecured(options),
    )


def _unsecured(options: Options) -> UnsecuredClaims | None:
    count = len(options.left())
    strings = _revealed(options.with_prefix("unsecuredLoginStringClaim_"))
    numbers = {
        name: float(_checked_number(value, "unsecuredLoginNumberClaim_*", _DECIMAL))
        for name, value in options.with_prefix("unsecuredLoginNumberClaim_").items()
    }
    lists = {
        # The first character is the separator of the values.
        name: tuple(value.reveal()[1:].split(value.reveal()[0])) if value.reveal()[1:] else ()
        for name, value in options.with_prefix("unsecuredLoginListClaim_").items()
    }
    extensions = _revealed(options.with_prefix("unsecuredLoginExtension_"))
    lifetime = options.secret("unsecuredLoginLifetimeSeconds")
    principal_claim = options.text("unsecuredLoginPrincipalClaimName")
    scope_claim = options.text("unsecuredLoginScopeClaimName")
    if len(options.left()) == count:
        return None
    return UnsecuredClaims(
        strings=strings,
        numbers=MappingProxyType(numbers),
        lists=MappingProxyType(lists),
        extensions=extensions,
        lifetime=int(_checked_number(lifetime, "unsecuredLoginLifetimeSeconds", _SECONDS))
        if lifetime
        else 3600,
        principal_claim=principal_claim or "sub",
        scope_claim=scope_claim or "scope",
    )


def _checked_number(value: Secret, name: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(value.reveal()):
        _refuse(f"the option {name} is not a valid number")
    return value.reveal()


def _revealed(values: Mapping[str, Secret]) -> Mapping[str, str]:
    return MappingProxyType({name: value.reveal() for name, value in values.items()})


def _kerberos(options: Options) -> Login:
    keytab, use_keytab = options.secret("keyTab"), options.flag("useKeyTab")
    if keytab and not use_keytab:
        _refuse("keyTab is set without useKeyTab=true, so Java would ignore it: set both, or neither")
    # storeKey is for acceptors, which a producer is not, and nobody is ever asked on a terminal.
    options.flag("storeKey")
    options.flag("doNotPrompt")
    return KerberosLogin(
        keytab=keytab.reveal(),
        principal=options.text("principal"),
        use_ticket_cache=options.flag("useTicketCache"),
        service_name=options.text("serviceName"),
    )


def _iam(options: Options) -> Login:
    return IamLogin(
        profile_name=options.text("awsProfileName"),
        role_arn=options.text("awsRoleArn"),
        role_session_name=options.text("awsRoleSessionName"),
        sts_region=options.text("awsStsRegion"),
        debug_creds=options.flag("awsDebugCreds"),
    )


_MODULES: Final[Mapping[Secret, Callable[[Options], Login]]] = {
    Secret("org.apache.kafka.common.security.plain.PlainLoginModule"): _plain,
    Secret("org.apache.kafka.common.security.scram.ScramLoginModule"): _scram,
    Secret("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"): _oauthbearer,
    Secret("com.sun.security.auth.module.Krb5LoginModule"): _kerberos,
    Secret("software.amazon.msk.auth.iam.IAMLoginModule"): _iam,
}


def _shown(module: Secret) -> str:
    """Return the name if it looks like a class name, because it may be a misplaced password."""
    looks_well = re.fullmatch(r"(?:[A-Za-z_$][\w$]*\.)+[A-Za-z_$]*LoginModule", module.reveal(), re.ASCII)
    return module.reveal() if looks_well else "its first word"


def _refuse(problem: str) -> NoReturn:
    raise ConfigError(f"{KEY}: {problem}", key=KEY)
