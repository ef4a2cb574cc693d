r"""The client's side of PLAIN, SCRAM and OAUTHBEARER, with a broker that says anything.

1. Any message gives an answer or an AuthenticationError, in bounded memory, and without the password or the token.
2. SCRAM ends well exactly where the broker's signature is right, which is computed here by another way. It never
   hashes fewer than 4,096 or more than 1,000,000 times: a stand-in for PBKDF2 looks, for a run would take a second.
3. What OAUTHBEARER keeps of a refusal is printable and bounded.

The input of `sasl_scram`: which mechanism, and whether the last message is an honest broker's; the messages, with a
NUL between them, where `@` stands for the client's nonce. Of the other: which mechanism, and what is said.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterator
from unittest import mock

from aioproduce.config.secret import Secret
from aioproduce.errors import AuthenticationError
from aioproduce.security.credentials import Token, UserPassword
from aioproduce.security.mechanism import Work
from aioproduce.security.oauthbearer import OAuthBearer
from aioproduce.security.plain import Plain
from aioproduce.security.scram import Scram
from tests.fuzz.target import MemoryBound, Source, Target

SECRET = "correct-horse"
DIGESTS = (("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512"))


def salted(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Stands in for PBKDF2."""
    assert 4096 <= iterations <= 1_000_000
    assert password == SECRET.encode()
    return hmac.digest(password, b"%b%d" % (salt, iterations), digest)


def honest_final(digest: str, first: bytes, server_first: bytes, final: bytes) -> bytes:
    fields = dict(field.split(b"=", 1) for field in server_first.split(b",")[:3])
    key = salted(digest, SECRET.encode(), b64decode(fields[b"s"]), int(fields[b"i"]))
    auth = b",".join((first.removeprefix(b"n,,"), server_first, final.rpartition(b",p=")[0]))
    signature = hmac.digest(hmac.digest(key, b"Server Key", digest), auth, digest)
    return b"v=" + b64encode(signature)


def run_scram(data: bytes) -> None:
    source = Source(data)
    kind = source.byte()
    mechanism, digest = DIGESTS[kind & 1]
    client = Scram(
        mechanism, UserPassword("user", Secret(SECRET)), lambda size: data[:size].ljust(size, b"\0")
    )
    first = client.start()
    nonce = first.partition(b",r=")[2]
    messages = [message.replace(b"@", nonce) for message in source.rest().split(b"\0")]
    server_first = final = b""
    try:
        with mock.patch.object(hashlib, "pbkdf2_hmac", salted):
            for message in messages:
                with MemoryBound(len(message), factor=100):
                    answer = client.step(message)
                if isinstance(answer, Work):
                    answer = answer.run()
                if answer is None:
                    assert final, "it went well before the client has proved anything"
                    assert message.split(b",")[0] == honest_final(digest, first, server_first, final)
                    return
                server_first, final = message, answer
                assert final.startswith(b"c=biws,r=" + nonce)
                if kind & 2:
                    assert client.step(honest_final(digest, first, server_first, final)) is None
                    return
    except AuthenticationError as error:
        check(error, mechanism)


def run_oauthbearer(data: bytes) -> None:
    token, *challenges = data.split(b"\0")
    client = OAuthBearer(Token(Secret(token.decode("utf-8", "replace"))))
    try:
        said = client.start()
        assert said == b"n,,\x01auth=Bearer " + token + b"\x01\x01"
        for challenge in challenges:
            with MemoryBound(len(challenge), factor=100, constant=64 * 1024):
                answer = client.step(challenge)
            assert answer == (b"\x01" if challenge else None)
            assert bool(challenge) == bool(client.refusal)
            assert len(client.refusal) <= 200
            assert all(" " <= char <= "~" for char in client.refusal)
    except AuthenticationError as error:
        check(error, "OAUTHBEARER")


def run_plain(data: bytes) -> None:
    name, _, password = data.partition(b"\xff")
    user = UserPassword(
        name.decode("utf-8", "surrogateescape"), Secret(password.decode("utf-8", "surrogateescape"))
    )
    can_be_sent = all(part and b"\0" not in part and is_utf8(part) for part in (name, password))
    said: bytes | None = None
    try:
        said = Plain(user).start()
    except AuthenticationError as error:
        check(error, "PLAIN")
    assert said == (b"\0" + name + b"\0" + password if can_be_sent else None)


def check(error: AuthenticationError, mechanism: str) -> None:
    assert error.mechanism == mechanism
    assert SECRET not in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 400


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def seeds_scram() -> Iterator[bytes]:
    for kind in range(4):
        yield bytes([kind]) + b"r=@server,s=QUJD,i=4096\0v=QUJD"
    yield b"\0e=unknown-user"
    yield b"\0m=x,r=@server,s=QUJD,i=4096"
    yield b"\1r=@server,s=QUJD,i=1000001"
    yield b"\1r=@server,s=QUJD,i=9999,x=y\0v=QUJD,x=y"


def run_plain_oauthbearer(data: bytes) -> None:
    (run_plain if data[:1] < b"\x80" else run_oauthbearer)(data[1:])


def seeds_plain_oauthbearer() -> Iterator[bytes]:
    yield b"\0alice\xffsecret"
    yield b"\0alice\xff"
    yield b"\0al\0ice\xffp\xc3\xa4ss"
    yield b"\xffa.b.c\0"
    yield b'\xffa.b.c\0{"status":"invalid_token","scope":"a b"}\0'
    yield b'\xffa=\0{"status":"a="}'
    yield b"\xffa\0[[1e999]]"


TARGETS = {
    "sasl_scram": Target(run_scram, seeds_scram),
    "sasl_plain_oauthbearer": Target(run_plain_oauthbearer, seeds_plain_oauthbearer, max_size=256),
}
