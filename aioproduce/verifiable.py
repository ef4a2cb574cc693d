"""`python -m aioproduce.verifiable`: Kafka's VerifiableProducer with this producer under it (`cli.verifiable`)."""

from __future__ import annotations

import sys

from aioproduce.cli.verifiable import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
