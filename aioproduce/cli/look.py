"""The commands that show a producer at work: `aioproduce dashboard` (in the browser) and `top` (in the terminal).

Called by `app`, which adds them to its commands. They show a demo, or a load on a real cluster; `top` also shows
any dashboard by its address. A service shows its own producers by mounting the dashboard
(docs/how-to/dashboard.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from aioproduce.cli.display import complain, hushed_warnings, write_output
from aioproduce.cli.exit_codes import EPILOG, ExitCode, exit_code_of
from aioproduce.cli.options import Bootstrap, ConfigFile, Overrides, failure
from aioproduce.cli.settings import build_config
from aioproduce.cli.signals import ended_by_signal
from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError, ListenError, ProducerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproduce.dashboard import DashboardServer
    from aioproduce.producer.producer import Producer

_DEFAULT_PORT: Final = 8089

Demo = Annotated[bool, typer.Option("--demo", help="Show a cluster in memory, with a load and some faults.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="NAME", help="Send a load to this topic of --bootstrap-server; repeatable."
    ),
]
LoadRate = Annotated[
    float, typer.Option("--rate", metavar="N", min=0.1, max=1e6, help="The load's records per second.")
]
RecordSize = Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes of each of its records.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="A file with the dashboard's token, which must not be on a command line."
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Add `dashboard` and `top`."""
    app.command(epilog=EPILOG)(dashboard)
    app.command(epilog=EPILOG)(top)


def _source(
    is_demo: bool,
    topics: list[str] | None,
    config: dict[str, Any],
    rate: float,
    size: int,
) -> contextlib.AbstractAsyncContextManager[Producer[Any, Any]]:
    """Return the producer to show, which sends while its context is open.

    Raises:
        ConfigError: if neither or both are given, or the cluster's address is missing.
    """
    from aioproduce.cli.load import demo, load_on

    if is_demo == bool(topics):
        raise ConfigError(
            "say what to show: --demo, or --bootstrap-server and --topic for a load on a real cluster. A service "
            "shows its own producers by mounting the dashboard (docs/how-to/dashboard.md)"
        )
    if is_demo:
        return demo(rate, size, complain)
    built = build_config(**config, options={}, client_id="aioproduce-load")
    return load_on(built, topics or [], rate, size, complain)


def dashboard(
    is_demo: Demo = False,
    bootstrap: Bootstrap = None,
    topics: Topics = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    rate: LoadRate = 1000.0,
    record_size: RecordSize = 200,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")
    ] = _DEFAULT_PORT,
    token_file: TokenFile = None,
    allow_anonymous: Annotated[
        bool,
        typer.Option("--allow-anonymous", help="Show it without a token to everybody who can reach --host."),
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Use TLS: a PEM file with the certificate, and with its key unless --key has it."),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="A PEM file with the certificate's key.")] = None,
) -> None:
    """Show a producer at work in the browser, until Ctrl-C: a demo, or a load on a real cluster.

    A service shows its own producers by mounting the dashboard: see docs/how-to/dashboard.md.
    """
    config = {"bootstrap": bootstrap, "file": config_file, "overrides": overrides or []}
    try:
        source = _source(is_demo, topics, config, rate, record_size)
        with hushed_warnings() if is_demo else contextlib.nullcontext():
            served = partial(
                _serve,
                host=host,
                port=port,
                token=_token(token_file),
                allow_anonymous=allow_anonymous,
                certificate=certificate,
                key=key,
            )
            asyncio.run(_dashboard(source, served))
    except ListenError as error:
        raise failure(f"{error}; for example --port 0") from None
    except ProducerError as error:
        raise failure(error, exit_code_of(error)) from None
    raise typer.Exit(ExitCode.DONE)


def _token(path: Path | None) -> Secret | None:
    """Return the file's content without white space around it.

    Raises:
        ConfigError: if it cannot be read.
    """
    try:
        return None if path is None else Secret(path.read_text().strip())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
    raise ConfigError(f"--token-file {path} cannot be read: {why}")


def _serve(
    producer: Producer[Any, Any], **settings: Any
) -> contextlib.AbstractAsyncContextManager[DashboardServer]:
    from aioproduce.dashboard import serve

    return serve(producer, **settings)


async def _dashboard(
    source: contextlib.AbstractAsyncContextManager[Producer[Any, Any]],
    served: Callable[[Producer[Any, Any]], contextlib.AbstractAsyncContextManager[DashboardServer]],
) -> None:
    ended = ended_by_signal()
    async with source as producer, served(producer) as server:
        write_output(f"{server.url}\nCtrl-C ends it. In a terminal: aioproduce top {server.url}\n")
        await ended.wait()


def top(
    address: Annotated[
        str | None,
        typer.Argument(
            help="The address of a service's dashboard: http://host:port/path/.", show_default=False
        ),
    ] = None,
    is_demo: Demo = False,
    bootstrap: Bootstrap = None,
    topics: Topics = None,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    rate: LoadRate = 1000.0,
    record_size: RecordSize = 200,
    client_id: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The producer to show, of several.", show_default=False),
    ] = None,
    is_once: Annotated[bool, typer.Option("--once", help="Show one picture and exit.")] = False,
    token_file: TokenFile = None,
) -> None:
    """Show a producer at work in the terminal, until Ctrl-C: a service's, a demo, or a load on a real cluster."""
    from aioproduce.cli.top import AddressError, watch

    console = Console()
    config = {"bootstrap": bootstrap, "file": config_file, "overrides": overrides or []}
    try:
        if not is_once and not console.is_terminal:
            raise ConfigError("top needs a terminal to draw on; --once shows one picture anywhere")
        if address is None:
            source = _source(is_demo, topics, config, rate, record_size)
            with hushed_warnings():
                asyncio.run(_top(source, client_id, is_once=is_once, console=console))
        elif is_demo or topics:
            raise ConfigError("give the address of a dashboard, or --demo, or --topic: not two of them")
        else:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)
            watch(address, client_id, is_once=is_once, console=console, token=_token(token_file))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.DONE) from None
    except (ConfigError, AddressError) as error:
        raise failure(error) from None
    except (ProducerError, OSError) as error:
        where = f"nothing answers at {address}: " if address else ""
        reason = getattr(error, "reason", None) or error
        raise failure(f"{where}{reason}", exit_code_of(error)) from None
    raise typer.Exit(ExitCode.DONE)


async def _top(
    source: contextlib.AbstractAsyncContextManager[Producer[Any, Any]],
    client_id: str | None,
    *,
    is_once: bool,
    console: Console,
) -> None:
    from aioproduce.cli.top import HISTORY, Screen, showing
    from aioproduce.dashboard import Feed

    ended = ended_by_signal()
    async with source as producer:
        feed = Feed([producer], history=HISTORY)
        screen = Screen(console, client_id, "this process")
        ending = asyncio.ensure_future(ended.wait())
        with showing(screen, is_once=is_once, console=console) as draw:
            number = 0
            while not ending.done() and not (is_once and screen.sample_count >= 2):
                taking = asyncio.ensure_future(feed.next_after(number))
                await asyncio.wait([ending, taking], return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    taking.cancel()
                    break
                for sample in taking.result():
                    number = sample.number
                    screen.take(sample.content)
                draw()
        ending.cancel()
