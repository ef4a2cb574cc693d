"""`python -m aioproduce.verifiable`: Kafka's VerifiableProducer, on top of this producer (`cli.verifiable`)."""

from __future__ import annotations

import sys

from aioproduce.cli.verifiable import VerifiableProducer, main

__all__ = ["VerifiableProducer", "main"]

if __name__ == "__main__":
    sys.exit(main())
