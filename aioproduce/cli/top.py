"""`aioproduce top`: the dashboard's samples in the terminal.

Called by `look`. Samples come from the event stream of a service's dashboard, read by a thread, or from a feed in
this process.

Invariants:

1. A lost stream is opened again once a second, for ever, and the screen shows how long it has been lost. An address
   that is no dashboard ends the command at once, with the reason. So does a lost stream with `--once`.
2. The terminal is drawn at most ten times a second, however many samples arrive.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, final

from rich.console import Console
from rich.live import Live

from aioproduce.cli.top_view import picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioproduce.config.secret import Secret

HISTORY: Final = 300
_SILENCE_SECONDS: Final = 15.0
_AGAIN_SECONDS: Final = 1.0
_DRAW_SECONDS: Final = 0.1
_LONGEST_LINE: Final = 1 << 20


class AddressError(Exception):
    """There is no dashboard at the address, or it has no such producer."""


@final
@dataclass(frozen=True, slots=True)
class Lost:
    """The stream ended, or could not be opened.

    Attributes:
        reason: The reason.
        is_end: Whether it ended normally, as every stream does after some time.
    """

    reason: str
    is_end: bool = False


@final
@dataclass(slots=True, eq=False, repr=False)
class Screen:
    """The screen and its samples.

    Args:
        console: The terminal.
        client_id: The client id of the producer to show; `None` for the first.
        source: The origin of the samples, for the header.
    """

    _console: Console
    _client_id: str | None
    _source: str
    _samples: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=HISTORY))
    _lost_at: float | None = None

    @property
    def sample_count(self) -> int:
        """The number of samples."""
        return len(self._samples)

    def take(self, content: dict[str, Any]) -> None:
        """Add a sample.

        Raises:
            AddressError: if there is no producer with that client id.
        """
        self._samples.append(content)
        self._lost_at = None
        self._chosen()

    def lose(self, now: float) -> None:
        """Mark the stream as lost."""
        if self._lost_at is None:
            self._lost_at = now

    def restart(self) -> None:
        """Delete the samples: the next ones are of another feed."""
        self._samples.clear()

    def draw(self, now: float) -> Any:
        """Return the screen in the size of the terminal."""
        is_lost = self._lost_at is not None
        status = self._source
        if self._lost_at is not None:
            status = f"LOST for {max(now - self._lost_at, 0):.0f} s, trying again: {self._source}"
        width, height = self._console.size
        return picture(
            self._samples, chosen=self._chosen(), width=width, height=height, status=status, is_lost=is_lost
        )

    def _chosen(self) -> int:
        if self._client_id is None or not self._samples:
            return 0
        names: Sequence[str] = [producer["client_id"] for producer in self._samples[-1]["producers"]]
        if self._client_id not in names:
            raise AddressError(
                f"no producer has the client id {self._client_id!r}: there are {', '.join(names)}"
            )
        return names.index(self._client_id)


@final
class EventReader(threading.Thread):
    """A thread that reads a dashboard's event stream, and opens it again after each end.

    Args:
        address: The address of the page.
        came: The queue for `("begin", run)`, `("sample", content)` and `Lost`.
        token: The dashboard's token, if it has one.
    """

    def __init__(
        self, address: str, came: queue.SimpleQueue[tuple[str, Any] | Lost], token: Secret | None = None
    ) -> None:
        super().__init__(name="aioproduce top", daemon=True)
        self._address = address.rstrip("/") + "/events"
        self._came = came
        self._token = token
        self._last_id = ""

    def run(self) -> None:
        """Read until the process ends."""
        while True:
            try:
                with self.open() as answer:
                    self._read(answer)
                self._came.put(Lost("the stream ended", is_end=True))
            except (OSError, http.client.HTTPException, AddressError, ValueError) as error:
                self._came.put(Lost(str(error) or type(error).__name__))
            time.sleep(_AGAIN_SECONDS)

    @contextlib.contextmanager
    def open(self) -> Iterator[http.client.HTTPResponse]:
        """Open the stream.

        Raises:
            AddressError: if it is no dashboard's.
            OSError: if nothing answers.
        """
        headers = {"Accept": "text/event-stream"} | (
            {"Last-Event-ID": self._last_id} if self._last_id else {}
        )
        try:
            if not self._address.lower().startswith(("http://", "https://")):
                raise ValueError("it begins with neither http:// nor https://")
            request = urllib.request.Request(self._address, headers=headers)
            if self._token is not None:
                # A redirect must not pass the token on.
                request.add_unredirected_header("Authorization", f"Bearer {self._token.reveal()}")
            answer = urllib.request.urlopen(request, timeout=_SILENCE_SECONDS)
        except (ValueError, http.client.InvalidURL) as error:
            raise AddressError(
                f"{self._address.removesuffix('events')} is no address: {error}; give e.g. http://localhost:8089/"
            ) from error
        except urllib.error.HTTPError as error:
            reason = f"{error.code} {error.reason}"
            error.close()
            what = (
                "it accepts no more viewers now (max_streams), or is ending"
                if error.code == HTTPStatus.SERVICE_UNAVAILABLE
                else "it requires a token: --token-file names a file with it"
                if error.code == HTTPStatus.UNAUTHORIZED
                else "is that where the dashboard is mounted?"
            )
            raise AddressError(f"{self._address} answers {reason}: {what}") from error
        except http.client.HTTPException as error:
            # A connection that is closed without an answer is an OSError, too, and treated as no answer.
            if isinstance(error, OSError):
                raise
            raise AddressError(
                f"{self._address} answers, but not by HTTP ({type(error).__name__}): is the port the dashboard's?"
            ) from error
        with answer:
            kind = answer.headers.get_content_type()
            if kind != "text/event-stream":
                raise AddressError(
                    f"{self._address} answers with {kind}: is that where the dashboard is mounted?"
                )
            yield answer

    def _read(self, answer: http.client.HTTPResponse) -> None:
        event: dict[str, str] = {}
        while line := answer.readline(_LONGEST_LINE):
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            if name:
                event[name] = value
                continue
            if event.get("event") == "begin":
                self._came.put(("begin", json.loads(event["data"])["run"]))
            elif "data" in event:
                self._last_id = event.get("id", "")
                self._came.put(("sample", json.loads(event["data"])))
            event = {}


def watch(
    address: str, client_id: str | None, *, is_once: bool, console: Console, token: Secret | None = None
) -> None:
    """Show a running service's dashboard until Ctrl-C, or once.

    Raises:
        AddressError: if there is no dashboard at that address, or it has no such producer.
        OSError: if nothing answers there, or with `is_once` if the stream is lost.
    """
    came: queue.SimpleQueue[tuple[str, Any] | Lost] = queue.SimpleQueue()
    reader = EventReader(address, came, token)
    with reader.open():
        pass  # a wrong address must be an error, not an empty screen
    reader.start()
    screen = Screen(console, client_id, address)
    run = ""
    with showing(screen, is_once=is_once, console=console) as draw:
        while True:
            with contextlib.suppress(queue.Empty):
                what = came.get(timeout=1.0)
                while True:
                    if isinstance(what, Lost):
                        if what.is_end:
                            pass  # the reader opens the next stream; only a failure of that is a loss
                        elif is_once:
                            raise ConnectionError(what.reason)
                        else:
                            screen.lose(time.monotonic())
                    elif what[0] == "sample":
                        screen.take(what[1])
                    elif what[1] != run:
                        run = what[1]
                        screen.restart()
                    what = came.get_nowait()
            if is_once and screen.sample_count >= 2:
                return
            draw()
            time.sleep(_DRAW_SECONDS)


@contextlib.contextmanager
def showing(screen: Screen, *, is_once: bool, console: Console) -> Iterator[Any]:
    """Show this screen on the terminal, and yield the function that draws it again.

    With `is_once` the screen is drawn only at the end, as plain output.
    """
    if is_once:
        yield lambda: None
        console.print(screen.draw(time.monotonic()), end="\n")
        return
    with Live(screen.draw(time.monotonic()), console=console, screen=True, auto_refresh=False) as live:
        yield lambda: live.update(screen.draw(time.monotonic()), refresh=True)
