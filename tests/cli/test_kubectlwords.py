"""Of kubectl's words those are read that say whom they mean."""

from typing import Any

import pytest

from cli.kubectlwords import KubectlWords, read


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a b", {"names": ("a", "b")}),
        ("a -n team", {"names": ("a",), "namespace": "team"}),
        ("-nteam a", {"names": ("a",), "namespace": "team"}),
        ("--namespace=team a", {"names": ("a",), "namespace": "team"}),
        ("a -n", {"names": ("a",), "lacks": "namespace"}),
        ("a -o", {"names": ("a",), "lacks": "-o"}),
        ("-o yaml --grace-period 3 a --wait=false", {"names": ("a",)}),
        ("--context x --kubeconfig=f a", {"names": ("a",), "context": "x", "kubeconfig": "f"}),
        ("--all -A", {"every": True, "everywhere": True}),
        ("--all=false a", {"names": ("a",)}),
        ("-l a=b", {"selector": "a=b"}),
        ("-f q.yaml", {"file": "q.yaml"}),
        ("a --dry-run=server", {"names": ("a",), "keeps": True}),
        ("a --dry-run=none", {"names": ("a",)}),
        ("-h", {"keeps": True}),
        ("a --token x", {"names": ("a",), "elsewhere": "x"}),
    ],
)
def test_names_and_where_they_are(line: str, found: dict[str, Any]) -> None:
    assert read(tuple(line.split())) == KubectlWords(**found)


def test_a_patch_is_one_word() -> None:
    found = read(("cq", "-p", '{"spec": {"stopPolicy": "Hold"}}', "--type", "merge"))
    assert found == KubectlWords(names=("cq",), patch='{"spec": {"stopPolicy": "Hold"}}')
