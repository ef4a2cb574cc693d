"""The documents are true: links, blocks of code, commands, figures.

`blocks` finds every block of README and docs and what its marker says of it; `running` runs one page's blocks. The
site itself is built by `make docs`, where each warning is an error.
"""
