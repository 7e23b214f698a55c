"""Benchmarks: the daemon beside redis-server, on one machine, in one run.

``python -m benchmarks [--quick] [--rounds N] [--only NAME] [--json FILE]`` prints the figures;
``python -m benchmarks.profile addjob|getjob|ackjob`` looks into the hot path, ``python -m benchmarks.work`` counts what
it takes, ``python -m benchmarks.growth`` measures curves, and ``python -m benchmarks.plots`` draws.
With DISQUED_BUILD=compiled in the environment daemons have the core that `make compiled` made.

    __main__    the command line, and the order of the measures
    measure     what every measure is given: rounds, sizes, processors, time that is left
    throughput  commands a second, in turns with a yardstick of the same run
    resources   memory, recovery, latency, idle connections, wake-ups: one node alone
    servers     the processes that are measured
    load        redis-benchmark as the client of both servers;  blast, raw: clients for what it cannot do
    machine     what the figures depend on: processor, versions, commit
    figures     medians, ratios, goals and the report; pure
    pauses      how long the garbage collector holds a node with very many jobs
    profile     the hot path inside one process, without sockets
    work        calls and instructions of that path, counted
    together    nodes of one process that know each other, through sockets in memory
    growth      what becomes of a node when jobs, queues, connections, bodies or nodes grow
    plots       pictures of reports
"""
