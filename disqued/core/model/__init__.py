"""What a node knows, and what its parts are made of: data that keeps itself consistent.

No module here knows a machine; `State` holds what all of them share.
"""
