r"""A small service on trio: it sends each line from TCP to Kafka, and answers when the record is acknowledged.

    python examples/trio_service.py                     # listens on 127.0.0.1:7000; Kafka at localhost:9092
    printf 'two apples\nthree pears\n' | nc -N 127.0.0.1 7000
    aioproduce dev                                      # a cluster in memory, if there is no other

The answer to each line is `ok PARTITION OFFSET`, or `failed: ...` with the error. Settings come from the
environment: KAFKA_BOOTSTRAP_SERVERS (localhost:9092), KAFKA_TOPIC (lines), PORT (7000; 0 selects a free port).

At SIGTERM or SIGINT it accepts no more lines, and sends the accepted ones within 10 seconds. A line without an
answer may still be in the log.
"""

from __future__ import annotations

import os
import signal
from functools import partial

import trio

from aioproduce import Producer
from aioproduce.errors import ProducerError

DRAIN = 10.0
"""Seconds that the end waits for accepted records."""


async def answer_lines(producer: Producer, topic: str, stream: trio.SocketStream) -> None:
    """Serve one connection: send its lines in order, and answer each when it is acknowledged."""
    rest = b""
    try:
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await stream.send_all(await acknowledged(producer, topic, line))
    except trio.BrokenResourceError:
        pass  # the client is gone


async def acknowledged(producer: Producer, topic: str, line: bytes) -> bytes:
    """Send a line and return the answer to it."""
    try:
        metadata = await producer.send_and_wait(topic, line)
    except ProducerError as error:
        # The text also says whether the record may be in the log.
        return f"failed: {error}\n".encode()
    return f"ok {metadata.partition} {metadata.offset}\n".encode()


async def end_at_signal(scope: trio.CancelScope) -> None:
    """Cancel the service at the first signal."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def main() -> None:
    """Serve until a signal arrives."""
    servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")
    topic = os.environ.get("KAFKA_TOPIC", "lines")
    # The producer is outside the scope that a signal cancels, so accepted records are still sent. If its sender
    # died, this block would be cancelled, and SenderDiedError raised at its end.
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
