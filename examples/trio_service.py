r"""A line in over TCP, a record in Kafka, an answer when it is acknowledged: a small service on trio.

    python examples/trio_service.py                     # listens on 127.0.0.1:7000; Kafka at localhost:9092
    printf 'two apples\nthree pears\n' | nc -N 127.0.0.1 7000
    aioproduce dev                                      # a cluster in memory, if there is no other

The answer to each line is `ok PARTITION OFFSET`, or `failed: ...` with what is known of it. Settings come from the
environment: KAFKA_BOOTSTRAP_SERVERS (localhost:9092), KAFKA_TOPIC (lines), PORT (7000; 0 takes a free one).

At SIGTERM or SIGINT it takes no more lines, and sends what was accepted: within 10 seconds. A line without answer
may be in the log all the same.
"""

from __future__ import annotations

import os
import signal
from functools import partial

import trio

from aioproduce import Producer
from aioproduce.errors import ProducerError

DRAIN = 10.0
"""Seconds that the end waits for what was accepted."""


async def answer_lines(producer: Producer, topic: str, stream: trio.SocketStream) -> None:
    """One connection: its lines in order, each answered when it is acknowledged."""
    rest = b""
    try:
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await stream.send_all(await acknowledged(producer, topic, line))
    except trio.BrokenResourceError:
        pass  # the client is gone


async def acknowledged(producer: Producer, topic: str, line: bytes) -> bytes:
    """The answer to a line."""
    try:
        metadata = await producer.send_and_wait(topic, line)
    except ProducerError as error:
        # It says, too, whether the record may be in the log all the same.
        return f"failed: {error}\n".encode()
    return f"ok {metadata.partition} {metadata.offset}\n".encode()


async def end_at_signal(scope: trio.CancelScope) -> None:
    """Cancel the service at the first signal."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def main() -> None:
    """Serve until told to end."""
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    topic = os.environ.get("KAFKA_TOPIC", "lines")
    # The producer is outside of the scope that a signal cancels, so what was accepted is still sent. If its sender
    # ever died, all that is in this block would be cancelled, and SenderDiedError raised at its end.
    async with Producer(servers) as producer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_at_signal, nursery.cancel_scope)
            listeners = await nursery.start(
                partial(trio.serve_tcp, host="127.0.0.1"),
                partial(answer_lines, producer, topic),
                int(os.environ.get("PORT", "7000")),
            )
            print("listening on port", listeners[0].socket.getsockname()[1], flush=True)
        await producer.close(DRAIN)
    print("ended; failed unseen:", producer.unobserved_failures, flush=True)


if __name__ == "__main__":
    trio.run(main)
