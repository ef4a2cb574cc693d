"""The base of every error of aioproduce: an error that can be copied and pickled, whatever it carries.

Called by `errors`, which derives from `PortableError`, and by modules that raise one error several times
(`copy_of`). `multiprocessing`, `concurrent.futures` and Celery move errors between processes by pickle. There a
failing pickle hides the error or breaks the pool.

Invariants:

1. A copy and an unpickled error keep the type, the arguments, the attributes, the notes and the `__cause__` of the
   original. Python's own pickle loses the cause. No copy has a traceback; raising the copy begins one.
2. Nothing that an error carries makes copying, pickling or unpickling fail. A value that cannot be pickled (a
   future, a socket, a producer) stays in its process, and a `LeftBehind` takes its place. A copy shares the value.
3. No secret gets into a pickle. A secret refuses to be pickled, and its text shows nothing. A cause that belongs to
   another library is not pickled, because a request with its headers may hang on it. A `RemoteCause` takes its
   place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, Final, NoReturn, Self, TypeVar, final

E = TypeVar("E", bound=BaseException)

_TEXT_LENGTH: Final = 500
_PLAIN: Final = (str, bytes, int, float, bool, type(None))


class PortableError(Exception):
    """An error that copies and pickles."""

    def __copy__(self) -> Self:
        return copy_of(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # The cause is shared: it may belong to another library and refuse to be copied.
        copied = memo[id(self)] = copy_of(self)

        def own(value: object) -> object:
            return _carried(value, lambda value: deepcopy(value, memo), lambda value: value)

        copied.args = tuple(map(own, self.args))
        vars(copied).update({name: own(value) for name, value in vars(self).items()})
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        kind: Any = type(self)
        _, args, *state_of_its_own = _built_in(kind).__reduce__(self)
        state = {name: _pickled(value) for name, value in (state_of_its_own or [{}])[0].items()}
        if self.__cause__ is not None:
            state["__cause__"] = _pickled_cause(self.__cause__)
        if self.__suppress_context__:
            state["__suppress_context__"] = True
        return _made, (kind, *map(_pickled, args)), state


@final
class RemoteCause(PortableError):
    """The cause of an unpickled error, if the cause's own object stayed in the process that raised it.

    Its text is the cause's type and message, e.g. `httpx.ConnectError: connection refused`.
    """


@final
class LeftBehind:
    """A stand-in for a value, for example a delivery, that stayed in the process that raised the error.

    Its `repr` is the value's. Awaiting it raises RuntimeError.

    Args:
        text: The value's `repr`.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeftBehind) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __await__(self) -> NoReturn:
        raise RuntimeError(
            f"{self} stayed in the process that raised the error: await it there, before the error is pickled"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return LeftBehind, (self._text,)


def copy_of(error: E) -> E:
    """Return a copy of an error without its traceback. Raising the copy begins a new one."""
    kind: Any = type(error)
    args = error.args
    if isinstance(error, OSError) and error.filename is not None:
        args = _built_in(kind).__reduce__(error)[1]  # adds the file's name, which `args` and `__dict__` lack
    copied: E = _made(kind, *args)
    if isinstance(error, ImportError) and isinstance(copied, ImportError):
        copied.name, copied.path = error.name, error.path  # `args` and `__dict__` lack them, too
    attributes = vars(error)
    vars(copied).update(attributes)
    if "__notes__" in attributes:
        copied.__notes__ = list(error.__notes__)
    copied.__cause__ = error.__cause__
    copied.__context__ = error.__context__
    copied.__suppress_context__ = error.__suppress_context__
    return copied


@lru_cache
def _built_in(kind: Any) -> Any:
    """Return the built-in exception that a class derives from, which sets the C structure of its instances."""
    while kind.__module__ != "builtins":
        kind = kind.__base__
    return kind


def _made(kind: Any, *args: object) -> Any:
    """Make an error with these `args`, without its own `__init__`, which may require more arguments."""
    built_in = _built_in(kind)
    made = built_in.__new__(kind, *args)
    built_in.__init__(made, *args)  # sets fields outside `args` and `__dict__`, e.g. `OSError.errno`
    return made


def _carried(value: Any, carry: Callable[[Any], object], instead: Callable[[Any], object]) -> object:
    """Return `carry(value)`; if that fails, `instead(value)`, or in a sequence one of the two per element."""
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    try:
        return carry(value)
    except Exception:  # an object may raise any error to refuse
        return [_whole(each, carry, instead) for each in value] if is_sequence else instead(value)


def _whole(value: Any, carry: Callable[[Any], object], instead: Callable[[Any], object]) -> object:
    try:
        return carry(value)
    except Exception:  # as above
        return instead(value)


def _pickled(value: object) -> object:
    if type(value) in _PLAIN or isinstance(value, PortableError):
        return value
    return _carried(value, _if_it_comes_back, lambda value: LeftBehind(_text_of(value, repr)))


def _if_it_comes_back(value: object) -> object:
    import pickle  # heavy, and only needed here

    pickle.loads(pickle.dumps(value))
    return value


def _pickled_cause(cause: BaseException, before: frozenset[int] = frozenset()) -> BaseException:
    """Return the cause or its stand-in. `before` are the ids of the errors that it is the cause of."""
    if isinstance(cause, PortableError):
        return cause
    kind: Any = type(cause)
    is_built_in = kind is _built_in(kind)
    if is_built_in and not vars(cause) and all(type(each) in _PLAIN for each in cause.args):
        return cause
    name = kind.__qualname__ if is_built_in else f"{kind.__module__}.{kind.__qualname__}"
    remote = RemoteCause(f"{name}: {_text_of(cause, str)}")
    before |= {id(cause)}
    if cause.__cause__ is not None and id(cause.__cause__) not in before:
        remote.__cause__ = _pickled_cause(cause.__cause__, before)
    return remote


def _text_of(value: object, text: Callable[[object], str]) -> str:
    try:
        return text(value)[:_TEXT_LENGTH]
    except Exception as error:  # the value's own code may raise anything
        return f"<{type(value).__qualname__}, whose text raised {type(error).__qualname__}>"
