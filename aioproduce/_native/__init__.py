"""The compiled hot path: record batches, deliveries, key hashing; its README describes each module.

Each module is one `.py` that Cython compiles, and that also runs interpreted.
"""
