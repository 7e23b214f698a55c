"""The codecs: bytes to values and back, without sockets, clocks or state shared between connections.

    requests.py   what clients send: RESP arrays and inline lines, as lists of words
    replies.py    what they get: Python values as RESP2 or RESP3
    jobdump.py    a job as bytes, for messages and stores

Nothing here knows what a command means.
"""
