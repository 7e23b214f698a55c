"""The queue itself, as pure state machines.

Nothing here does input or output, reads a clock or draws a random number that it was not given: inputs are plain
calls on `Node`, what follows from them is left in its `Outbox`.
"""
