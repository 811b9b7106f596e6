"""Paths of marks, and field errors as Kubernetes has them."""

from controller.jobs.framework.kind import Refusal


def label_path(key: str) -> str:
    return f"metadata.labels[{key}]"


def annotation_path(key: str) -> str:
    return f"metadata.annotations[{key}]"


def invalid(field: str, sentence: str) -> Refusal:
    return Refusal(type="Invalid", field=field, sentence=sentence)


def forbidden(field: str, sentence: str) -> Refusal:
    return Refusal(type="Forbidden", field=field, sentence=sentence)


def required(field: str, sentence: str) -> Refusal:
    return Refusal(type="Required", field=field, sentence=sentence)


def too_long(field: str, sentence: str) -> Refusal:
    return Refusal(type="TooLong", field=field, sentence=sentence)
