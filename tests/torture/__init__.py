"""Campaigns against real processes that take too long for `make test`: `python -m tests.torture --help`."""
