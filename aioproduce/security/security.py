"""What is said about all connections of one producer: how they are encrypted, and how it logs in.

Made of a configuration by `security.making.make_security`, and by the simulation, which has stand-ins of its own;
read by `core.cluster.broker_connections`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from aioproduce.security.channel import Channels
    from aioproduce.security.mechanism import Sasl


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """As `security.protocol` has it: each of the two may be without the other.

    Attributes:
        channels: Makes the encrypted channels; `None`: plaintext.
        sasl: How to log in; `None`: not at all.
    """

    channels: Channels | None = None
    sasl: Sasl | None = None
