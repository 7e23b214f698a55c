"""Thin Twisted adapters: sockets, timers and files around the core.

    process      the daemon: start and stop, stores, settings, logs, signals; makes all the others
       |
    clients | cluster     connections of clients | links between nodes; neither knows the other
       |
    loop         the event loop, transports, listening sockets, TLS, the budget of buffers

A room imports only rooms below it (the contract "The rooms of net" in setup.cfg), and no two modules import each
other.  Where an object calls back into a room above, it takes a protocol or a callable when it is made: a
`ClientConnection` its `ClientHome`, a link its `Hub`, a command its `Host` (`commands/host.py`), `Rounds`
its `Gatherer`.
`process/daemon.py` shows in which order the parts are made.
"""
