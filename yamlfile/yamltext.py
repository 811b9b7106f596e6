"""YAML with line numbers, from the parser's events: no recursion, no object construction, aliases counted in full.

This is the only module that imports the YAML parser, and it is imported only when a file is not JSON.
"""

from collections.abc import Iterator

import yaml
from msgspec import Struct, field
from msgspec.structs import replace
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from yamlfile.tree import Builder, ConfigError, Oddity, YamlKind, YamlNode, scalar

_PASSED_OVER = "a second document: it is passed over"


class _Open(Struct):
    """A list or section whose end has not come yet."""

    is_map: bool
    line: int
    anchor: str | None
    children: list[YamlNode] = field(default_factory=list)


def parse_yaml(text: str, file: str, *, forgiving: bool = False) -> YamlNode:
    """The tree of the one document in ``text``; an empty one is null. Raises ConfigError."""
    build = Builder(file, forgiving=forgiving)
    try:
        return _tree(_events(text), build)
    except yaml.YAMLError as wrong:
        from yamlfile.words import not_yaml  # imported for mistakes alone

        raise not_yaml(text, wrong).mistake(file) from None


def _events(text: str) -> Iterator[Event]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    yield from yaml.parse(text, Loader=loader)


def _tree(events: Iterator[Event], build: Builder) -> YamlNode:
    root = YamlNode(kind=YamlKind.NULL, line=1)
    stack: list[_Open] = []
    anchors: dict[str, YamlNode] = {}
    for event in events:
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, DocumentEndEvent):
            return _only(root, events, build)
        if isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            _check_tag(event, build, line)
            build.check_depth(len(stack), line)
            stack.append(_Open(isinstance(event, MappingStartEvent), line, event.anchor))
        elif isinstance(event, (MappingEndEvent, SequenceEndEvent, NodeEvent)):
            node, anchor = _finished(event, stack, anchors, build, line)
            if anchor:
                anchors[anchor] = node
            if stack:
                stack[-1].children.append(node)
            else:
                root = node
    return root


def _only(root: YamlNode, rest: Iterator[Event], build: Builder) -> YamlNode:
    """The document, unless more follow in ``rest``. Go's reader takes the first of several: then the others need not be
    YAML. A mark with nothing behind it begins no other.
    """
    try:
        start = next(rest, None)
        if not isinstance(start, DocumentStartEvent):
            return root
        line = start.start_mark.line + 1 if start.start_mark else 1
        if not build.forgiving:
            raise build.error(line, "a second document", "one document")
        content = next(rest, None)
    except yaml.MarkedYAMLError as wrong:
        if not build.forgiving:
            raise
        line, content = wrong.problem_mark.line + 1 if wrong.problem_mark else 1, None
    if isinstance(content, ScalarEvent) and not content.value:
        return root
    return replace(root, odd=(*root.odd, Oddity(line, (), "a second document", "one document", _PASSED_OVER)))


def _finished(
    event: Event, stack: list[_Open], anchors: dict[str, YamlNode], build: Builder, line: int
) -> tuple[YamlNode, str | None]:
    """The node that ``event`` completes, and the anchor it is known by."""
    if isinstance(event, AliasEvent):
        # An anchor is known once its node is complete, so an alias inside its own node ends here too.
        node = anchors.get(event.anchor or "")
        if node is None:
            from yamlfile.words import unknown_alias  # imported for mistakes alone

            column = event.start_mark.column + 1 if event.start_mark else 1
            raise unknown_alias(event.anchor or "", line, column).mistake(build.file)
        return node, None
    if isinstance(event, ScalarEvent):
        return _scalar(event, build, line), event.anchor
    done = stack.pop()
    if not done.is_map:
        return build.sequence(done.children, done.line), done.anchor
    pairs = list(zip(done.children[::2], done.children[1::2], strict=True))
    return build.mapping(pairs, done.line), done.anchor


_CORE = "tag:yaml.org,2002:"
_TAGGED = {
    f"{_CORE}int": (YamlKind.INT,),
    f"{_CORE}float": (YamlKind.FLOAT, YamlKind.INT),
    f"{_CORE}bool": (YamlKind.BOOL,),
    f"{_CORE}null": (YamlKind.NULL,),
}


def _scalar(event: ScalarEvent, build: Builder, line: int) -> YamlNode:
    kinds = _TAGGED.get(event.tag or "")
    if kinds is not None:
        node = scalar(event.value, line)
        if node.kind not in kinds:
            raise build.error(line, node.describe(), f"what its tag says, {kinds[0].value}")
        return node
    if event.tag not in (None, "!", f"{_CORE}str"):
        raise _wrong_tag(event.tag, build, line)
    if event.implicit[0]:
        return scalar(event.value, line)
    return YamlNode(kind=YamlKind.STRING, line=line, text=event.value)


def _check_tag(event: MappingStartEvent | SequenceStartEvent, build: Builder, line: int) -> None:
    if event.tag not in (None, "!", _CORE + ("map" if isinstance(event, MappingStartEvent) else "seq")):
        raise _wrong_tag(event.tag, build, line)


def _wrong_tag(tag: str | None, build: Builder, line: int) -> ConfigError:
    return build.error(line, f"the tag {(tag or '')[:40]}", "no tag")
