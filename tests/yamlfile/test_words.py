"""A text that is not YAML is told with line and column, in words for whoever wrote it."""

import pytest
import yaml

from yamlfile.words import not_yaml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:\n\tb: 1", "2: column 1: not valid YAML: found a tab before the text, expected spaces. Indent with spaces"),
        ("a:\n  \tb: 1\n c: 2", "2: column 3: not valid YAML: found a tab before the text"),
        (
            "a:\n    b: 1\n  c: 2",
            '3: column 3: not valid YAML: found "c:", expected a key of the keys that begin in line 1',
        ),
        (
            "a: [1",
            "1: column 6: not valid YAML: found the end of the text, expected a comma, or ] for what begins in line 1",
        ),
        ("a: {b: 1\nc: 2", 'found ":", expected a comma, or } for what begins in line 1, column 4'),
        ("a: 'b", "found the end of the text, expected the closing quote of the text in line 1, column 4. Close it"),
        (
            "a: b: c",
            "1: column 5: not valid YAML: found a colon within a value, expected one key a line, or the value in",
        ),
        ("a: 1\nb\nc: 1", "not valid YAML: found no colon behind the key, expected KEY: VALUE"),
        ("a: @b", '1: column 4: not valid YAML: found "@b" (found character that cannot start any token)'),
        ("a: 1\nb: \x01", "2: column 4: not valid YAML: found the character 0x1, expected text. Take it out"),
    ],
)
def test_the_commonest_mistakes_have_their_words(text: str, said: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        list(yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    assert said in not_yaml(text, caught.value).told("f.yaml")
