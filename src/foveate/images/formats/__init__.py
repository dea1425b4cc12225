"""One reader per picture format: the header without the pixels, the file without its metadata."""
