"""Every module that enters commands into the table; once this one is imported, the table is complete."""

from disqued.commands import (
    acl,
    clients,
    cluster,
    connection,
    groups,
    introspection,
    jobs,
    limits,
    lists,
    okq,
    queue_consumers,
    queues,
    scans,
    schedules,
    server,
    slots,
    streams,
    subscriptions,
    tasks,
    workers,
)

MODULES = (
    jobs, queues, queue_consumers, scans, limits, slots, schedules, lists, okq, streams, groups, workers, tasks,
    subscriptions, connection, clients, server, acl, cluster, introspection,
)  # fmt: skip
