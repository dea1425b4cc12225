"""Requests in, tokens out: caches, sampling, text."""
