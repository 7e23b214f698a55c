"""What API, pages and metrics read from a node through its `NodeView`, without HTML or JSON.

everywhere, node_labels     what all nodes answer to a command that only looks, and which of them do not
queue_views, job_views, worker_views, group_views   rows of tables, found, sorted and cut into pages
rendering               names, spans, sizes and moments as text
live                    listeners of pages, and when they hear
history, rings, pulse   the last hour in seconds and the last week in minutes
metrics, metric_families    what Prometheus scrapes
reports_file            reports.sqlite, read in a thread
"""
