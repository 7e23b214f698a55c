"""HTTP without routes: what a request is, who sends it, and how it is answered.

heads, framing          the head of a request, and the end of its body: read strictly
inputs, jsontext        query string, form and JSON of an operation
exchange                operations, requests, visitors and replies, as the rest of web/ sees them
auth, tokens, sessions  who a visitor is, and what they may ask for
origins                 hosts that are ours, and requests caused by other sites
answers, bodies         headers of an answer; long bodies in pieces
compression             gzip, and why it gives nothing away
problems, values        errors as problem documents; bytes as JSON
"""
