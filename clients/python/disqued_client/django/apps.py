"""The application, which brings the command of the worker."""

from django.apps import AppConfig


class DisquedConfig(AppConfig):
    """Has a label of its own: the package is called as Django itself is."""

    name = __name__.removesuffix(".apps")
    label = "disqued"
    verbose_name = "disqued"
