"""The work of the processes of `test_errors_between_processes`. A spawned process imports nothing else of ours."""

from __future__ import annotations

from typing import NoReturn


def raises(error: BaseException, cause: BaseException | None) -> NoReturn:
    """Raise an error that came by pickle, so that it goes back by pickle."""
    raise error from cause


def returns(error: BaseException) -> BaseException:
    """Give the error back as a value, and not raised."""
    return error


def makes_partial_send() -> NoReturn:
    """Raise an error that holds a future of this process."""
    import asyncio

    from aioproduce.errors import PartialSendError

    async def fail() -> NoReturn:
        future = asyncio.get_running_loop().create_future()
        raise PartialSendError("record 1 was not accepted", deliveries=[future], index=1)

    asyncio.run(fail())
    raise AssertionError("it raises")
