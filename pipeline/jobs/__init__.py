"""What `disqued-spark` computes: pure functions from tables to tables, one module for each job.

None of them reads or writes anything, so that each is tested on rows made by hand, and used in a notebook as it is.
"""
