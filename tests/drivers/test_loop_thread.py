"""The loop thread: whatever becomes of it, every call has an outcome and nobody waits for ever."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import traceback
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aioproduce.drivers.loop_thread import LoopThread, ThreadBusyError, ThreadEndedError, new_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 60.0
"""Far above what any of it takes: a bound for a hang, not a budget."""


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def thread(request: pytest.FixtureRequest) -> Iterator[LoopThread]:
    running = LoopThread("the loop", request.param())
    yield running
    running.stop()
    assert running.join(PATIENCE)
    assert running.loop.is_closed()


def test_a_thread_with_the_number_of_the_ended_one_is_another(thread: LoopThread) -> None:
    """The system gives the number on at once, while the ended thread can still look alive."""

    class Ended:
        ident = threading.get_ident()

        def is_alive(self) -> bool:
            return True

    real, thread._thread = thread._thread, Ended()  # type: ignore[assignment]  # as far as `is_here` could look
    try:
        assert not thread.is_here
    finally:
        thread._thread = real


async def asleep(told: list[str] | None = None) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        if told is not None:
            await asyncio.sleep(0)
            told.append("ended")


def refuses(thread: LoopThread) -> None:
    with pytest.raises(ThreadEndedError):
        thread.call(asyncio.sleep, 0)
    with pytest.raises(ThreadEndedError):
        thread.ask(threading.get_ident)
    with pytest.raises(ThreadEndedError):
        thread.submit(asyncio.sleep, 0)


def leave() -> None:
    raise SystemExit(3)


def test_calls_run_in_the_thread(thread: LoopThread) -> None:
    async def where(suffix: str, *, sign: str) -> str:
        await asyncio.sleep(0)
        assert thread.is_here
        return threading.current_thread().name + suffix + sign

    assert thread.call(where, "?", sign="!") == "the loop?!"
    assert thread.ask(lambda: threading.current_thread().name) == "the loop"
    assert thread.is_alive
    assert not thread.is_here


def test_what_a_call_raises_is_raised(thread: LoopThread) -> None:
    async def fails() -> None:
        raise TimeoutError("its own")

    def fails_at_once() -> None:
        raise KeyError("its own")

    with pytest.raises(TimeoutError, match="its own") as caught:
        thread.call(fails)
    assert type(caught.value) is TimeoutError
    with pytest.raises(KeyError):
        thread.ask(fails_at_once)
    assert thread.is_alive


def test_a_call_has_the_context_of_its_caller(thread: LoopThread) -> None:
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place")
    place.set("here")

    async def read() -> str:
        return place.get()

    assert thread.call(read) == "here"
    assert thread.ask(place.get) == "here"


def test_the_thread_does_not_wait_for_itself(thread: LoopThread) -> None:
    async def asks_itself() -> str:
        with pytest.raises(RuntimeError, match="'the loop' would wait for itself"):
            thread.call(asyncio.sleep, 0)
        return thread.ask(lambda: "at once")

    assert thread.call(asks_itself) == "at once"


@pytest.mark.parametrize("end", ["stop", "loop.stop", "SystemExit", "cancelled"])
def test_whatever_ends_it_each_call_has_an_outcome(thread: LoopThread, end: str) -> None:
    told: list[str] = []
    begun = threading.Event()

    async def begins() -> None:
        begun.set()
        await asleep(told)

    waiting = thread.submit(begins)
    assert begun.wait(PATIENCE)
    ends: dict[str, Callable[[], object]] = {
        "stop": thread.stop,
        "loop.stop": lambda: thread.call_soon(thread.loop.stop),
        "SystemExit": lambda: thread.call_soon(leave),
        "cancelled": lambda: thread.ask(lambda: [task.cancel() for task in asyncio.all_tasks(thread.loop)]),
    }
    ends[end]()
    with pytest.raises(ThreadEndedError) as caught:
        thread.result(waiting, PATIENCE)
    assert isinstance(caught.value.__cause__, SystemExit) == (end == "SystemExit")
    assert told == ["ended"]
    if end == "cancelled":
        return
    assert thread.join(PATIENCE)
    assert not thread.is_alive
    refuses(thread)
    thread.call_soon(leave)
    thread.stop()


def test_what_is_not_begun_has_an_outcome_too(thread: LoopThread) -> None:
    """And leaves no coroutine that nobody awaits."""
    release = threading.Event()
    thread.call_soon(release.wait)
    thread.call_soon(thread.loop.stop)
    late = [thread.submit(asyncio.sleep, 0) for _ in range(3)]
    release.set()
    for call in late:
        with pytest.raises(ThreadEndedError):
            thread.result(call, PATIENCE)


def test_calls_from_many_threads_while_it_ends() -> None:
    for _ in range(20):
        thread = LoopThread("the loop", new_loop())
        outcomes: list[Any] = []
        go = threading.Barrier(5)

        def work(thread: LoopThread = thread, outcomes: list[Any] = outcomes, go: Any = go) -> None:
            go.wait()
            while True:
                try:
                    outcomes.append(thread.result(thread.submit(asyncio.sleep, 0, 1), PATIENCE))
                except ThreadEndedError:
                    outcomes.append("ended")
                    return

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        go.wait()
        thread.stop()
        for worker in workers:
            worker.join(PATIENCE)
        assert outcomes.count("ended") == 4
        assert thread.join(PATIENCE)


def test_a_stuck_loop_is_not_waited_for_for_ever(thread: LoopThread) -> None:
    release = threading.Event()
    thread.call_soon(release.wait)
    ran: list[int] = []

    async def runs() -> None:
        ran.append(1)

    call = thread.submit(runs)
    with pytest.raises(ThreadBusyError, match="'the loop' did not answer"):
        thread.result(call, 0.05)
    assert not thread.join(0.05)
    release.set()
    thread.call(asyncio.sleep, 0)
    assert not ran, "a call that was given up before it began runs"


def test_a_call_that_is_given_up_is_cancelled(thread: LoopThread) -> None:
    told: list[str] = []
    call = thread.submit(asleep, told)
    with pytest.raises(ThreadBusyError):
        thread.result(call, 0.05)
    with pytest.raises(ThreadEndedError):
        call.result(PATIENCE)
    assert told == ["ended"]


def test_its_end_does_not_wait_for_what_will_not_end(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproduce.drivers.loop_thread._CANCEL_BOUND", 0.05)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    call = thread.submit(stubborn)
    thread.call(asyncio.sleep, 0)
    thread.stop()
    with pytest.raises(ThreadEndedError):
        thread.result(call, PATIENCE)


def test_calls_leave_nothing_behind(thread: LoopThread) -> None:
    class Given:
        pass

    async def give() -> Given:
        return Given()

    given = weakref.ref(thread.call(give))
    thread.call(asyncio.sleep, 0)
    assert given() is None
    assert not thread._calls


def test_without_uvloop_it_is_asyncios_own_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_loop()
    assert type(loop).__module__.startswith("uvloop")
    loop.close()
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_loop()
    assert type(loop).__module__.startswith("asyncio")
    loop.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_no_such_thread(thread: LoopThread) -> None:
    child = os.fork()
    if not child:
        status = 1
        try:
            assert not thread.is_alive
            refuses(thread)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert thread.call(asyncio.sleep, 0, "goes on") == "goes on"


PROGRAM = """
import asyncio, atexit, threading
from aioproduce.drivers.loop_thread import LoopThread, new_loop

thread = LoopThread("the loop", new_loop())

def close():
    print(thread.call(asyncio.sleep, 0, "answers at exit"))
    thread.stop()
    print(thread.join(30))

if {stuck}:
    thread.call_soon(threading.Event().wait)
else:
    atexit.register(close)
"""


@pytest.mark.parametrize("stuck", [False, True])
def test_the_interpreters_exit(stuck: bool) -> None:
    """It answers while the interpreter exits, and a loop that is stuck does not keep it from exiting."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(stuck=stuck)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert (done.stdout, done.stderr) == ("" if stuck else "answers at exit\nTrue\n", "")
