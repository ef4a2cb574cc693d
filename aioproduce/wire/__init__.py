"""Bytes to messages and back: framing, versions, requests, responses. Sans-IO.

Called by the core (connections, sender) and by the embedded broker of `aioproduce.testing`. Nothing is
re-exported here: import the module that is meant.

| module | what lives there |
|---|---|
| `api` | the APIs that we speak, in which versions, and what one connection negotiated |
| `messages` | typed, version-independent values: what the core sees |
| `error_codes` | Kafka's error codes by name |
| `framing` | a stream of bytes cut into frames |
| `schema` | kio's generated classes, imported one by one when first needed |
| `primitives`, `reader` | our own decoder, compiled from those classes, safe against any bytes |
| `requests` | messages to frames |
| `responses` | frames to messages |
| `preload` | the newest versions loaded ahead of time |

1. Any bytes give a message or a ProtocolError, never anything else, and never more memory or time than in
   proportion to the bytes.
2. Importing this package does not import kio: a schema is loaded when the first message of its API and
   version is met (`preload.preload()` does it ahead of time).
3. kio's own decoder never sees bytes from the network: a hostile array length aborts the process there.
"""
