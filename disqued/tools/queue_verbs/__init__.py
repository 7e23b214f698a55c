"""Verbs of a queue: what is in it, and what operators do with it; each is a command or two of the node.

queue_list  a table of all queues of the cluster
consumers   QCONSUMERS
peek, dead  jobs that wait, and jobs that are dead
pause       `pause` and `resume`
requeue     ENQUEUE; of jobs that `selection` has found REDRIVE, too
purge       QPURGE, or CANCEL of jobs that `selection` has found
cancel      CANCEL
redrive     REDRIVE
policy      QPOLICY
slots       SLOTS
"""
