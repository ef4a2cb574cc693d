"""Transactions: their states, their requests, and what the answers mean; sans-IO, as all of the core."""
