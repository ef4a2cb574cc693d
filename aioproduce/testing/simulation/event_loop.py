"""An asyncio event loop on virtual time and a simulated network.

Created by `Simulation`. It is asyncio's own loop with another way to wait: instead of asking the kernel for events
until the next timer, it lets the clock jump there. So tasks, time-outs and cancellation are the real ones.

Invariants:
1. `time()` is the virtual clock; an iteration of the loop costs `clock.TURN`.
2. If nothing is ready, no timer is set and nothing is in transit, the awaited event will never happen:
   `SimulationDeadlockError`, with the waiting tasks.
3. Nothing runs in another thread: `run_in_executor()` and the producer's compression run in an iteration of their
   own, some virtual time later. So two runs with the same seed are equal.
4. Real sockets, subprocesses, pipes and signals raise NotImplementedError with their names.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from aioproduce.errors import ProducerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioproduce.testing.simulation.clock import VirtualClock
    from aioproduce.testing.simulation.endpoint import Buffer, Endpoint
    from aioproduce.testing.simulation.network import Network

_JOB_SECONDS: Final = 0.002
"""The average duration of a job in an executor."""


def _refusal(what: str) -> Any:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"a simulation has no {what}")

    return refuse


class SimulationDeadlockError(ProducerError):
    """Nothing can happen any more, but something is still awaited.

    Attributes:
        waiting: A line for each waiting task, with the place where it waits.
    """

    def __init__(self, message: str, *, waiting: Sequence[str]) -> None:
        super().__init__(message)
        self.waiting = waiting

    @classmethod
    def of_tasks(cls, waiting: Sequence[str]) -> SimulationDeadlockError:
        """Name the tasks that wait."""
        return cls(
            "deadlock: nothing is ready, no timer is set, nothing is on its way, and these tasks wait: "
            + "; ".join(waiting),
            waiting=waiting,
        )


@final
class SimulationLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time.

    Args:
        clock: The time.
        network: The network of `create_connection()`.
        wall_ms: The wall clock, for records without a timestamp.
    """

    def __init__(self, clock: VirtualClock, network: Network, wall_ms: Callable[[], int]) -> None:
        super().__init__()
        self.wall_ms = wall_ms
        self._clock = clock
        self._network = network
        # What BaseEventLoop asks for events, and the resolution of its timers.
        self._selector = _Waiting(self, clock)
        self._clock_resolution = 0.0

    # -- the abstract methods of BaseEventLoop ---

    def time(self) -> float:
        """Return virtual seconds."""
        return self._clock.now

    def _process_events(self, event_list: object) -> None:
        """Do nothing: the clock has processed them."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""

    # -- the network ---

    async def create_connection(  # type: ignore[override]  # what the producer asks for, of all that a loop takes
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        **_: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a simulated host."""
        if ssl is not None or host is None or port is None:
            raise NotImplementedError("a simulated connection has a host and a port, and no TLS")
        outcome: asyncio.Future[Endpoint] = self.create_future()
        attempt = self._network.connect(
            (host, port),
            lambda endpoint: _resolve(outcome, endpoint),
            lambda error: _refuse(outcome, error),
        )
        try:
            endpoint = await outcome
        except asyncio.CancelledError:
            attempt.cancel()
            if outcome.done() and not outcome.cancelled() and outcome.exception() is None:
                outcome.result().abort()
            raise
        protocol = protocol_factory()
        made: asyncio.Future[None] = self.create_future()
        transport = SimulatedTransport(self, endpoint, protocol)
        self.call_soon(_tell, made)
        try:
            await made
        except asyncio.CancelledError:
            transport.abort()
            raise
        return transport, protocol

    create_server: Any = _refusal("servers but its brokers")
    getaddrinfo: Any = _refusal("names to resolve: create_connection() knows its hosts")
    add_reader: Any = _refusal("sockets but those of create_connection()")
    add_writer: Any = add_reader
    sock_accept: Any = add_reader
    sock_connect: Any = add_reader
    sock_recv: Any = add_reader
    sock_recv_into: Any = add_reader
    sock_sendall: Any = add_reader
    sock_recvfrom: Any = add_reader
    sock_recvfrom_into: Any = add_reader
    sock_sendto: Any = add_reader
    create_unix_connection: Any = add_reader
    create_unix_server: Any = add_reader
    _make_read_pipe_transport = _make_write_pipe_transport = _refusal("pipes")
    _make_subprocess_transport = _refusal("subprocesses")
    add_signal_handler: Any = _refusal("signals")

    # -- threads ---

    def run_in_executor(  # type: ignore[override]  # typeshed has it with type variables
        self, _executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in a later iteration of the loop."""
        return asyncio.wrap_future(self.make_executor().submit(func, *args), loop=self)

    def make_executor(self) -> Executor:
        """Return an executor for the producer's jobs: without threads, some time later (`CompressionWorkers`)."""
        return _LaterExecutor(self, self._network)

    def waiting_tasks(self) -> list[str]:
        """Return a line for each task that is not done."""
        lines = []
        for task in asyncio.all_tasks(self):
            frames = task.get_stack(limit=1)
            where = f"{frames[-1].f_code.co_qualname}:{frames[-1].f_lineno}" if frames else "?"
            lines.append(f"{task.get_name()} at {where}")
        return sorted(lines)


@final
class _Waiting:
    """A substitute for a selector: lets time pass instead of waiting for the kernel."""

    def __init__(self, loop: SimulationLoop, clock: VirtualClock) -> None:
        self._loop = loop
        self._clock = clock

    def select(self, timeout: float | None) -> Iterable[object]:
        """Go to the next event, at most `timeout` seconds from now."""
        if timeout is None and self._clock.next_at() is None:
            raise SimulationDeadlockError.of_tasks(self._loop.waiting_tasks())
        self._clock.step(inf if timeout is None else self._clock.now + timeout)
        return ()

    def close(self) -> None:
        """Do nothing."""


def _tell(made: asyncio.Future[None]) -> None:
    if not made.done():
        made.set_result(None)


def _refuse(outcome: asyncio.Future[Endpoint], error: OSError) -> None:
    if not outcome.done():
        outcome.set_exception(error)


def _resolve(outcome: asyncio.Future[Endpoint], endpoint: Endpoint) -> None:
    if outcome.done():
        endpoint.abort()
    else:
        # The caller waits one iteration more, and must not miss anything.
        endpoint.pause_reading()
        outcome.set_result(endpoint)


@final
class SimulatedTransport(asyncio.Transport):
    """One side of a connection as an asyncio transport."""

    def __init__(self, loop: SimulationLoop, endpoint: Endpoint, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": endpoint.peer_address})
        self._loop = loop
        self._endpoint = endpoint
        self._protocol: Any = protocol
        self._high = 64 * 1024
        self._is_paused = False
        self._is_closing = False
        endpoint.on_data = self._data
        endpoint.on_eof = self._eof
        endpoint.on_drained = self._drained
        endpoint.on_lost = self._lost
        loop.call_soon(protocol.connection_made, self)
        endpoint.resume_reading()
        if endpoint.is_told:
            self._lost(ConnectionResetError("connection reset"))

    def _data(self, data: bytes) -> None:
        self._loop.call_soon(self._give, data)

    def _give(self, data: bytes) -> None:
        # Data from before the peer's end or reset in the same iteration is read first, as from a socket.
        if not self._is_closing:
            self._protocol.data_received(data)

    def _eof(self) -> None:
        self._loop.call_soon(self._protocol.eof_received)

    def _drained(self) -> None:
        self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._is_paused and not self._endpoint.unsent and not self._endpoint.is_gone:
            self._is_paused = False
            self._protocol.resume_writing()

    def _lost(self, error: Exception | None) -> None:
        self._loop.call_soon(self._protocol.connection_lost, error)

    def write(self, data: Buffer) -> None:
        """Send."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send; unsent data is kept as views."""
        self._endpoint.write(list_of_data)
        if self._endpoint.unsent > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        """Set how many unsent bytes call `pause_writing()`; `resume_writing()` follows at none."""
        self._high = 64 * 1024 if high is None else high

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that are not yet in transit."""
        return self._endpoint.unsent

    def is_closing(self) -> bool:
        """Return whether it is closed or about to be."""
        return self._endpoint.is_closing

    def close(self) -> None:
        """Close when everything is sent; like asyncio's, report a lost connection at once."""
        if self._endpoint.unsent:
            self._is_closing = True
            self._endpoint.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Close now."""
        self._is_closing = True
        self._endpoint.abort()

    def pause_reading(self) -> None:
        """Leave incoming data to the kernel."""
        self._endpoint.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._endpoint.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass data received from now on to another protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that gets the data."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def can_write_eof(self) -> bool:
        """Return False: half-open connections are not simulated."""
        return False


@final
class _LaterExecutor(Executor):
    """Runs each job in an iteration of the loop, one after the other, in the order of submission."""

    def __init__(self, loop: SimulationLoop, network: Network) -> None:
        self._loop = loop
        self._network = network
        self._free_at = 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it after the previous ones."""
        future: Future[Any] = Future()
        begins_at = max(self._loop.time(), self._free_at)
        self._free_at = begins_at + self._network.random.expovariate(1 / _JOB_SECONDS)

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._loop.call_at(self._free_at, run)
        return future
