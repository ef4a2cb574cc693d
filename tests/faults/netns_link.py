"""A line between a client and brokers on which single packets are lost, made of one tun device.

Used by `netns_child`, in a network namespace that has nothing else. Packets to `BROKERS` leave by the device, come
to us, and go back in with source and destination exchanged: the kernel takes them for packets from `BROKERS` to the
address that it has itself, where the listeners are. Every checksum stays right, as it sums both. So both ends are
sockets of one process, with the kernel's own TCP between them: retransmission, back-off, RST and all.

1. What is lost is lost without a word: no RST, no ICMP.
2. Which packets are lost comes from a seed and the order of the packets.
3. Packets to any other address are lost too: such an address is a host that is switched off.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import socket
import struct
import subprocess
from typing import Final, Self, final

HERE: Final = "10.80.0.1"
BROKERS: Final = "10.80.0.2"
NOBODY: Final = tuple(f"10.80.0.{last}" for last in range(3, 9))

_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_WITHOUT_PACKET_INFO: Final = 0x0001 | 0x1000
_PACKET: Final = 1 << 16
_IPV4: Final = 4
_TCP: Final = 6
_SYN_ONLY: Final = 0x02
_SYN_AND_ACK: Final = 0x12


@final
class Tun:
    """The device's end at which packets come out and go in."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def close(self) -> None:
        """The device goes with it."""
        os.close(self.descriptor)


def open_tun() -> Tun:
    """Make the device, with its address, in the present namespace; `OSError` or `CalledProcessError` if not."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", b"tun0", _IFF_TUN_WITHOUT_PACKET_INFO))
        for command in ("link set lo up", f"addr add {HERE}/24 dev tun0", "link set tun0 up"):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
    except BaseException:
        os.close(descriptor)
        raise
    return Tun(descriptor)


@final
class LossyLine:
    """Carries packets on the running loop until its block ends.

    Args:
        broker_ports: Where the brokers listen: tells the direction of a packet.
        seed: Of the losses.

    Attributes:
        loss: The share of packets that are lost, either way.
        is_open_to_brokers: Whether anything gets there.
        is_open_to_client: Whether anything comes from there.
        carried: Packets that went through.
        lost: Packets that did not.
        attempts: Address -> first packets of a connection to it, lost or not; each repetition counts.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.broker_ports: frozenset[int] = frozenset()
        self.loss = 0.0
        self.is_open_to_brokers = True
        self.is_open_to_client = True
        self.carried = 0
        self.lost = 0
        self.attempts: dict[str, int] = {}
        self._rng = random.Random(seed)
        self._tun: Tun | None = None

    def __enter__(self) -> Self:
        self._tun = open_tun()
        asyncio.get_running_loop().add_reader(self._tun.descriptor, self._read, self._tun.descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._tun is not None
        asyncio.get_running_loop().remove_reader(self._tun.descriptor)
        self._tun.close()

    def _read(self, descriptor: int) -> None:
        while True:
            try:
                packet = os.read(descriptor, _PACKET)
            except BlockingIOError:
                return
            if self._is_carried(packet):
                self.carried += 1
                os.write(descriptor, packet[:12] + packet[16:20] + packet[12:16] + packet[20:])
            else:
                self.lost += 1

    def _is_carried(self, packet: bytes) -> bool:
        if packet[0] >> 4 != _IPV4 or packet[9] != _TCP:
            return False
        destination = socket.inet_ntoa(packet[16:20])
        head = (packet[0] & 0x0F) * 4
        (port,) = struct.unpack_from(">H", packet, head + 2)
        if packet[head + 13] & _SYN_AND_ACK == _SYN_ONLY:
            self.attempts[destination] = self.attempts.get(destination, 0) + 1
        is_open = self.is_open_to_brokers if port in self.broker_ports else self.is_open_to_client
        return destination == BROKERS and is_open and self._rng.random() >= self.loss
