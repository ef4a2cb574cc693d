"""The certificate of brokers with TLS, made once for a run of the program. Called by plans and targets.

Its folder is deleted when the first process ends; workers get the path of the CA in their case.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

from aioproduce.testing.fake_cluster.certificates import Authority


@final
@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM.

    Attributes:
        ca: The CA that clients trust.
        broker: Key, certificate and chain.
    """

    ca: Path
    broker: Path
    _folder: tempfile.TemporaryDirectory[str]


@cache
def certificate() -> Certificate:
    """Return a certificate of 127.0.0.1: P-256, issued by an intermediate authority."""
    folder = tempfile.TemporaryDirectory(prefix="aioproduce-bench-")
    authority = Authority("127.0.0.1")
    identity = authority.broker()
    made = Certificate(Path(folder.name) / "ca.pem", Path(folder.name) / "broker.pem", folder)
    made.ca.write_text(authority.ca)
    made.broker.touch(mode=0o600)
    made.broker.write_text(identity.key + identity.chain)
    return made
