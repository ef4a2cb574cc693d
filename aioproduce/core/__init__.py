"""The sans-IO core: facts go in, effects come out, `now` is an argument.

Called by the drivers and by the simulator, both of which own the loop, the sockets and the clock. Invariants:

1. Nothing here imports a loop, a clock, a socket or a random source; import-linter checks that.
2. Every instant is in monotonic seconds, passed in by the caller; every duration is in seconds.
3. Nothing here is thread-safe: one event loop owns one core.
"""
