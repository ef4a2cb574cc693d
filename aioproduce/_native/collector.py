"""Hides from the garbage collector what it need not look at.

The collector looks at all tracked objects in each full pass, and at those that a burst of allocations left in each
other pass. With 10,000 partitions, six objects for each and eight for each open batch made a record a third dearer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproduce._native import _cython_shadow as cython
else:
    try:
        import cython
    except ImportError:
        from aioproduce._native import _cython_shadow as cython


def untrack(leaf: object) -> cython.void:
    """Hide an object of a kind that the collector tracks. It must refer to nothing that can lead back to it.

    Interpreted code has no such function: the object stays tracked.
    """
    if cython.compiled:
        PyObject_GC_UnTrack(leaf)  # type: ignore[name-defined]  # noqa: F821  # of collector.pxd
