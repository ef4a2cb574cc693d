"""The security of all connections of one producer: their encryption and its login.

Created from a configuration by `security.making.make_security`, and by the simulation with stand-ins of its own.
Read by `core.cluster.broker_connections`.
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
    """The parts of `security.protocol`, each of which may be absent.

    Attributes:
        channels: Creates the encrypted channels; `None`: plaintext.
        sasl: How to log in; `None`: no login.
    """

    channels: Channels | None = None
    sasl: Sasl | None = None
