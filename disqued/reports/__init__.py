"""reports.sqlite, which `disqued-spark` writes and the daemon serves and draws: what both have in common.

    layout           its tables and columns, and the marks that tell it from other files
    value_formats    how its values are written for people

Nothing here knows Spark, Twisted or the node.
"""
