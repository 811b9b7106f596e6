"""Parsers of single values of the configuration: durations, quantities, names, addresses, selectors."""

import re
import ssl
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from controller.cluster.config.settings import Address, RepairBudget
from controller.objects.meta import LabelSelector, LabelSelectorRequirement
from controller.objects.quantity import Quantity, QuantityError, parse_quantity
from controller.scheduler.model.cron import Cron, CronError, cron, zone_named
from yamlfile.parsers import BOOL, NUMBER, STRING, TEXT, Parser, Unfit, alternatives, finite, go_duration, mapped, plain
from yamlfile.place import Place
from yamlfile.tree import YamlKind

_CENTURY_S: Final = 3.2e9
_MAX_PORT: Final = 65535


def duration(*, least_s: float = 0.0, most_s: float = _CENTURY_S) -> Parser:
    """A parser of Go's durations, as text; ``0`` needs no unit."""

    def convert(text: str) -> float:
        value_s = 0.0 if text == "0" else go_duration(text)
        if not least_s <= value_s <= most_s:
            raise Unfit
        return value_s

    least = f", at least {least_s:g}s" if least_s else ""
    most = f", at most {most_s:g}s" if most_s < _CENTURY_S else ""
    return Parser(
        expected=f"a duration such as 90s or 1h30m{least}{most}", convert=convert, kinds=STRING | {YamlKind.INT}
    )


def number(*, least: float | None = None) -> Parser:
    def convert(text: str) -> float:
        value = finite(text)
        if least is not None and value < least:
            raise Unfit
        return value

    bound = "" if least is None else f", at least {least:g}"
    return Parser(expected=f"a number{bound}", convert=convert, kinds=NUMBER)


def _certificates(text: str) -> str:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise Unfit from None
    return text


CERTIFICATES: Final = Parser(expected="certificates in PEM", convert=_certificates, kinds=STRING)


def _quantity(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except QuantityError:
        raise Unfit from None


QUANTITY: Final = Parser(expected="a quantity such as 500m or 1Gi", convert=_quantity, kinds=STRING | NUMBER)


def matching(pattern: str, expected: str, *, longest: int = 253) -> Parser:
    """A parser of text that ``pattern`` matches in full."""
    compiled = re.compile(pattern, re.ASCII)

    def convert(text: str) -> str:
        if len(text) > longest or not compiled.fullmatch(text):
            raise Unfit
        return text

    return Parser(expected=expected, convert=convert, kinds=STRING)


def choice(*words: str) -> Parser:
    return mapped({word: word for word in words}, alternatives(words))


_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

DNS_LABEL: Final = matching(_LABEL, "a DNS label (lower case letters, digits and -)", longest=63)
SUBDOMAIN: Final = matching(_SUBDOMAIN, "a DNS subdomain (lower case letters, digits, - and .)")
LEASE: Final = matching(rf"{_LABEL}/{_SUBDOMAIN}", "NAMESPACE/NAME of a Lease", longest=317)
QUALIFIED: Final = matching(rf"(?:{_SUBDOMAIN}/)?{_NAME}", "a name such as gpu or nvidia.com/gpu", longest=317)
LABEL_VALUE: Final = matching(rf"(?:{_NAME})?", "a label value (at most 63 letters, digits, -, _ and .)")
KIND: Final = matching(rf"[A-Za-z]\w*\.v\w+\.{_SUBDOMAIN}", "Kind.version.group, e.g. Job.v1.example.com")
NOT_EMPTY: Final = matching(r"(?s:.+)", "a string that is not empty", longest=10_000)


def _repair_budget(text: str) -> RepairBudget:
    match = re.fullmatch(r"(\d{1,9})(%?)", text, re.ASCII)
    if match is None:
        raise Unfit
    amount = int(match[1])
    if not match[2]:
        return RepairBudget(gpus=amount)
    if not 1 <= amount <= 100:  # noqa: PLR2004 - percent
        raise Unfit
    return RepairBudget(percent=amount)


REPAIR_BUDGET: Final = Parser(
    expected="a share of the GPUs from 1% to 100%, or a number of GPUs",
    convert=_repair_budget,
    kinds=STRING | {YamlKind.INT},
)


def _cron(text: str) -> Cron:
    try:
        return cron(text)
    except CronError:
        raise Unfit from None


def _zone(text: str) -> str:
    try:
        return zone_named(text)
    except ValueError:
        raise Unfit from None


ZONE: Final = Parser(expected="a time zone such as Europe/Berlin", convert=_zone, kinds=STRING)
_SCHEDULE: Final = 'five fields of a schedule that fires{}, such as "0 0 * * mon"'
CRON: Final = Parser(expected=_SCHEDULE.format(", in UTC"), convert=_cron, kinds=STRING)
ZONED_CRON: Final = Parser(expected=_SCHEDULE.format(""), convert=_cron, kinds=STRING)


def _time(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        moment_s = moment.timestamp()
    except (ValueError, OverflowError):
        raise Unfit from None
    if moment.tzinfo is None:
        raise Unfit
    return moment_s


TIME: Final = Parser(expected="a time such as 2026-01-05T00:00:00Z", convert=_time, kinds=STRING)


def _address(text: str) -> Address | None:
    """An address ``:8443`` or ``host:port``; None for ``0`` and the empty string, which turn a server off."""
    if text in ("", "0"):
        return None
    host, colon, port = plain(text).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not re.fullmatch(r"\d{1,5}", port, re.ASCII) or int(port) > _MAX_PORT:
        raise Unfit
    if not re.fullmatch(r"[\w.:%-]*", host, re.ASCII):
        raise Unfit
    return Address(host or "0.0.0.0", int(port))  # noqa: S104 - what an empty host means everywhere


ADDRESS: Final = Parser(expected='HOST:PORT, :PORT, or "0" for none', convert=_address, kinds=STRING)


def _switch(text: str) -> bool | None:
    return None if text == "auto" else bool(BOOL.convert(text))


SWITCH: Final = Parser(expected="true, false or auto", convert=_switch, kinds=STRING | BOOL.kinds)


def _served(text: str) -> bool:
    if text == "served":
        return True
    if BOOL.convert(text):
        raise Unfit
    return False


SERVED: Final = Parser(expected="served or off", convert=_served, kinds=STRING | BOOL.kinds)
"""A parser of ``served`` and ``off``. A bare ``off`` is a boolean in YAML, and Helm writes it as ``false``."""


def _auto(text: str) -> bool:
    if text == "auto":
        return True
    if BOOL.convert(text):
        raise Unfit
    return False


AUTO: Final = Parser(expected="auto or off", convert=_auto, kinds=STRING | BOOL.kinds)
"""A parser of ``auto`` and ``off``, as ``SERVED`` is of its words."""

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


def label_selector(place: Place) -> LabelSelector:
    """A Kubernetes label selector. Raises ConfigError."""
    fields = place.fields(("matchLabels", "matchExpressions"))
    labels: dict[str, str] = {}
    if "matchLabels" in fields:
        for key, value in fields["matchLabels"].children():
            check_label_key(key, value)
            labels[key] = value.value(LABEL_VALUE)
    items = fields["matchExpressions"].items() if "matchExpressions" in fields else []
    return LabelSelector(match_labels=labels, match_expressions=tuple(_requirement(item) for item in items))


def check_label_key(key: str, place: Place) -> None:
    """Raises ConfigError where ``key`` is no key of a label."""
    try:
        QUALIFIED.convert(key)
    except Unfit:
        raise place.error("a label key", repr(key[:60])) from None


def _requirement(place: Place) -> LabelSelectorRequirement:
    fields = place.fields(("key", "operator", "values"))
    key = place.required(fields, "key")
    operator: str = place.required(fields, "operator").value(choice(*_OPERATORS))
    values = tuple(item.value(LABEL_VALUE) for item in fields["values"].items()) if "values" in fields else ()
    if operator in ("In", "NotIn") and not values:
        raise place.error("values for In and NotIn", "none")
    if operator in ("Exists", "DoesNotExist") and values:
        raise fields["values"].error("no values for Exists and DoesNotExist")
    return LabelSelectorRequirement(key=key.value(QUALIFIED), operator=operator, values=values)


def opaque(_: Place) -> None:
    """Accepts a value of a known key whose content is not read here."""


Read = Callable[[Place], Any]


def by(parser: Parser) -> Read:
    return lambda place: place.value(parser)


_OPENSSL_CIPHERS: Final = {
    f"TLS_ECDHE_{auth}_WITH_{name}": f"ECDHE-{auth}-{openssl}"
    for auth in ("ECDSA", "RSA")
    for name, openssl in {
        "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
        "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
        "CHACHA20_POLY1305": "CHACHA20-POLY1305",
        "AES_128_CBC_SHA": "AES128-SHA",
        "AES_256_CBC_SHA": "AES256-SHA",
    }.items()
}


CIPHER: Final = mapped(
    _OPENSSL_CIPHERS, "a TLS 1.2 cipher suite with forward secrecy, e.g. TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
)

_TLS_VERSIONS: Final = {f"VersionTLS1{minor}": f"1.{minor}" for minor in range(4)}
TLS_VERSION: Final = mapped(_TLS_VERSIONS, alternatives(_TLS_VERSIONS))

ANY_TEXT: Final = TEXT
