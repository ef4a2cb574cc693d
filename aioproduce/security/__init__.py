"""Encryption and login: TLS without I/O, SASL's mechanisms, and the sources of their secrets.

`channel` and `mechanism` define what the core needs of an encrypted channel and of a login; the other modules
implement them. Nothing here opens a connection to a broker. Work that blocks (reading a key file, asking a token
endpoint, computing an expensive hash) is returned to the core as a callable, which a driver runs elsewhere.
"""
