"""The admin page: HTML that is complete without a script; the script adds what moves.

    /   /queues   /queues/<queue>   /jobs/<id>   /workers   /workers/<worker>   /reports   /actions   /settings   /login

    overview, queue_pages, job_pages, worker_pages, reports_page, settings_pages     the pages
    updates                 parts of a page, sent again while somebody looks
    problem_pages           errors, as a page or as a document
    actions, lines          what can be done from a page; the same as lines of redis-cli and curl
    render, templates/      Jinja's environment, and what every page is given
    assets, static/         style, script and icons

A page is filled by a coroutine, which looks at the node for a bounded time in each turn of the loop.
"""
