"""Removes data that must not leave a cluster with a bug report: secrets, and other people's names. Pure.

A name becomes a pseudonym: a keyed hash, so that a name has one pseudonym in every file, and nobody without the key can
try names. The key is the cluster's, hence pseudonyms stay the same in the next bundle too.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

LEFT_OUT: Final = "(left out)"
_SECRETS: Final = (
    r"(?:pass(?:w|phrase|code|key|(?![a-z]))|pwd|secret|token|credential|authorization|cookie|htaccess"
    r"|(?:api|private|client|access|signing|encryption|ssh|tls|account|master|auth)[-_.]?key)"
)
_SECRET_KEY: Final = re.compile(_SECRETS, re.IGNORECASE)
_SECRET_VARIABLE: Final = re.compile(rf"{_SECRETS}|key", re.IGNORECASE)
_SECRET_FLAG: Final = re.compile(rf"--?[\w.-]{{0,64}}?{_SECRETS}[\w.-]{{0,64}}", re.IGNORECASE)
_IMAGES: Final = ("image", "imageID", "containerID")
"""Keys of values that look like a person's name and are not one."""
# Texts may come from anybody, and be long: each pattern takes time in proportion to the text, whatever is in it.
_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL)
_JWT: Final = re.compile(r"\beyJ[\w-]{5,2048}\.[\w-]{1,8192}\.[\w-]*")
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[^\s\"',;]+", re.IGNORECASE)
_USERINFO: Final = re.compile(r"""(://)(?:[^/\s"']{1,1024}|[^/\s:@"']{0,256}:(?!\d{1,5}/)[^\s"']{1,1024})@""")
"""The user and password of an address, to the last ``@``; a password may have a slash, which a port has not."""
_ASSIGNED: Final = re.compile(
    rf"""(?:(?<![A-Za-z])name\\{{0,4}}["']?\s{{0,8}}[:=]\s{{0,8}}\\{{0,4}}["']?\w{{0,64}}?(?:{_SECRETS}|key)\w{{0,64}}"""
    rf"""\\{{0,4}}["']?\s{{0,8}},?\s{{0,64}}\\{{0,4}}["']?value|{_SECRETS}[\w.-]{{0,64}})"""
    r"""\\{0,4}["']?[ \t]{0,8}[:=][ \t]{0,64}""",
    re.IGNORECASE,
)
"""The text before a value: a key that names a secret, or a variable's name and then ``value``."""
_QUOTED: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*')(?=[\s,;}\])]|\Z)""", re.DOTALL)
_FLAG: Final = re.compile(
    rf"""(?<![\w-])({_SECRET_FLAG.pattern}["'\\]{{0,4}}[\s,]{{1,64}}(?:-\s{{1,8}})?)"""
    r"""(?!["'\\]{0,4}--[a-z])("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}\]]+)""",
    re.IGNORECASE,
)
"""A flag and the word after it, also where both are entries of a list."""
_OPAQUE: Final = re.compile(
    r"(?<![\w:+/])(?=[A-Za-z0-9+/_]*[0-9])(?=[A-Za-z0-9+/_]*[A-Z])(?=[A-Za-z0-9+/_]*[a-z])[A-Za-z0-9+/_]{32,}={0,2}"
)
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_USER: Final = re.compile(r"""(\buser(?:name)?["']?[ =:]+\\?["'])([^"'\\]+)""", re.IGNORECASE)
_URL_PATH: Final = re.compile(r"(namespaces/)([a-z0-9][-a-z0-9]*)((?:/[a-z0-9.]+/)([a-z0-9][-a-z0-9.]*))?")
_PAIR: Final = re.compile(r"(?<![\w./-])([a-z0-9][-a-z0-9]*)/([a-z0-9][-a-z0-9.]*[a-z0-9]|[a-z0-9])(?![\w/-])")
_NO_PAIR: Final = re.compile(
    r"(?:linux|windows|darwin|freebsd)/(?:amd64|arm64|arm|386|ppc64le|s390x|riscv64|loong64)"
    r"|(?:application|text)/(?:json|yaml|x-yaml|xml|plain|html|css|csv|javascript|octet-stream|event-stream"
    r"|[a-z-]+-patch|apply-patch|openmetrics-text|vnd\.[a-z0-9.]+)"
    r"|batch/(?:job|cronjob)|apps/(?:deployment|statefulset|daemonset|replicaset)s?|and/or|n/a|read/write"
)
"""Texts that look like NAMESPACE/NAME and name nobody: platforms, media types, kinds as configurations write them."""
_VERSION: Final = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?")
_WORD: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?")
_JOINTS: Final = re.compile(r"([-.])")
_LETTER: Final = re.compile(r"[a-z]")
OURS: Final = re.compile(r"default|kube-[-a-z0-9]+|tessera-system|kueue-system")
"""The namespaces that every cluster has: they name nobody."""
_LEAST: Final = 3
"""The fewest letters of a name that is searched for inside of sentences: shorter ones are words."""


def secretless(text: str) -> str:
    """The text without tokens, keys, passwords and texts that look like one of them."""
    text = _PEM.sub(LEFT_OUT, text)
    text = _JWT.sub(LEFT_OUT, text)
    text = _BEARER.sub(rf"\1 {LEFT_OUT}", text)
    text = _USERINFO.sub(rf"\1{LEFT_OUT}@", text)
    text = _FLAG.sub(rf"\1{LEFT_OUT}", text)
    return _OPAQUE.sub(LEFT_OUT, _unassigned(text))


def _unassigned(text: str) -> str:
    made, at = [], 0
    while (found := _ASSIGNED.search(text, at)) is not None:
        made.append(text[at : found.end()])
        at = _value_end(text, found.end())
        if at > found.end():
            made.append(LEFT_OUT)
    return "".join((*made, text[at:]))


def _value_end(text: str, start: int) -> int:
    """The end of a quoted value; for another value the end of its line and of the block that is indented below it, as a
    value may have spaces, brackets and lines.
    """
    if (quoted := _QUOTED.match(text, start)) is not None:
        return quoted.end()
    line = text[text.rfind("\n", 0, start) + 1 : start]
    end = _line_end(text, start)
    outer = _indent(line)
    listed = not text[start:end].strip() and not line.lstrip().startswith("-")
    while end < len(text):
        below = _line_end(text, end + 1)
        line = text[end + 1 : below]
        item = listed and _indent(line) == outer and line.lstrip().startswith("-")
        if line.strip() and _indent(line) <= outer and not item:
            break
        end = below
    return end


def _line_end(text: str, start: int) -> int:
    found = text.find("\n", start)
    return len(text) if found < 0 else found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class Scrubber:
    """Replaces secrets and names. ``kept``: namespaces whose names stay, the caller's own. ``names``: other names, with
    the kind of object that has each.
    """

    def __init__(self, key: bytes, names: Mapping[str, str], kept: Iterable[str]) -> None:
        self._key = key
        self._kept = frozenset(kept)
        self._kinds = {name: kind for name, kind in names.items() if name and not self.stays(name)}
        self._long = frozenset(name for name in self._kinds if len(name) >= _LEAST)
        self._most = max((len(_JOINTS.split(name)) for name in self._long), default=1)
        """The most pieces of a name, with the joints between them: an odd number, and the bound of each search in a
        word.
        """

    def stays(self, namespace: str) -> bool:
        return namespace in self._kept or OURS.fullmatch(namespace) is not None

    def pseudonym(self, name: str, kind: str = "name") -> str:
        """The pseudonym of a name: ``<kind>-<8 hex>``."""
        digest = hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()[:8]
        return f"{self._kinds.get(name, kind)}-{digest}"

    def text(self, text: str) -> str:
        """A sentence or a log without secrets and names."""
        if text in self._kinds:
            return self.pseudonym(text)
        text = _USER.sub(lambda found: found[1] + self._user(found[2]), secretless(text))
        text = _MAIL.sub(lambda found: self.pseudonym(found[0], "mail"), text)
        text = _URL_PATH.sub(self._in_path, text)
        text = _PAIR.sub(self._pair, text)
        return _WORD.sub(lambda found: self._word(found[0]), text)

    def value(self, given: Any) -> Any:
        """JSON with every text in it scrubbed; a value under a key that names a secret is left out."""
        if isinstance(given, str):
            return self.text(given)
        if isinstance(given, list | tuple):
            return self._listed(given)
        if isinstance(given, dict):
            hidden = {}
            if isinstance(given.get("name"), str) and _SECRET_VARIABLE.search(given["name"]) and "value" in given:
                hidden = {"value": LEFT_OUT}  # a variable of a container
            return {self.text(str(key)): self._under(str(key), value) for key, value in (given | hidden).items()}
        return given

    def _listed(self, given: Iterable[Any]) -> list[Any]:
        """The entries of a list, scrubbed; one may be a flag, and the next its value."""
        made: list[Any] = []
        flag = False
        for each in given:
            is_text = isinstance(each, str)
            made.append(LEFT_OUT if flag and is_text and not each.startswith("--") else self.value(each))
            flag = is_text and _SECRET_FLAG.fullmatch(each) is not None
        return made

    def _under(self, key: str, value: Any) -> Any:
        if value and not isinstance(value, bool) and _SECRET_KEY.search(key):
            return LEFT_OUT
        if isinstance(value, str) and key in _IMAGES:
            return secretless(value)
        return self.value(value)

    def _user(self, name: str) -> str:
        return name if name.startswith("system:") and "serviceaccount" not in name else self.pseudonym(name, "user")

    def _in_path(self, found: re.Match[str]) -> str:
        if self.stays(found[2]):
            return found[0]
        rest = found[3] or ""
        if found[4]:
            rest = rest.removesuffix(found[4]) + self.pseudonym(found[4])
        return f"{found[1]}{self.pseudonym(found[2], 'namespace')}{rest}"

    def _pair(self, found: re.Match[str]) -> str:
        """The text NAMESPACE/NAME with pseudonyms, also for an object that is gone; two numbers, a version and a
        namespace that stays are not hidden.
        """
        namespace, name = found[1], found[2]
        if namespace not in self._kinds and _NO_PAIR.fullmatch(found[0]) is not None:
            return found[0]
        if self.stays(namespace) or _LETTER.search(namespace) is None or _VERSION.fullmatch(name) is not None:
            return found[0]
        return f"{self.pseudonym(namespace, 'namespace')}/{self.pseudonym(name)}"

    def _word(self, word: str) -> str:
        """The word, or the longest part of it between its dashes and dots that is a name, as a pseudonym."""
        if word in self._long:
            return self.pseudonym(word)
        pieces = _JOINTS.split(word)
        if len(pieces) == 1:
            return word
        made, at = [], 0
        while at < len(pieces):
            for end in range(min(len(pieces), at + self._most), at, -2):
                part = "".join(pieces[at:end])
                if part in self._long:
                    made.append(self.pseudonym(part))
                    at = end
                    break
            else:
                made.append(pieces[at])
                at += 1
        return "".join(made)
