"""A server's certificate in files, for what serves HTTP, and a client's view of it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class HttpFiles:
    """Where they are, and a context that trusts them."""

    certificate: str
    key: str
    trusting: ssl.SSLContext


def written(folder: Path) -> HttpFiles:
    """A certificate of localhost and 127.0.0.1 by an authority of its own."""
    ca = trustme.CA()
    leaf = ca.issue_cert("localhost", "127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(str(folder / "server.pem"))
    leaf.private_key_pem.write_to_path(str(folder / "server.key"))
    trusting = ssl.create_default_context()
    ca.configure_trust(trusting)
    return HttpFiles(str(folder / "server.pem"), str(folder / "server.key"), trusting)
