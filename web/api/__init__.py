"""The JSON API: operations for programs, each with the commands that it runs.

reads, acts             jobs, queues, node and cluster: what can be read, and what can be done
bulk                    actions on every job that fits a filter
commands_api, fields    any command by its name, and commands as JSON objects
objects                 jobs, queues and settings as JSON objects
access_api              login, logout, log of actions
monitoring, health      metrics, histories, health checks
reports_api             what Spark has computed
openapi, http_reference the OpenAPI document, and the page docs/reference/http.md
"""
