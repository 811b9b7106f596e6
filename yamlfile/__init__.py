"""Configuration files whose mistakes name their line: text -> tree with lines -> typed places.

``text`` reads a file or parses its text; ``tree`` is the result; ``place`` walks it with typed ways down; ``parsers``
turn single values into their meaning. Every mistake is one ``ConfigError``. Nothing here knows what is configured.
"""

from yamlfile.place import Document, Place
from yamlfile.text import parse_text, read_text
from yamlfile.tree import ConfigError, UnreadableError, YamlKind, YamlNode

__all__ = ["ConfigError", "Document", "Place", "UnreadableError", "YamlKind", "YamlNode", "parse_text", "read_text"]
