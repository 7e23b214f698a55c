"""A shop whose receipts are tasks."""
