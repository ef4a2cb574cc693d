"""GSSAPI (RFC 4752): Kerberos through the library `gssapi`; needs the extra `gssapi`.

1. Every call of the library is `Work`, because it reads files, asks DNS and the KDC, and may wait for each.
2. The login succeeds only after mutual authentication and without a security layer, which Kafka does not support.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from aioproduce.errors import AuthenticationError, MissingExtraError
from aioproduce.security.mechanism import Answer, Work

with MissingExtraError.unless_installed("sasl.mechanism=GSSAPI", extra="gssapi", name="gssapi"):
    import gssapi
    from gssapi.raw.misc import GSSError

if TYPE_CHECKING:
    from aioproduce.security.mechanism import Credential

MECHANISM: Final = "GSSAPI"

_MAX_CHALLENGE: Final = 128 * 1024
"""A ticket with large Active Directory authorization data takes 64 KiB."""

_MAX_TEXT: Final = 300
_NO_LAYER: Final = 1
_FLAGS: Final = (
    gssapi.RequirementFlag.mutual_authentication
    | gssapi.RequirementFlag.integrity
    | gssapi.RequirementFlag.replay_detection
    | gssapi.RequirementFlag.out_of_sequence_detection
)

_SERVICE_NAME: Final = "sasl.kerberos.service.name"
_JAAS: Final = "sasl.jaas.config"
_REMEDIES: Final = {
    -1765328377: (
        "check sasl.kerberos.service.name, and that bootstrap.servers and the broker's advertised.listeners have"
        " the host name of the broker's keytab",
        _SERVICE_NAME,
    ),
    -1765328347: ("set the clocks of this machine and of the KDC to the same time", None),
    -1765328230: ("check the realm in krb5.conf (KRB5_CONFIG)", None),
    -1765328228: ("check the network, and the addresses of the KDC in krb5.conf (KRB5_CONFIG)", None),
}
"""MIT Kerberos codes with known causes: KDC_ERR_S_PRINCIPAL_UNKNOWN, AP_ERR_SKEW, REALM_UNKNOWN, KDC_UNREACH."""


class _State(Enum):
    CONTEXT = auto()
    """Both sides exchange tokens until both are authenticated."""
    LAYER = auto()
    """The broker's offer of security layers comes next."""
    CHOSEN = auto()
    """Only an empty message may come."""


@final
class Gssapi:
    """One login conversation.

    Args:
        host: The broker's host name, which is part of its principal.
        service: The service name, the other part of it.
        keytab: A file with keys to get a ticket with; if empty, the cached ticket or KRB5_CLIENT_KTNAME is used.
        principal: The client's principal; if empty, that of the keytab or of the ticket.
    """

    __slots__ = ("_context", "_keytab", "_principal", "_server", "_state")

    def __init__(self, host: str, service: str, *, keytab: str = "", principal: str = "") -> None:
        self._server = f"{service}@{host.rstrip('.')}"
        self._keytab = keytab
        self._principal = principal
        self._context: gssapi.SecurityContext | None = None
        self._state = _State.CONTEXT

    def start(self) -> Work:
        """Return the first token as work, which raises AuthenticationError without a ticket for this broker."""
        return Work(self._begin, what=MECHANISM)

    def step(self, challenge: bytes) -> Answer:
        """Return the next token, then the choice of no security layer, then `None`.

        Raises:
            AuthenticationError: If the broker has not authenticated itself, requires a security layer, or sent a
                message that is too large. Usually the returned work raises it.
        """
        if len(challenge) > _MAX_CHALLENGE:
            raise self._refused(f"{len(challenge):,} bytes, but the limit is {_MAX_CHALLENGE:,}")
        if self._state is _State.CHOSEN:
            if challenge:
                raise self._refused("a token after the end of the exchange")
            return None
        return Work(lambda: self._go_on(challenge), what=MECHANISM)

    def _begin(self) -> bytes:
        with self._translated():
            self._context = gssapi.SecurityContext(
                name=gssapi.Name(self._server, gssapi.NameType.hostbased_service),
                creds=self._credentials(),
                usage="initiate",
                flags=_FLAGS,
                mech=gssapi.MechType.kerberos,
            )
            return self._context.step() or b""

    def _credentials(self) -> gssapi.Credentials:
        name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal) if self._principal else None
        if not self._keytab:
            return gssapi.Credentials(name=name, usage="initiate")
        # Tickets from a keytab stay in memory, shared by all connections, and not in the user's own cache.
        which = hashlib.sha256(f"{self._keytab}\0{self._principal}".encode()).hexdigest()[:16]
        store: dict[bytes | str, bytes | str] = {
            "client_keytab": self._keytab,
            "ccache": f"MEMORY:aioproduce-{which}",
        }
        return gssapi.Credentials(name=name, usage="initiate", store=store)

    def _go_on(self, challenge: bytes) -> bytes:
        context = self._context
        if context is None:
            raise self._refused("a challenge before the first token")
        with self._translated():
            if self._state is _State.CONTEXT:
                return self._exchange(context, challenge)
            return self._choose_no_layer(context, challenge)

    def _exchange(self, context: gssapi.SecurityContext, challenge: bytes) -> bytes:
        token = context.step(challenge)
        if context.complete:
            if not context.actual_flags & gssapi.RequirementFlag.mutual_authentication:
                raise self._refused("no proof of its own identity")
            self._state = _State.LAYER
        return token or b""

    def _choose_no_layer(self, context: gssapi.SecurityContext, challenge: bytes) -> bytes:
        offer = context.unwrap(challenge).message
        if len(offer) != 4:
            raise self._refused(f"an offer of security layers of {len(offer)} bytes instead of 4 (RFC 4752)")
        if not offer[0] & _NO_LAYER:
            raise self._refused("a demand for a security layer, which Kafka's protocol does not support")
        self._state = _State.CHOSEN
        # No layer, hence no message size, and no other identity to act as.
        answer: bytes = context.wrap(bytes([_NO_LAYER, 0, 0, 0]), encrypt=False).message
        return answer

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except GSSError as error:
            raise self._error(error) from error
        except NotImplementedError as error:
            raise AuthenticationError(
                "this machine's Kerberos library does not accept a keytab from the client: name it in "
                "KRB5_CLIENT_KTNAME instead of keyTab in sasl.jaas.config",
                mechanism=MECHANISM,
                setting=_JAAS,
            ) from error

    def _error(self, error: GSSError) -> AuthenticationError:
        # The mechanism's message, or the library's if there is none.
        said = " ".join(error.get_all_statuses(error.min_code, False) if error.min_code else [str(error)])
        remedy, setting = self._remedy(error)
        return AuthenticationError(
            f"Kerberos login at {self._server} failed: {said[:_MAX_TEXT]}; {remedy}",
            mechanism=MECHANISM,
            setting=setting,
        )

    def _remedy(self, error: GSSError) -> tuple[str, str | None]:
        """Return the remedy, and the setting to check."""
        code = error.min_code - (1 << 32) if error.min_code >= 1 << 31 else error.min_code
        if code in _REMEDIES:
            return _REMEDIES[code]
        of_credentials = (
            gssapi.exceptions.MissingCredentialsError,
            gssapi.exceptions.ExpiredCredentialsError,
            gssapi.exceptions.InvalidCredentialsError,
        )
        if isinstance(error, gssapi.exceptions.BadNameError):
            return "check principal in sasl.jaas.config, and sasl.kerberos.service.name", _JAAS
        if not isinstance(error, of_credentials):
            return "see the broker's log, and check that sasl.mechanism is the listener's", "sasl.mechanism"
        if self._keytab:
            return (
                "check keyTab and principal in sasl.jaas.config: the file must exist and contain the principal",
                _JAAS,
            )
        return (
            "get a ticket with kinit, or name a keytab in KRB5_CLIENT_KTNAME, or with keyTab and principal in"
            " sasl.jaas.config",
            _JAAS,
        )

    def _refused(self, what: str) -> AuthenticationError:
        return AuthenticationError(
            f"the broker answered GSSAPI with {what}; see its log, and check that sasl.mechanism is that of the"
            " listener",
            mechanism=MECHANISM,
            setting="sasl.mechanism",
        )


def converse_by(
    service: str, *, keytab: str = "", principal: str = ""
) -> Callable[[str, Credential], Gssapi]:
    """Return the factory of login conversations, for `Sasl.converse`; it ignores the credential's value.

    Args:
        service: `sasl.kerberos.service.name`: the first part of the brokers' principals, `"kafka"`.
        keytab: A file with keys to get a ticket with; if empty, the cached ticket or KRB5_CLIENT_KTNAME is used.
        principal: The client's principal; if empty, that of the keytab or of the ticket.
    """

    def converse(host: str, _credential: Credential) -> Gssapi:
        return Gssapi(host, service, keytab=keytab, principal=principal)

    return converse
