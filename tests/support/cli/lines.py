"""A command line as people write it in a page or a help text, given to the parser of ``tessera``."""

import re
import shlex

import click

from cli.main import tessera

WORDS = {"URL": "http://prometheus:9090", "N": "0"}
"""Words that stand for a value which the parser looks at."""


def alone(line: str) -> str:
    """The command without what is said about it: a comment, words after two spaces, another command after it."""
    line = line.strip().removeprefix("$ ")
    quoted = re.split(r"('[^']*'|\"[^\"]*\")", line)
    kept = ""
    for piece in quoted:
        if piece[:1] in "'\"":
            kept += piece
            continue
        cut = re.split(r"  +| #| \| | && | > | ; |`| <-", f"{piece}", maxsplit=1)
        kept += cut[0]
        if len(cut) > 1:
            break
    return kept.strip()


def understood(line: str) -> str:
    """Empty where the parser takes the line, or where it is a command's bare name; else what is wrong. Runs nothing."""
    text = re.sub(r"\[(-[^\]|]*)(\|[^\]]*)?\]", r"\1", line)
    words = [WORDS.get(word, word) for word in shlex.split(alone(text))][1:]
    command: click.Command = tessera
    name, parent = "tessera", None
    try:
        while words:
            context = command.make_context(name, list(words), parent=parent)
            if not isinstance(command, click.Group):
                return ""
            rest = [*context._protected_args, *context.args]
            found, inner, words = command.resolve_command(context, rest)
            assert inner is not None
            name, command, parent = found or "", inner, context
            if name == "node" and words == ["release"]:
                return ""
    except click.exceptions.Exit:
        return ""
    except click.UsageError as wrong:
        return f"{line}: {wrong.format_message()}"
    return ""
