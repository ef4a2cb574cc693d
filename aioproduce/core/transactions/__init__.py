"""Transactions: states, requests and the meaning of answers; sans-IO like all of the core."""
