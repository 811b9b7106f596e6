"""``tessera.spotLabels``: labels that a node may have, and no others, since pods keep off them by an affinity."""

import pytest

from controller.cluster.config.load import parse
from yamlfile import ConfigError

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def spot_labels(labels: str) -> tuple[tuple[str, str], ...]:
    return parse(f"{HEAD}tessera: {{policy: tessera, spotLabels: {labels}}}", "f").engine.extensions.spot_labels


def test_labels_are_taken_as_they_stand() -> None:
    assert spot_labels("{site.example/lifecycle: Ec2Spot, spot: yes-it-is}") == (
        ("site.example/lifecycle", "Ec2Spot"),
        ("spot", "yes-it-is"),
    )


@pytest.mark.parametrize("key", ["bad key!", "a/b/c", "-x", "x" * 64])
def test_what_is_no_key_of_a_label_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=r"f:3: tessera\.spotLabels\..*expected a label key"):
        spot_labels(f"{{{key!r}: x}}")
