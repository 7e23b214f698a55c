"""The commands: one small class each, and the table that everything else is derived from."""
