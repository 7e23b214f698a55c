"""`disqued cli`: a terminal to a node, in the place of redis-cli.

command        the options
batch          one command, or those of a file or a pipe          interactive    the prompt
link           the connection        replies    RESP              documents      COMMAND DOCS: completion, hints, help
tokens         lines into words      printing   replies into lines  history      what was typed, without passwords
"""
