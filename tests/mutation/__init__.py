"""Mutation testing: plant one small mistake at a time and see whether a test notices it.

`operators` finds the mutants of a source file, `choosing` draws a sample of them, `reach` knows which tests execute
which line, `nursery` is a pytest process that forks a child for each mutant, and `__main__` is `make mutants`.
"""
