"""Every module that enters commands into the table; once this one is imported, the table is complete."""

from disqued.commands import cluster, connection, introspection, jobs, queues, server, subscriptions, tasks, workers

MODULES = (jobs, queues, workers, tasks, subscriptions, connection, server, cluster, introspection)
