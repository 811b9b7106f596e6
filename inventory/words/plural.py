"""Numbers with their words: one pod, not "1 pods"."""


def plural(number: object, one: str, many: str = "") -> str:
    """``1 pod``, ``2 pods``; ``many`` where it is not the word with an s, as in ``1 pod is``, ``2 pods are``."""
    return f"{number} {one if str(number) == '1' else many or f'{one}s'}"
