"""The tools of the console script: what works on a store while no node, or another process, has it."""
