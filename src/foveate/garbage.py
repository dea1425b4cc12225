"""Python's garbage collector, put off while much is made that stays."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_put_off() -> Iterator[None]:
    """Collect no cycles in the block: imports and the capture of graphs make a million objects and hardly any garbage,
    and to look for it again and again takes a fifth of their time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
