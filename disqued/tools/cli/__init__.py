"""`disqued cli`: a terminal to a node, used like redis-cli.

command        the options
batch          one command, or those of a file or a pipe          interactive    the prompt
link           the connection        replies    RESP              documents      COMMAND DOCS: completion, hints, help
command_lines  lines into words      printing   replies into lines  history      what was typed, without passwords
"""
