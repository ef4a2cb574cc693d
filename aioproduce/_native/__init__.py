"""The compiled hot path: record batches, deliveries, key hashing; its README says what is where.

Every module here is one `.py` that Cython compiles and that runs interpreted all the same.
"""
