"""SCRAM against the example of RFC 7677, `scramp` for ASCII, and a server side of the tests' own for the rest.

`KafkaServer` is written from RFC 5802, whose Hi() it computes by the letter, and Kafka's ScramFormatter (UTF-8 as
it is); it shares no code with the mechanism.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproduce.config.secret import Secret
from aioproduce.errors import AuthenticationError
from aioproduce.security import scram
from aioproduce.security.credentials import UserPassword
from aioproduce.security.mechanism import Answer, Credential, Work
from aioproduce.security.scram import Scram, converse_by
from tests.security.hidden import everything_told

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
FEW = 4096


def fixed(text: str) -> Callable[[int], bytes]:
    """A source of nonces that gives this one."""
    return lambda size: b64decode(text)


def conversation(
    password: str = "pencil",
    *,
    username: str = "user",
    mechanism: str = "SCRAM-SHA-256",
    nonce: Callable[[int], bytes] = secrets.token_bytes,
) -> Scram:
    return Scram(mechanism, UserPassword(username, Secret(password)), nonce)


def done(answer: Answer) -> bytes:
    """The answer's bytes, after its work."""
    if isinstance(answer, Work):
        assert not answer.is_async
        answer = answer.run()
    assert isinstance(answer, bytes)
    return answer


class KafkaServer:
    """What a broker does, for one user."""

    def __init__(self, mechanism: str, username: str, password: str, iterations: int = FEW) -> None:
        self.digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self.username = username
        self.salt = secrets.token_bytes(16)
        self.iterations = iterations
        self.salted = self._hi(password.encode(), self.salt, iterations)

    def _hi(self, text: bytes, salt: bytes, iterations: int) -> bytes:
        # RFC 5802, section 2.2, by its letter for few iterations; U1 to Ui, each of them xor-ed in.
        last = self._hmac(text, salt + b"\0\0\0\1")
        result = int.from_bytes(last, "big")
        for _ in range(iterations - 1):
            last = self._hmac(text, last)
            result ^= int.from_bytes(last, "big")
        return result.to_bytes(len(last), "big")

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self.digest).digest()

    def first(self, message: bytes) -> bytes:
        gs2, _, bare = message.partition(b"n=")
        assert gs2 == b"n,,"
        self.client_first = b"n=" + bare
        name, nonce, *self.extensions = self.client_first.split(b",")
        assert name[2:].replace(b"=2C", b",").replace(b"=3D", b"=").decode() == self.username
        self.nonce = nonce[2:] + b"server%hvYDpWUa2RaTCAfuxFIlj)hNlF"
        self.server_first = b"r=%b,s=%b,i=%d" % (self.nonce, b64encode(self.salt), self.iterations)
        return self.server_first

    def final(self, message: bytes) -> bytes:
        without_proof, _, proof = message.rpartition(b",p=")
        assert without_proof == b"c=biws,r=" + self.nonce
        auth = b",".join((self.client_first, self.server_first, without_proof))
        stored = hashlib.new(self.digest, self._hmac(self.salted, b"Client Key")).digest()
        signature = int.from_bytes(self._hmac(stored, auth), "big")
        client_key = (int.from_bytes(b64decode(proof), "big") ^ signature).to_bytes(len(stored), "big")
        if hashlib.new(self.digest, client_key).digest() != stored:
            raise PermissionError
        return b"v=" + b64encode(self._hmac(self._hmac(self.salted, b"Server Key"), auth))


def log_in(client: Scram, server: KafkaServer) -> None:
    assert client.step(server.final(done(client.step(server.first(client.start()))))) is None


# RFC 7677, section 3.
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = b"r=" + SERVER_NONCE + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = b"c=biws,r=" + SERVER_NONCE + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_example_of_the_rfc() -> None:
    client = conversation(nonce=fixed(CLIENT_NONCE))
    assert client.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert done(client.step(SERVER_FIRST)) == CLIENT_FINAL
    assert client.step(SERVER_FINAL) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scramp_as_the_server(mechanism: str) -> None:
    other = scramp.ScramMechanism(mechanism)
    information = other.make_auth_info("pencil")
    server = other.make_server(lambda name: information if name == "user" else None)
    client = conversation(mechanism=mechanism)
    server.set_client_first(client.start().decode())
    server.set_client_final(done(client.step(server.get_server_first().encode())).decode())
    assert client.step(server.get_server_final().encode()) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scramp_as_the_client_says_the_same(mechanism: str) -> None:
    nonce = secrets.token_bytes(24)
    other = scramp.ScramClient([mechanism], "user", "pencil", c_nonce=b64encode(nonce).decode())
    ours = conversation(mechanism=mechanism, nonce=lambda size: nonce)
    first = ours.start()
    assert first.decode() == other.get_client_first()
    challenge = KafkaServer(mechanism, "user", "pencil").first(first)
    other.set_server_first(challenge.decode())
    assert done(ours.step(challenge)).decode() == other.get_client_final()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "password", ["\ufb01sh", "p\u00e4=ss,w\u00f6rd", "x" * 255, "soft\u00adhyphen", "\0\x01"]
)
def test_passwords_that_kafka_takes_as_they_are(mechanism: str, password: str) -> None:
    log_in(
        conversation(password, mechanism=mechanism, username="al,i=ce"),
        KafkaServer(mechanism, "al,i=ce", password),
    )


def test_scramp_fails_where_kafka_does_not_prepare() -> None:
    # Why the mechanism is our own.
    other = scramp.ScramClient(["SCRAM-SHA-256"], "user", "\ufb01sh")
    server = KafkaServer("SCRAM-SHA-256", "user", "\ufb01sh")
    other.set_server_first(server.first(other.get_client_first().encode()).decode())
    with pytest.raises(PermissionError):
        server.final(other.get_client_final().encode())


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)


@settings(max_examples=20)
@given(TEXTS, TEXTS, st.sampled_from(MECHANISMS), st.integers(4096, 4100))
def test_any_name_and_password(username: str, password: str, mechanism: str, iterations: int) -> None:
    log_in(
        conversation(password, username=username, mechanism=mechanism),
        KafkaServer(mechanism, username, password, iterations),
    )


def test_a_delegation_token_says_so() -> None:
    credential = Credential(value=UserPassword("tokenID", Secret("aG1hYw==")))
    client = converse_by("SCRAM-SHA-256", secrets.token_bytes, token_auth=True)("broker", credential)
    server = KafkaServer("SCRAM-SHA-256", "tokenID", "aG1hYw==")
    log_in(client, server)
    assert server.extensions == [b"tokenauth=true"]


def test_the_nonce_is_what_the_source_gives() -> None:
    asked: list[int] = []

    def nonce(size: int) -> bytes:
        asked.append(size)
        return bytes(range(size))

    client = converse_by("SCRAM-SHA-256", nonce)("broker", Credential(value=UserPassword("u", Secret("p"))))
    assert b64decode(client.start().partition(b",r=")[2]) == bytes(range(asked[0]))
    assert asked[0] >= 18, "RFC 5802 leaves the size open; less than 144 bits can be guessed or repeat"


R = CLIENT_NONCE
MALFORMED_FIRST = {
    "empty": b"",
    "another nonce": b"r=xOprNGfwEbeRWgbNEkqOabc,s=QUJD,i=4096",
    "our nonce alone": f"r={R},s=QUJD,i=4096".encode(),
    "a shorter nonce": f"r={R[:-1]},s=QUJD,i=4096".encode(),
    "a blank in the nonce": f"r={R} x,s=QUJD,i=4096".encode(),
    "a nonce that is not ASCII": f"r={R}\u00e4,s=QUJD,i=4096".encode(),
    "no salt": f"r={R}x,s=,i=4096".encode(),
    "salt that is not base64": f"r={R}x,s=QUJ,i=4096".encode(),
    "salt of another alphabet": f"r={R}x,s=QU-_,i=4096".encode(),
    "padding in the middle": f"r={R}x,s=QQ==QUJD,i=4096".encode(),
    "no iterations": f"r={R}x,s=QUJD,i=".encode(),
    "0 iterations": f"r={R}x,s=QUJD,i=0".encode(),
    "iterations below 0": f"r={R}x,s=QUJD,i=-4096".encode(),
    "a million and one": f"r={R}x,s=QUJD,i=1000001".encode(),
    "iterations without end": f"r={R}x,s=QUJD,i={'9' * 3000}".encode(),
    "other digits": f"r={R}x,s=QUJD,i=\u0664\u0660\u0669\u0666".encode(),
    "an extension that must be known": f"m=x,r={R}x,s=QUJD,i=4096".encode(),
    "the same at the end": f"r={R}x,s=QUJD,i=4096,m=x".encode(),
    "another order": f"s=QUJD,r={R}x,i=4096".encode(),
    "an empty extension": f"r={R}x,s=QUJD,i=4096,".encode(),
    "a newline after it": f"r={R}x,s=QUJD,i=4096\n".encode(),
    "a NUL after it": f"r={R}x,s=QUJD,i=4096\0".encode(),
    "too long": f"r={R}{'x' * 5000},s=QUJD,i=4096".encode(),
    "the last message": SERVER_FINAL,
}


@pytest.mark.parametrize("name", MALFORMED_FIRST)
def test_a_first_answer_that_is_malformed(name: str) -> None:
    client = conversation("correct-horse", nonce=fixed(CLIENT_NONCE))
    client.start()
    with pytest.raises(AuthenticationError, match="the broker answered SCRAM-SHA-256 with") as refused:
        client.step(MALFORMED_FIRST[name])
    assert refused.value.setting == "sasl.mechanism"
    assert len(str(refused.value)) < 300
    assert "horse" not in everything_told(refused.value, ours_only=True)


def test_few_iterations_are_refused_with_the_remedy() -> None:
    client = conversation(nonce=fixed(CLIENT_NONCE))
    client.start()
    with pytest.raises(AuthenticationError, match=r"4,095 iterations.*kafka-configs\.sh"):
        client.step(SERVER_FIRST.replace(b"i=4096", b"i=4095"))


def test_an_extension_that_may_be_ignored() -> None:
    client = conversation(nonce=fixed(CLIENT_NONCE))
    client.start()
    assert done(client.step(SERVER_FIRST + b",x=what,t=ever"))


WRONG_FINAL = {
    "empty": b"",
    "no signature": b"v=",
    "another's": b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    "a piece of it": b"v=6rriTRBi",
    "not base64": b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4",
    "an extension that must be known": SERVER_FINAL + b",m=x",
    "something after it": SERVER_FINAL + b"\n",
    "the first message again": SERVER_FIRST,
    "too long": SERVER_FINAL + b",x=" + b"x" * 5000,
}


@pytest.mark.parametrize("name", WRONG_FINAL)
def test_a_broker_that_proves_nothing(name: str) -> None:
    client = conversation("correct-horse", nonce=fixed(CLIENT_NONCE))
    client.start()
    done(client.step(SERVER_FIRST))
    with pytest.raises(AuthenticationError, match=r"has not proved|answered SCRAM-SHA-256 with") as refused:
        client.step(WRONG_FINAL[name])
    assert "horse" not in everything_told(refused.value, ours_only=True)


def test_a_proof_before_the_work_was_done_is_none() -> None:
    client = conversation("not hashed before", nonce=fixed(CLIENT_NONCE))
    client.start()
    assert isinstance(client.step(SERVER_FIRST), Work)
    for signature in (b"v=AAAA", b"v=" + b64encode(bytes(32))):
        with pytest.raises(AuthenticationError, match="has not proved"):
            client.step(signature)


def test_an_error_of_the_server_is_named() -> None:
    client = conversation(nonce=fixed(CLIENT_NONCE))
    client.start()
    with pytest.raises(AuthenticationError, match="refused SCRAM-SHA-256: unknown-user") as refused:
        client.step(b"e=unknown-user")
    assert refused.value.setting == "sasl.password"
    for told in (b"e=" + b"x" * 101, b"e=\x1b[31mred", b"e=p\xc3\xa4"):
        with pytest.raises(AuthenticationError, match="answered SCRAM-SHA-256 with"):
            client.step(told)


@pytest.mark.parametrize(
    ("username", "password", "setting"),
    [
        ("", "correct-horse", "sasl.username"),
        ("al\0ice", "correct-horse", "sasl.username"),
        ("alice", "", "sasl.password"),
        ("alice", "correct-\ud800horse", "sasl.password"),
    ],
)
def test_what_cannot_log_in_is_refused(username: str, password: str, setting: str) -> None:
    client = conversation(password, username=username)
    with pytest.raises(AuthenticationError, match=setting) as refused:
        client.start()
    assert (refused.value.mechanism, refused.value.setting) == ("SCRAM-SHA-256", setting)
    assert "horse" not in everything_told(refused.value, ours_only=True)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The iterations of each PBKDF2 from here on."""
    seen: list[int] = []
    real = hashlib.pbkdf2_hmac

    def counted(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        seen.append(iterations)
        return real(digest, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    return seen


def test_many_connections_hash_once(hashed: list[int]) -> None:
    server = KafkaServer("SCRAM-SHA-256", "user", "once")
    clients = [conversation("once") for _ in range(20)]
    work = [client.step(server.first(client.start())) for client in clients]
    assert all(isinstance(answer, Work) for answer in work), "nobody has hashed yet, and nobody waits here"
    threads = [threading.Thread(target=answer.run) for answer in work if isinstance(answer, Work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hashed == [FEW]
    later = conversation("once")
    first = server.first(later.start())
    answer = later.step(first)
    assert isinstance(answer, bytes), "the keys are known: no thread is needed"
    assert later.step(server.final(answer)) is None
    assert hashed == [FEW]


def test_keys_belong_to_all_that_they_are_made_of(hashed: list[int]) -> None:
    server = KafkaServer("SCRAM-SHA-256", "user", "right")
    wrong = conversation("wrong")
    with pytest.raises(PermissionError):
        server.final(done(wrong.step(server.first(wrong.start()))))
    log_in(conversation("right"), server)  # a password that was set right: the same salt
    assert len(hashed) == 2
    log_in(conversation("right"), KafkaServer("SCRAM-SHA-256", "user", "right"))
    assert len(hashed) == 3
    log_in(conversation("right", mechanism="SCRAM-SHA-512"), KafkaServer("SCRAM-SHA-512", "user", "right"))
    assert len(hashed) == 4


def test_the_cache_is_bounded_and_holds_no_password() -> None:
    for number in range(12):
        log_in(
            conversation(f"correct-horse-{number}"),
            KafkaServer("SCRAM-SHA-256", "user", f"correct-horse-{number}"),
        )
    found = scram._keys_of.cache_info()
    assert found.currsize <= 8
    # All that lives in the cache: its keys are the fingerprints that `_Keys` was called with.
    keys = scram._Keys(
        scram._fingerprint("sha256", UserPassword("user", Secret("correct-horse")), b"salt", 1)
    )
    assert set(scram._Keys.__slots__) == {"client_key", "lock", "server_key"}
    assert "horse" not in repr(keys)
    fingerprint = scram._fingerprint("sha256", UserPassword("user", Secret("correct-horse")), b"salt", 1)
    assert b"horse" not in fingerprint
    assert fingerprint != hashlib.blake2b(b"correct-horse").digest()


def test_no_repr_has_a_secret() -> None:
    client = conversation("correct-horse")
    server = KafkaServer("SCRAM-SHA-256", "user", "correct-horse")
    answer = client.step(server.first(client.start()))
    assert "horse" not in f"{client!r} {answer!r}"
