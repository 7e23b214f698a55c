"""Every module that enters commands into the table; once this one is imported, the table is complete."""

from disqued.commands import cluster, connection, introspection, jobs, queues, server

MODULES = (jobs, queues, connection, server, cluster, introspection)
