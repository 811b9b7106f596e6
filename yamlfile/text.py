"""A config file's bytes and text: read within limits, parsed as JSON where it is JSON, else as YAML."""

import os
from pathlib import Path

from yamlfile.jsontext import NotJson, looks_like_json, parse_json
from yamlfile.tree import MAX_BYTES, ConfigError, UnreadableError, YamlNode, no_utf8


def parse_text(text: str, file: str, *, forgiving: bool = False) -> YamlNode:
    """The tree of the one document in ``text``; ``file`` is its name in messages. Raises ConfigError.

    ``forgiving``: merge keys are carried out, and the last value of a key given twice counts (see ``tree.Builder``).
    """
    if looks_like_json(text):
        try:
            return parse_json(text, file, forgiving=forgiving)
        except NotJson:
            pass
    # Imported here: a JSON file costs no YAML parser.
    from yamlfile.yamltext import parse_yaml

    return parse_yaml(text, file, forgiving=forgiving)


def read_text(file: Path) -> str:
    """The file's text, without a byte order mark. Raises ConfigError; UnreadableError where there may be a good file
    that this process could not read now (it has too many open, say).
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as failed:
        absent = isinstance(failed, FileNotFoundError | NotADirectoryError | IsADirectoryError)
        kind = ConfigError if absent else UnreadableError
        raise kind(str(file), "", os.strerror(failed.errno or 0).lower(), "a readable file") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(str(file), "", f"more than {MAX_BYTES} bytes", "a smaller file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise no_utf8(file, content, wrong.start) from None
