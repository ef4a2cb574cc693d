"""Bytes to messages and back: framing, versions, requests, responses.

Used by the core (connections, sender) and by the embedded broker of `aioproduce.testing`. This package does
no I/O and re-exports nothing: import the module that you need.

| module | contents |
|---|---|
| `api` | the APIs and versions that this client supports, and the versions negotiated per connection |
| `messages` | typed, version-independent values that the core uses |
| `error_codes` | Kafka's error codes by name |
| `framing` | splits a stream of bytes into frames |
| `schema` | kio's generated classes, each imported on first use |
| `primitives`, `reader` | our own decoder, compiled from those classes and safe against hostile bytes |
| `requests` | encodes messages as frames |
| `responses` | decodes frames to messages |
| `preload` | loads the newest versions ahead of time |

1. Decoding any bytes gives a message or a ProtocolError and nothing else. It takes time and memory in
   proportion to the number of bytes.
2. Importing this package does not import kio. A schema is loaded with the first message of its API and
   version, or earlier by `preload.preload()`.
3. kio's own decoder never reads bytes from the network: a hostile array length makes it abort the process.
"""
