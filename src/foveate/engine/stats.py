"""What an engine tells of itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineStats:
    """What an engine is doing."""

    waiting: int
    """Requests whose pictures are being read, or that wait for memory."""
    running: int
    """Requests that have memory."""
    free_pages: int
    """Pages that nobody owns."""
    pages: int
    """Pages in all."""
    page_tokens: int
    """Tokens of a page."""
    image_cache_bytes: int
    """Bytes of the features kept."""
    image_cache_hits: int
    """Pictures whose features were there."""
    image_cache_misses: int
    """Pictures that had to be encoded."""
