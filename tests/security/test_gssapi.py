"""GSSAPI against a real KDC, with a broker's side of the library's acceptor, like Java's GssKrb5Server."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aioproduce.errors import AuthenticationError
from aioproduce.security.mechanism import Answer, Credential, Work
from tests.security.hidden import everything_told

gssapi = pytest.importorskip("gssapi", reason="the library gssapi has no wheel here: pip install gssapi")
k5test = pytest.importorskip("k5test", reason="k5test is not installed")

from aioproduce.security.gssapi import Gssapi, converse_by  # noqa: E402

pytestmark = [
    pytest.mark.extended(
        "a KDC takes 1.5 s to start; the fuzz target sasl_gssapi with a stand-in stays in the gate"
    ),
    pytest.mark.skipif(
        shutil.which("krb5kdc", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="no krb5kdc"
    ),
]

HOST = "localhost"
SERVICE = "kafka"


class Kdc:
    """A realm of its own, with a broker's key, a user's keytab and a user with a password."""

    def __init__(self) -> None:
        self.realm = k5test.K5Realm(get_creds=False)
        self.user = self.realm.user_princ
        self.realm.addprinc(f"{SERVICE}/{HOST}")
        self.realm.extract_keytab(f"{SERVICE}/{HOST}", self.realm.keytab)
        self.user_keytab = str(Path(self.realm.tmpdir) / "user.keytab")
        self.realm.extract_keytab(self.user, self.user_keytab)
        # Taking a keytab gave the user a new key: this one has a password.
        self.realm.addprinc("alice", "secret1")


@pytest.fixture(scope="module")
def realm() -> Iterator[Kdc]:
    kdc = Kdc()
    yield kdc
    kdc.realm.stop()


@pytest.fixture
def kdc(realm: Kdc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kdc:
    """The same KDC, with an empty cache of tickets for each test, and no keytab of a client."""
    for name, value in realm.realm.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "ccache"))
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(tmp_path / "none"))
    return realm


def kinit(name: str, password: str) -> None:
    subprocess.run(["kinit", name], input=f"{password}\n", text=True, check=True, stdout=subprocess.PIPE)


class Broker:
    """What Kafka's side does (RFC 4752): the context, an offer of layers, a choice."""

    def __init__(self, offer: bytes = b"\x01\x00\x00\x00") -> None:
        name = gssapi.Name(f"{SERVICE}@{HOST}", gssapi.NameType.hostbased_service)
        self.context = gssapi.SecurityContext(
            creds=gssapi.Credentials(name=name, usage="accept"), usage="accept"
        )
        self.offer = offer
        self.has_offered = False
        self.choice: bytes | None = None

    def answer(self, message: bytes) -> bytes:
        if not self.context.complete:
            token = self.context.step(message)
            assert token
            return bytes(token)
        if not self.has_offered:
            assert message == b"", "the client has nothing to say until the offer"
            self.has_offered = True
            return bytes(self.context.wrap(self.offer, encrypt=False).message)
        self.choice = self.context.unwrap(message).message
        return b""


def done(answer: Answer) -> bytes | None:
    if not isinstance(answer, Work):
        return answer
    found: list[bytes | BaseException] = []

    def work() -> None:
        try:
            found.append(answer.run())
        except BaseException as error:
            found.append(error)

    # In a thread of its own each time, as a driver may do.
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def log_in(client: Gssapi, broker: Broker) -> None:
    said = done(client.start())
    for _ in range(4):
        assert said is not None
        said = done(client.step(broker.answer(said)))
        if said is None:
            return
    raise AssertionError("it does not end")


def by(**settings: str) -> Gssapi:
    return converse_by(SERVICE, **settings)(HOST, Credential(value=None))


def test_a_keytab_and_a_principal(kdc: Kdc) -> None:
    broker = Broker()
    log_in(by(keytab=kdc.user_keytab, principal=kdc.user), broker)
    assert str(broker.context.initiator_name) == kdc.user
    assert broker.choice == b"\x01\x00\x00\x00", "no layer, no size, nobody else to act as"


def test_the_users_own_ticket(kdc: Kdc) -> None:
    kinit("alice", "secret1")
    broker = Broker()
    log_in(Gssapi(f"{HOST}.", SERVICE), broker)
    assert str(broker.context.initiator_name) == f"alice@{kdc.realm.realm}"


def test_a_keytab_leaves_the_users_own_tickets_alone(kdc: Kdc) -> None:
    kinit("alice", "secret1")
    before = Path(os.environ["KRB5CCNAME"]).read_bytes()
    broker = Broker()
    log_in(by(keytab=kdc.user_keytab), broker)
    assert str(broker.context.initiator_name) == kdc.user
    assert Path(os.environ["KRB5CCNAME"]).read_bytes() == before


def test_the_keytab_of_the_environment(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", kdc.user_keytab)
    broker = Broker()
    log_in(by(), broker)
    assert str(broker.context.initiator_name) == kdc.user


def test_a_broker_that_offers_more_is_told_no_layer(kdc: Kdc) -> None:
    broker = Broker(offer=b"\x07\x01\x00\x00")
    log_in(by(keytab=kdc.user_keytab), broker)
    assert broker.choice == b"\x01\x00\x00\x00"


def refused(act: Callable[[], object]) -> AuthenticationError:
    with pytest.raises(AuthenticationError) as found:
        act()
    assert found.value.mechanism == "GSSAPI"
    told = everything_told(found.value)
    assert "secret1" not in told
    return found.value


def test_no_ticket(kdc: Kdc) -> None:
    error = refused(lambda: done(by().start()))
    assert error.setting == "sasl.jaas.config"
    for remedy in ("kinit", "KRB5_CLIENT_KTNAME", "keyTab and principal"):
        assert remedy in str(error)


def test_a_keytab_that_is_not_there(kdc: Kdc, tmp_path: Path) -> None:
    error = refused(lambda: done(by(keytab=str(tmp_path / "missing")).start()))
    assert error.setting == "sasl.jaas.config"
    assert "check keyTab and principal" in str(error)


def test_a_principal_that_the_keytab_does_not_have(kdc: Kdc) -> None:
    error = refused(lambda: done(by(keytab=kdc.user_keytab, principal="nobody").start()))
    assert "check keyTab and principal" in str(error)


def test_a_principal_that_is_no_name(kdc: Kdc) -> None:
    error = refused(lambda: done(by(principal="a@b@c\\").start()))
    assert (error.setting, "check principal" in str(error)) == ("sasl.jaas.config", True)


def test_another_service_name(kdc: Kdc) -> None:
    client = converse_by("kaffee", keytab=kdc.user_keytab)(HOST, Credential(value=None))
    error = refused(lambda: done(client.start()))
    assert error.setting == "sasl.kerberos.service.name"
    assert f"kaffee@{HOST}" in str(error)
    assert "not found in Kerberos database" in str(error)


def test_an_offer_without_no_layer(kdc: Kdc) -> None:
    for offer, said in (
        (b"\x06\x01\x00\x00", "a security layer"),
        (b"\x01", "of 1 bytes"),
        (b"", "of 0 bytes"),
    ):
        error = refused(lambda: log_in(by(keytab=kdc.user_keytab), Broker(offer)))  # noqa: B023
        assert said in str(error)
        assert error.setting == "sasl.mechanism"


@pytest.mark.parametrize("token", [b"", b"no token", b"\x60\x82\xff\xff" + bytes(40), bytes(200)])
def test_a_broker_that_does_not_speak_kerberos(kdc: Kdc, token: bytes) -> None:
    client = by(keytab=kdc.user_keytab)
    done(client.start())
    error = refused(lambda: done(client.step(token)))
    assert error.setting == "sasl.mechanism"


def test_any_bit_of_the_brokers_token_that_is_changed(kdc: Kdc) -> None:
    client = by(keytab=kdc.user_keytab)
    first = done(client.start())
    assert first is not None
    proof = bytearray(Broker().answer(first))
    proof[-1] ^= 1
    refused(lambda: done(client.step(bytes(proof))))


def test_an_offer_that_is_not_wrapped_or_changed_on_the_way(kdc: Kdc) -> None:
    for change in (
        lambda wrapped: b"\x01\x00\x00\x00",
        lambda wrapped: wrapped[:-1] + bytes([wrapped[-1] ^ 1]),
    ):
        client, broker = by(keytab=kdc.user_keytab), Broker()
        first = done(client.start())
        assert first is not None
        assert done(client.step(broker.answer(first))) == b""
        refused(lambda: done(client.step(change(broker.answer(b"")))))  # noqa: B023


def test_a_token_after_the_end(kdc: Kdc) -> None:
    client, broker = by(keytab=kdc.user_keytab), Broker()
    said = done(client.start())
    for _ in range(2):
        assert said is not None
        said = done(client.step(broker.answer(said)))
    assert "after the end of the exchange" in str(refused(lambda: client.step(b"more")))


def test_a_message_that_is_too_large(kdc: Kdc) -> None:
    client = by(keytab=kdc.user_keytab)
    done(client.start())
    assert "200,000 bytes" in str(refused(lambda: client.step(bytes(200_000))))


def test_a_kdc_that_is_not_there(kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Path(os.environ["KRB5_CONFIG"]).read_text().replace(f":{kdc.realm.portbase}", ":1")
    (tmp_path / "krb5.conf").write_text(config)
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    copy = tmp_path / "copy.keytab"  # or the ticket of another test would be found
    shutil.copy(kdc.user_keytab, copy)
    error = refused(lambda: done(by(keytab=str(copy)).start()))
    assert "krb5.conf" in str(error)
