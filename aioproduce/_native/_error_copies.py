"""Copies of errors, for `delivery.py`: only failed records come here, so nothing here is compiled."""

from __future__ import annotations


def copy_of(error: BaseException) -> BaseException:
    """The same error without its traceback, which is for whoever raises the copy to begin."""
    kind = type(error)
    copied = kind.__new__(kind)  # its `__init__` may want more than `args`
    copied.args = error.args
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    copied.__context__ = error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied
