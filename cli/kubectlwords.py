"""Reads kubectl's own words for the objects that they mean: names, and where these are. kubectl reads the rest.
Pure.
"""

from typing import Final

from msgspec import Struct

_MEANT: Final = {
    "-n": "namespace",
    "--namespace": "namespace",
    "--context": "context",
    "--kubeconfig": "kubeconfig",
    "-l": "selector",
    "--selector": "selector",
    "--field-selector": "field_selector",
    "-f": "file",
    "--filename": "file",
    "-k": "file",
    "--kustomize": "file",
    "-p": "patch",
    "--patch": "patch",
    "--patch-file": "file",
    **dict.fromkeys(("--cluster", "--user", "-s", "--server", "--token"), "elsewhere"),
}
_OTHERS: Final = frozenset(
    {"-o", "--output", "--type", "--grace-period", "--timeout", "--as", "--as-group", "--as-uid", "--request-timeout"}
    | {"--raw", "-L", "--label-columns", "--sort-by", "--chunk-size", "--template", "--subresource", "--field-manager"}
    | {"--cache-dir", "--certificate-authority", "--client-certificate", "--client-key", "--tls-server-name"}
)
"""The options whose value is the next word and does not name objects."""


class KubectlWords(Struct, frozen=True, kw_only=True):
    """The words of one kubectl command. ``lacks``: the option whose value is still to come. ``every``: --all.
    ``everywhere``: in all namespaces.

    ``elsewhere``: a cluster or a user is named past the kubeconfig's context. ``keeps``: a dry run, or help.
    """

    names: tuple[str, ...] = ()
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    selector: str | None = None
    field_selector: str | None = None
    file: str | None = None
    patch: str | None = None
    elsewhere: str | None = None
    every: bool = False
    everywhere: bool = False
    keeps: bool = False
    lacks: str = ""


def read(words: tuple[str, ...]) -> KubectlWords:
    names: list[str] = []
    values: dict[str, str] = {}
    flags: set[str] = set()
    rest, lacks = list(words), ""
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            names.append(word)
            continue
        if not word.startswith("--") and len(word) > 2 and word[:2] in (*_MEANT, *_OTHERS):  # noqa: PLR2004 - -nNAME
            option, equals, value = word[:2], "=", word[2:].removeprefix("=")
        if option in _MEANT or option in _OTHERS:
            if not equals and not rest:
                lacks = _MEANT.get(option, option)
                continue
            values[_MEANT.get(option, "")] = value if equals else rest.pop(0)
        elif value != "false":
            flags.add(word if option == "--dry-run" else option)
    values.pop("", None)
    return KubectlWords(
        names=tuple(names),
        every="--all" in flags,
        everywhere=bool(flags & {"-A", "--all-namespaces"}),
        keeps=any(each.startswith("--dry-run") and each != "--dry-run=none" for each in flags)
        or bool(flags & {"-h", "--help"}),
        lacks=lacks,
        **values,
    )
