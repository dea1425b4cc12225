"""One module a command; what they print is for people, `--json` for programs."""
