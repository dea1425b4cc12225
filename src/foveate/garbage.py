"""Python's garbage collector, put off while much is made that stays."""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_blocks = 0
_was_enabled = False


@contextmanager
def collection_put_off() -> Iterator[None]:
    """Collect no cycles in the block: imports and the capture of graphs make a million objects and hardly any garbage,
    and to look for it again and again takes a fifth of their time.

    Blocks may lie in each other and run in several threads; the last to end leaves the collection as the first found
    it. It is the whole process's, so others who switch it meanwhile are not heard.
    """
    global _blocks, _was_enabled
    with _lock:
        if not _blocks:
            _was_enabled = gc.isenabled()
            gc.disable()
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks and _was_enabled:
                gc.enable()


def _after_fork() -> None:
    # The threads that were in a block are not in the child, and would never leave it there.
    global _blocks, _lock
    _lock = threading.Lock()
    if _blocks and _was_enabled:
        gc.enable()
    _blocks = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
