"""Who may talk, and over what: TLS without I/O, SASL's mechanisms, and where their secrets come from.

`channel` and `mechanism` say what the core needs of an encrypted channel and of a login; the modules beside them
are the ways to have one. Nothing here opens a connection to a broker: bytes go in and come out. What has to wait (a
key file, a token endpoint, a costly hash) is handed to the core as a callable, which a driver runs elsewhere.
"""
