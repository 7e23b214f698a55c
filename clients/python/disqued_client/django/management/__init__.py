"""What `manage.py` finds of the application."""
