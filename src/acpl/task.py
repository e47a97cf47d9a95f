"""The two kinds of question a classifier may be asked."""

from enum import StrEnum


class Task(StrEnum):
    """Multi-class: one class an image. Multi-label: any number of findings an image."""

    MULTI_CLASS = "multi-class"
    MULTI_LABEL = "multi-label"
