"""A short self-test of an installed aioproduce: `python smoke.py compiled|interpreted|any`.

Run on every wheel by cibuildwheel (`pyproject.toml`) and on what pip installs by `test_pip_install.py`. It stands
alone: nothing but the installed package and its own requirements is imported, and warnings are errors.

1. What is installed is imported, never the checkout that this file lies in.
2. Records of every compression go to the embedded cluster, are acknowledged, and are read back in order.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from pathlib import Path
from typing import Any

# Python puts a script's folder first; the checkout itself must not be there either.
_CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() not in (_CHECKOUT, Path(__file__).parent)]
warnings.simplefilter("error")

import aioproduce  # noqa: E402  # the path comes first
from aioproduce.testing import FakeCluster  # noqa: E402

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 100


async def send_and_read_back() -> None:
    """Each codec's records, through real sockets on loopback."""
    async with FakeCluster(brokers=2, topics=dict.fromkeys(CODECS, 1)) as cluster:
        codec: Any
        for codec in CODECS:
            values = [b"%s %d" % (codec.encode(), number) for number in range(RECORDS)]
            async with aioproduce.Producer(cluster.bootstrap_servers, compression_type=codec) as producer:
                deliveries = [await producer.send(codec, value, key=b"key") for value in values]
                offsets = [(await delivery).offset for delivery in deliveries]
            if offsets != list(range(RECORDS)):
                raise SystemExit(f"{codec}: offsets {offsets}")
            if [record.value for record in cluster.records(codec)] != values:
                raise SystemExit(f"{codec}: other records were read than sent")


def main(build: str) -> None:
    """Check the build, then that it works."""
    info = aioproduce.build_info()
    print(info)
    where = Path(aioproduce.__file__).resolve()
    if where.is_relative_to(_CHECKOUT / "aioproduce"):
        raise SystemExit(f"{where} is the checkout, not an installation")
    if build != "any" and info.compiled is not (build == "compiled"):
        raise SystemExit(f"wanted {build}; interpreted: {', '.join(info.interpreted_modules) or 'nothing'}")
    asyncio.run(send_and_read_back())
    print(f"{RECORDS} records with each of {', '.join(CODECS)}: sent, acknowledged, read back")


if __name__ == "__main__":
    main(*sys.argv[1:])
