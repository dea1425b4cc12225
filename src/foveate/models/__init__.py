"""Models that Foveate runs."""
