"""TLS: contexts from files, certificates that are read again while the daemon runs, endpoint strings with TLS.

    context     certificates, keys, authorities; who has to show a certificate
    endpoint    ssl: endpoint strings of Twisted, with caCerts and clientAuth

What connects with it is in `disqued.net`: `certificates` (the certificates of a daemon), `tls` (the transport).
"""
