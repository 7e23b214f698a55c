"""What `manage.py` finds of the shop."""
