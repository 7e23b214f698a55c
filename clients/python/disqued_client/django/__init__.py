"""Tasks of Django on disqued: a backend of `django.tasks`, and the worker that runs them.

    INSTALLED_APPS = [..., "disqued_client.django"]
    TASKS = {"default": {"BACKEND": "disqued_client.django.DisquedBackend", "OPTIONS": {"NODES": ["10.0.0.1"]}}}

    backend.py             adds tasks as jobs, and tells what became of them
    records.py             tasks and their results as JSON
    runs.py                runs one task
    management/commands    `manage.py disqued_worker`

Django has had tasks since 6.0; before it, django-tasks has the same interface.  Whichever is there is used.
"""

from .backend import DisquedBackend

__all__ = ["DisquedBackend"]
