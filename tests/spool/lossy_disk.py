"""A disk in memory that keeps what is not synced apart, and shows what a power cut may leave of it.

What a file system may lose, as this model has it:

1. Of a file, since its last sync: each 4 KiB page is on disk as it was after the sync or after any later write, or
   torn: each of its 512-byte sectors from any of these. The size is that of the sync or any later one. What lies
   between is zeros.
2. Of a directory, since its last sync: any of the changes of its names happened, in any selection, each whole.
3. After a failed sync of a file nothing more reaches the disk of what was written before it, also if a later sync
   succeeds. Names go through a journal: a later sync of the directory writes them, or nothing is written any more.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from aioproduce.spool.disk import Buffer

PAGE = 4096
SECTOR = 512
_ERRORS = {
    "write": (errno.ENOSPC, errno.EIO),
    "allocate": (errno.ENOSPC,),
    "truncate": (errno.EIO,),
    "sync": (errno.EIO,),
    "sync_directory": (errno.EIO,),
    "make_directory": (errno.ENOSPC,),
    "create": (errno.ENOSPC, errno.EIO),
    "rename": (errno.ENOSPC, errno.EIO),
    "unlink": (errno.EIO,),
}


@dataclass(eq=False)
class Inode:
    """A file: what programs see of it, what is safe, and what is neither."""

    content: bytearray = field(default_factory=bytearray)
    safe: dict[int, bytes] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=lambda: [0])
    dirty: dict[int, list[bytes]] = field(default_factory=dict)
    stuck: dict[int, list[bytes]] = field(default_factory=dict)

    def page(self, number: int) -> bytes:
        return bytes(self.content[number * PAGE : (number + 1) * PAGE]).ljust(PAGE, b"\0")

    def touched(self, start: int, stop: int) -> None:
        for number in range(start // PAGE, -(-stop // PAGE)):
            self.dirty.setdefault(number, []).append(self.page(number))

    def resized(self) -> None:
        self.sizes.append(len(self.content))

    def synced(self) -> None:
        for number in self.dirty:
            self.safe[number] = self.page(number)
            self.stuck.pop(number, None)
        self.dirty.clear()
        self.sizes = [len(self.content)]

    def sync_failed(self) -> None:
        for number, versions in self.dirty.items():
            self.stuck.setdefault(number, []).extend(versions)
        self.dirty.clear()

    def unsafe(self) -> dict[int, list[bytes]]:
        """The pages of which more than one content may be found, with all of them."""
        numbers = self.dirty.keys() | self.stuck.keys()
        return {
            number: [
                self.safe.get(number, bytes(PAGE)),
                *self.stuck.get(number, []),
                *self.dirty.get(number, []),
            ]
            for number in sorted(numbers)
        }


Change: TypeAlias = dict[str, "Node | None"]


@dataclass(eq=False)
class Directory:
    """A directory: its names, the safe ones, and the changes in between."""

    names: dict[str, Node] = field(default_factory=dict)
    safe: dict[str, Node] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        self.changes.append(change)
        _apply(self.names, change)


Node: TypeAlias = Inode | Directory


def _apply(names: dict[str, Node], change: Change) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class LossyFile:
    """An open file of a LossyDisk."""

    def __init__(self, disk: LossyDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    @property
    def size(self) -> int:
        return len(self._inode.content)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._inode.content[offset : offset + size])

    def read_cached(self, offset: int, size: int) -> Buffer:
        """Return nothing, a part or everything: by the place, so that a script is the same each time."""
        return self.read(offset, size * (offset % 5) // 4)

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        content = b"".join(buffers)
        fault = self._disk.effect("write")
        if fault:  # some of it was written
            content = content[: self._disk.random.randrange(len(content) + 1)]
        self._put(offset, content)
        _raise(fault)

    def _put(self, offset: int, content: bytes) -> None:
        inode, end = self._inode, offset + len(content)
        if end > len(inode.content):
            inode.content.extend(bytes(end - len(inode.content)))
            inode.resized()
        inode.content[offset:end] = content
        if content:
            inode.touched(offset, end)

    def truncate(self, size: int) -> None:
        _raise(self._disk.effect("truncate"))
        inode, before = self._inode, len(self._inode.content)
        if size < before:
            del inode.content[size:]
            inode.touched(size, before)
        else:
            inode.content.extend(bytes(size - before))
        inode.resized()

    def allocate(self, size: int) -> None:
        _raise(self._disk.effect("allocate"))
        if size > len(self._inode.content):
            self._inode.content.extend(bytes(size - len(self._inode.content)))
            self._inode.resized()

    def sync(self) -> None:
        fault = self._disk.effect("sync")
        if fault:
            self._inode.sync_failed()
            _raise(fault)
        self._inode.synced()

    def close(self) -> None:
        pass


class LossyDisk:
    """A disk that can lose power, and whose effects can fail.

    Args:
        before_effect: Called before each effect: the power may be cut there.
        fault_rate: The share of effects that fail.
        seed: Chooses them, and what a failed write has written.
    """

    def __init__(
        self,
        before_effect: Callable[[], None] = lambda: None,
        fault_rate: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._before_effect = before_effect
        self._fault_rate = fault_rate
        self.random = random.Random(seed)
        self.effects = 0
        self.root = Directory()

    def effect(self, kind: str) -> int:
        """Count an effect; return the errno that it fails with, or 0."""
        self._before_effect()
        self.effects += 1
        if self._fault_rate and self.random.random() < self._fault_rate:
            return self.random.choice(_ERRORS[kind])
        return 0

    def _directory(self, path: str) -> Directory:
        node: Node = self.root
        for name in path.split("/"):
            if name:
                if not isinstance(node, Directory) or name not in node.names:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                node = node.names[name]
        assert isinstance(node, Directory)
        return node

    def names(self, directory: str) -> list[str]:
        return sorted(self._directory(directory).names)

    def make_directory(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        directory = self._directory(parent)
        if name not in directory.names:
            _raise(self.effect("make_directory"))
            directory.change({name: Directory()})

    def create(self, path: str) -> LossyFile:
        parent, _, name = path.rpartition("/")
        directory = self._directory(parent)
        _raise(self.effect("create"))
        existing = directory.names.get(name)
        if isinstance(existing, Inode):
            file = LossyFile(self, existing)
            before = len(existing.content)
            existing.content.clear()
            existing.touched(0, before)
            existing.resized()
            return file
        inode = Inode()
        directory.change({name: inode})
        return LossyFile(self, inode)

    def open(self, path: str) -> LossyFile:
        parent, _, name = path.rpartition("/")
        node = self._directory(parent).names.get(name)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return LossyFile(self, node)

    def size(self, path: str) -> int:
        return self.open(path).size

    def written_at(self, path: str) -> float:
        assert self.size(path) >= 0
        return 0.0

    def rename(self, old: str, new: str) -> None:
        parent, _, name = old.rpartition("/")
        directory = self._directory(parent)
        _raise(self.effect("rename"))
        directory.change({name: None, new.rpartition("/")[2]: directory.names[name]})

    def unlink(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        directory = self._directory(parent)
        if name not in directory.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        _raise(self.effect("unlink"))
        directory.change({name: None})

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        _raise(self.effect("sync_directory"))
        directory.safe = dict(directory.names)
        directory.changes = []

    # -- power cuts ---

    def states(self, most: int, seed: int) -> Iterator[LossyDisk]:
        """Yield disks as a power cut now may leave this one: all, or `most` of them that a seed chooses."""
        choices = list(_choices(self.root))
        total = 1
        for count in choices:
            total *= count
            if total > most:
                break
        if total <= most:
            picks: Iterator[Sequence[int]] = itertools.product(*(range(count) for count in choices))
        else:
            picks = _sampled(choices, most, random.Random(seed))
        for pick in picks:
            disk = LossyDisk()
            disk.root = _survivor(self.root, iter(pick), random.Random(hash(tuple(pick)) ^ seed), {})
            yield disk


def _sampled(choices: Sequence[int], most: int, source: random.Random) -> Iterator[Sequence[int]]:
    yield [0] * len(choices)
    yield [count - 1 for count in choices]
    for _ in range(most - 2):
        # Some cuts leave nearly nothing of what was not synced, others nearly everything.
        bias = source.random()
        yield [
            source.randrange(count) if source.random() < 0.5 else (0 if source.random() < bias else count - 1)
            for count in choices
        ]


def _versions(inode: Inode) -> list[tuple[int, list[bytes]]]:
    return list(inode.unsafe().items())


def _choices(directory: Directory) -> Iterator[int]:
    """Yield how many ways there are for each thing that is not safe; `_survivor()` asks in the same order."""
    yield from (2 for _ in directory.changes)
    for node in _nodes(directory):
        if isinstance(node, Directory):
            yield from _choices(node)
        else:
            yield len(node.sizes)
            # Each version, and torn.
            yield from (len(versions) + 1 for _, versions in _versions(node))


def _nodes(directory: Directory) -> list[Node]:
    """Every node that a name may lead to after a power cut, once."""
    found: dict[int, Node] = {}
    nodes = [*directory.safe.values(), *(node for change in directory.changes for node in change.values())]
    for node in nodes:
        if node is not None:
            found[id(node)] = node
    return list(found.values())


def _survivor(
    directory: Directory, pick: Iterator[int], source: random.Random, made: dict[int, Node]
) -> Directory:
    names = dict(directory.safe)
    for change in directory.changes:
        if next(pick):
            _apply(names, change)
    for node in _nodes(directory):
        made[id(node)] = (
            _survivor(node, pick, source, made)
            if isinstance(node, Directory)
            else _content(node, pick, source)
        )
    kept = {name: made[id(node)] for name, node in names.items()}
    return Directory(dict(kept), dict(kept))


def _content(inode: Inode, pick: Iterator[int], source: random.Random) -> Inode:
    size = inode.sizes[next(pick)]
    pages = dict(inode.safe)
    for number, versions in _versions(inode):
        choice = next(pick)
        if choice < len(versions):
            pages[number] = versions[choice]
        else:
            pages[number] = b"".join(
                source.choice(versions)[at : at + SECTOR] for at in range(0, PAGE, SECTOR)
            )
    content = bytearray(size)
    for number, page in pages.items():
        start = number * PAGE
        if start < size:
            content[start : start + PAGE] = page[: size - start]
    return Inode(content, {n: page for n, page in pages.items() if n * PAGE < size}, [size])


def _raise(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))
