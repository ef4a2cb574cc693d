# For mypy, which finds no types in Cython's own module: what stands in for it where Cython is not installed.
from aioproduce._native._cython_shadow import *
