"""The admin side of a node: HTTP API, pages and metrics, which reach the node through a `Gateway` like any client.

    server --> channel --> app --> api, pages --> routes --> site --> views --> gateway
       |          |         |          |            |          |        |
       +----------+---------+----------+-- http: what a request is, and what answers it

    server      ports and their life            channel     Twisted's HTTP with limits
    app         a request finds its route       api/        operations of the JSON API, metrics, health
    pages/      HTML, its templates and files   routes      table of operations and their coroutines
    site        what every route shares         views/      rows, histories and metrics read from the node
    gateway     the daemon, as seen from here   http/       parsing, bodies, answers, tokens, sessions, problems

`masking` and `audit` say what the log of actions holds, `turns` cuts long work into slices, and `http_reference`
writes docs/reference/http.md.
"""
