"""TLS without I/O: OpenSSL through `ssl.SSLObject` in memory, as a `Channel`.

This is the only module of the package that imports `ssl`. Each producer has one `TlsChannels`. Its `prepare()` runs
in a thread before each connection, and `open()` on the event loop.

Invariants, in addition to those of `channel`:

1. OpenSSL never asks for a password on the terminal, and reads no file after `prepare()`.
2. `receive()` and `send()` raise only `TlsError`, which has no cause and no frame with plaintext in a local
   variable, because that may be a password for the broker.
3. A peer may send at most `_MAX_SILENT` bytes without any plaintext for this client.
4. Files are loaded by name, never as `cadata`: with `cadata`, OpenSSL holds Python's lock for 20 ms for the
   certificates of a system.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, final

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, TlsError
from aioproduce.security.certificates import ExpiryLog, day_of, der_of, pem_blocks, validity
from aioproduce.security.key_files import Identity, KeyPassword, as_file, file_state, is_empty_folder
from aioproduce.security.tls_faults import (
    FLOOD,
    NOT_ESTABLISHED,
    UNLISTED_CIPHER,
    Fault,
    handshake_fault,
    is_tls,
    loading_fault,
    not_tls,
)
from aioproduce.security.tls_settings import TLS_1_2, TLS_1_3, CipherChoice, TlsSettings, choose_ciphers

if TYPE_CHECKING:
    from aioproduce.security.channel import Buffer

__all__ = ["TlsChannel", "TlsChannels", "TlsSettings"]

_RECORD: Final = 16_384
"""The maximum plaintext of a TLS record (RFC 8446, 5.1)."""

_MAX_SILENT: Final = 256 * 1024
"""The maximum bytes of a handshake, or of consecutive records without plaintext. OpenSSL accepts certificates of up
to 100 KiB; session tickets and key updates take hundreds of bytes."""

_HEAD: Final = 5
"""The bytes at the start of a record, which show whether it is TLS."""

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}

_system_lock: Final = Lock()


@final
@dataclass(frozen=True, slots=True)
class _Plan:
    """A context's settings without its certificates; equal plans share the context that trusts the system."""

    versions: tuple[str, ...]
    ciphers: CipherChoice | None
    checks_host: bool

    def make(self, *, trusts_system: bool) -> ssl.SSLContext:
        """Create a context without certificates."""
        context = _platform_context() if trusts_system else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = _VERSIONS[self.versions[0]]
        context.maximum_version = _VERSIONS[self.versions[-1]]
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.check_hostname = self.checks_host
        if self.ciphers is not None and self.ciphers.tls_1_2:
            context.set_ciphers(":".join(self.ciphers.tls_1_2))
        return context


@final
@dataclass(frozen=True, slots=True)
class _Ready:
    """The result of `prepare()`: all that `open()` needs."""

    context: ssl.SSLContext
    identity: Identity | None
    files: tuple[object, ...]


@final
class TlsChannels:
    """Creates the encrypted channels of one producer.

    Args:
        settings: The TLS settings.
        wall_clock: Returns the seconds since the epoch, for the dates of certificates.

    Raises:
        ConfigError: If a cipher suite is unknown to this OpenSSL, or does not fit the protocols.
    """

    __slots__ = ("_expiry", "_lock", "_plan", "_ready", "_settings")

    def __init__(self, settings: TlsSettings, *, wall_clock: Callable[[], float]) -> None:
        self._settings = settings
        self._expiry = ExpiryLog(wall_clock)
        # Each connection calls prepare() in a thread; the first call does the work.
        self._lock = Lock()
        self._plan = _plan(settings)
        self._ready = None if settings.context is None else _Ready(settings.context, None, ())
        settings.warn()

    def prepare(self) -> None:
        """Reload the key files that have changed; see `Channels`."""
        if self._settings.context is not None:
            return
        keystore, truststore = self._settings.keystore, self._settings.truststore
        with self._lock:
            files = (
                file_state(keystore.location, "ssl.keystore.location"),
                file_state(truststore.location, "ssl.truststore.location"),
            )
            ready = self._ready
            if ready is None or ready.files != files:
                identity = keystore.read()
                ready = _Ready(self._make_context(identity), identity, files)
            if ready.identity is not None:
                self._check_dates(ready.identity)
            self._ready = ready

    @property
    def context(self) -> ssl.SSLContext:
        """The context that `prepare()` created."""
        if self._ready is None:
            raise RuntimeError("call prepare() first")
        return self._ready.context

    def open(self, host: str) -> TlsChannel:
        """Create a channel to a broker; see `Channels`."""
        context = self.context
        # A link-local address has a zone after the %, which certificates do not contain.
        name = host.removesuffix(".").partition("%")[0]
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
        except ssl.SSLError as error:
            setting, why = "ssl.context", error.reason or str(error)
        except (ValueError, TypeError) as error:
            setting, why = "bootstrap.servers", str(error)
        else:
            listed = self._plan.ciphers.tls_1_3 if self._plan.ciphers else frozenset()
            return TlsChannel(tls, incoming, outgoing, host, self, listed)
        raise TlsError(
            f"cannot create a TLS channel to {host!r} ({why}): see {setting}",
            reason="no channel",
            setting=setting,
            host=host,
        )

    def _make_context(self, identity: Identity | None) -> ssl.SSLContext:
        truststore = self._settings.truststore
        trusted = truststore.read()
        if trusted is None and identity is None:
            with _system_lock:
                return _system_context(self._plan)
        context = self._plan.make(trusts_system=trusted is None)
        if trusted is None:
            _load_system(context)
        else:
            # As in Java, every certificate in a trust store is trusted, including a CA below a root.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            if name := _load_trusted(context, trusted):
                raise TlsError(
                    f"{truststore.place} has a damaged certificate (OpenSSL: {name}): create it again",
                    reason="damaged store",
                    setting=truststore.setting,
                )
        if identity is not None and (fault := _load_identity(context, identity)):
            raise self.error(fault, None)
        return context

    def _check_dates(self, identity: Identity) -> None:
        der = der_of(next(pem_blocks(identity.chain)).text)
        valid = validity(der)
        now = self._expiry.now()
        if valid is not None and not valid.begins_at <= now <= valid.ends_at:
            is_over = now > valid.ends_at
            how = f"expired at {day_of(valid.ends_at)}" if is_over else f"begins at {day_of(valid.begins_at)}"
            raise TlsError(
                f"the client's certificate in {identity.place} {how}, but the time is {day_of(now)}: "
                + ("get a new one" if is_over else "check this machine's clock"),
                reason="certificate expired" if is_over else "certificate not yet valid",
                setting=identity.setting,
            )
        self._expiry.note(der, f"this client, {identity.place},")

    def note_peer(self, der: bytes, host: str) -> None:
        """Warn if the broker's certificate expires soon."""
        self._expiry.note(der, f"broker {host}")

    @property
    def lacks_identity(self) -> bool:
        """Whether there is no certificate to send to a broker; unknown for a context of the user's own."""
        return self._settings.context is None and not self._settings.keystore.is_set

    def error(self, fault: Fault, host: str | None) -> TlsError:
        """Return a fault as an error that names these settings."""
        keystore, truststore = self._settings.keystore, self._settings.truststore
        places = {"keystore": keystore.place, "truststore": truststore.place}
        settings = {"keystore": keystore.setting, "truststore": truststore.setting}
        if self._settings.context is not None:
            places = dict.fromkeys(places, "ssl.context")
            settings = dict.fromkeys(
                [
                    *settings,
                    "ssl.enabled.protocols",
                    "ssl.cipher.suites",
                    "ssl.endpoint.identification.algorithm",
                ],
                "ssl.context",
            )
        remedy = fault.remedy
        for name, place in places.items():
            remedy = remedy.replace(f"{{{name}}}", place)
        whom = f"TLS with {host}" if host else "TLS"
        return TlsError(
            f"{whom}: {fault.reason}: {remedy}",
            reason=fault.reason,
            setting=settings.get(fault.about, fault.about) or None,
            host=host,
        )


@final
class TlsChannel:
    """One end of one encrypted connection, created by `TlsChannels.open()`."""

    __slots__ = (
        "_channels",
        "_fault",
        "_head",
        "_host",
        "_incoming",
        "_is_ended",
        "_is_established",
        "_listed",
        "_outgoing",
        "_silent",
        "_tls",
    )

    def __init__(
        self,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        host: str,
        channels: TlsChannels,
        listed: frozenset[str],
    ) -> None:
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._host = host
        self._channels = channels
        self._listed = listed
        self._head: bytes | None = b""
        self._silent = 0
        self._is_established = False
        self._is_ended = False
        self._fault: Fault | None = None

    @property
    def is_established(self) -> bool:
        """Whether the handshake is done."""
        return self._is_established

    @property
    def is_ended(self) -> bool:
        """Whether the peer has announced that it sends no more."""
        return self._is_ended

    def start(self) -> None:
        """Begin the handshake; `outgoing()` then returns its first bytes.

        Raises:
            TlsError: If the settings leave OpenSSL nothing to offer.
        """
        _, fault = self._advance()
        self._raise_if(fault)

    def receive(self, data: Buffer) -> bytes:
        """Process bytes from the socket and return the plaintext that they complete; see `Channel`."""
        self._raise_if(self._fault)
        if self._is_ended:
            return b""
        before = self._outgoing.pending
        if self._head is not None:
            self._raise_if(self._look_at(data))
            if self._head is not None:
                return b""
        else:
            self._incoming.write(data)
        plaintext, fault = self._advance()
        if plaintext:
            self._silent = 0
        else:
            self._silent += len(data) + self._outgoing.pending - before
            if self._silent > _MAX_SILENT:
                fault = fault or FLOOD
        if fault is not None:
            plaintext = b""
        self._raise_if(fault)
        return plaintext

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Encrypt these pieces; see `Channel`."""
        fault = self._encrypt(buffers)
        buffers = ()
        self._raise_if(fault)

    def outgoing(self) -> bytes:
        """Return the bytes to write to the socket now, and forget them."""
        return self._outgoing.read()

    def describe(self) -> str:
        """Return version and cipher suite; empty before the handshake is done."""
        cipher = self._tls.cipher()
        if not self._is_established or cipher is None:
            return ""
        return f"{self._tls.version()}, {cipher[0]}"

    def peer_certificate(self) -> tuple[Any, bytes | None]:
        """Return the broker's certificate, decoded and encoded; nothing before the handshake is done."""
        if not self._is_established:
            return None, None
        return self._tls.getpeercert(), self._tls.getpeercert(binary_form=True)

    def _raise_if(self, fault: Fault | None) -> None:
        if fault is not None:
            if fault is not NOT_ESTABLISHED:
                self._fault = fault
            raise self._channels.error(fault, self._host)

    def _look_at(self, data: Buffer) -> Fault | None:
        """Collect a peer's first bytes until they show whether it uses TLS, and then pass them to OpenSSL."""
        head = self._head = (self._head or b"") + bytes(data)
        if len(head) < _HEAD:
            return None
        if not is_tls(head):
            return not_tls(head[:_HEAD])
        self._head = None
        self._incoming.write(head)
        return None

    def _advance(self) -> tuple[bytes, Fault | None]:
        """Let OpenSSL process the received bytes: the handshake, then plaintext."""
        pieces: list[bytes] = []
        try:
            if not self._is_established:
                self._tls.do_handshake()
                if fault := self._establish():
                    return b"", fault
            # OpenSSL reads record by record. A read without a record raises an exception, which costs as much as a
            # record.
            while self._incoming.pending or self._tls.pending():
                piece = self._tls.read(_RECORD)
                if not piece:
                    self._is_ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._is_ended = True
        except OSError as error:
            return b"", self._fault_of(error)
        if self._is_ended and not self._is_established:
            return b"", handshake_fault(
                "CLOSED_DURING_HANDSHAKE", verify_code=0, verify_message="", lacks_identity=False
            )
        return b"".join(pieces) if len(pieces) != 1 else pieces[0], None

    def _establish(self) -> Fault | None:
        cipher = self._tls.cipher()
        if self._listed and cipher is not None and cipher[1] == TLS_1_3 and cipher[0] not in self._listed:
            return UNLISTED_CIPHER
        self._is_established = True
        if der := self._tls.getpeercert(binary_form=True):
            self._channels.note_peer(der, self._host)
        return None

    def _encrypt(self, buffers: Sequence[Buffer]) -> Fault | None:
        if self._fault is not None:
            return self._fault
        if not self._is_established:
            return NOT_ESTABLISHED
        try:
            write = self._tls.write
            for record in _records(buffers):
                while (written := write(record)) < len(record):
                    record = record[written:]
        except OSError as error:
            return self._fault_of(error)
        return None

    def _fault_of(self, error: OSError) -> Fault:
        name = getattr(error, "reason", None) or error.strerror or type(error).__name__
        return handshake_fault(
            name,
            verify_code=getattr(error, "verify_code", 0),
            verify_message=getattr(error, "verify_message", ""),
            lacks_identity=self._channels.lacks_identity and self._tls.cipher() is not None,
        )


def _records(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """Group pieces into as few TLS records as possible; a record within one piece is not copied."""
    run: list[Buffer] = []
    room = _RECORD
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        at = 0
        while len(view) - at >= room:
            record = view[at : at + room]
            at += room
            yield b"".join([*run, record]) if run else record
            run, room = [], _RECORD
        if at < len(view):
            run.append(view[at:])
            room -= len(view) - at
    if run:
        yield run[0] if len(run) == 1 else b"".join(run)


def _plan(settings: TlsSettings) -> _Plan:
    versions = settings.versions()
    if not settings.cipher_suites or settings.context is not None:
        return _Plan(versions, None, settings.checks_host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:!aNULL:!eNULL")
    known = [(cipher["name"], cipher["protocol"]) for cipher in context.get_ciphers()]
    choice = choose_ciphers(settings.cipher_suites, known)
    # As in Java, a version without a listed suite is not offered.
    listed = {TLS_1_2: choice.tls_1_2, TLS_1_3: choice.tls_1_3}
    left = tuple(version for version in versions if listed[version])
    if not left:
        raise ConfigError(
            f"ssl.cipher.suites does not list a cipher suite of {' or '.join(versions)}, which "
            "ssl.enabled.protocols requires",
            key="ssl.cipher.suites",
        )
    plan = _Plan(left, choice, settings.checks_host)
    try:
        plan.make(trusts_system=False)
    except ssl.SSLError as error:
        raise ConfigError(
            f"ssl.cipher.suites: this OpenSSL allows none of them ({error.reason})", key="ssl.cipher.suites"
        ) from None
    return plan


@cache
def _system_context(plan: _Plan) -> ssl.SSLContext:
    """Return the shared context that trusts the system; loading the system's 150 CAs takes 25 ms."""
    context = plan.make(trusts_system=True)
    _load_system(context)
    return context


def _platform_context() -> ssl.SSLContext:
    """Return a context; on macOS and Windows `truststore`, if installed, asks the system itself."""
    if sys.platform in ("darwin", "win32"):
        try:
            import truststore
        except ImportError:
            pass
        else:
            return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _load_system(context: ssl.SSLContext) -> None:
    if type(context) is not ssl.SSLContext:
        return  # `truststore` loads nothing
    context.load_default_certs()
    if not context.cert_store_stats()["x509"] and is_empty_folder(ssl.get_default_verify_paths().capath):
        raise TlsError(
            "this system has no trusted certificates: set ssl.truststore.location to the certificate of "
            "the brokers' CA, or install the system's certificates (ca-certificates)",
            reason="empty store",
            setting="ssl.truststore.location",
        )


def _load_trusted(context: ssl.SSLContext, trusted: str) -> str:
    """Load the trusted certificates; return the name of the error, or an empty text after success."""
    try:
        with as_file(Secret(trusted)) as path:
            context.load_verify_locations(path)
    except OSError as error:
        return getattr(error, "reason", None) or str(error)
    return ""


def _load_identity(context: ssl.SSLContext, identity: Identity) -> Fault | None:
    password = KeyPassword(identity)
    try:
        with as_file(Secret(identity.chain + identity.key.reveal())) as path:
            context.load_cert_chain(path, password=password)
    except OSError as error:
        name = getattr(error, "reason", None) or str(error)
    except ValueError:
        name = "PASSWORD_TOO_LONG"  # longer than OpenSSL accepts, or not a text
    else:
        return None
    return loading_fault(
        name, is_encrypted=password.was_asked_for, password_setting=identity.password_setting
    )
