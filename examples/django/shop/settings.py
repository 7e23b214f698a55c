"""Settings: what tasks need, and nothing else."""

import os

SECRET_KEY = "for the example alone"  # noqa: S105
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["disqued_client.django", "shop"]
TASKS = {
    "default": {
        "BACKEND": "disqued_client.django.DisquedBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"NODES": os.environ.get("NODES", "127.0.0.1:7711").split(",")},
    }
}
