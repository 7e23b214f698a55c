"""Fuzzers: whatever bytes come in, nothing but what is meant for wrong bytes happens.

    corpus/TARGET/*  --replayed by every test run---------------+
                     --mutated, the same way each time----------+--> targets.TARGETS[name](bytes)
    atheris          --`make fuzz`: guided by what is covered---+         an exception is a find

A find becomes a file of the corpus, and so a test.
"""
