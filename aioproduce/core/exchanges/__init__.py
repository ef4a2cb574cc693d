"""Requests to brokers, one module for each kind; `exchange` is their common interface."""
