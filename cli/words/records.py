"""Sentences on a record of a cluster's history that cannot be read or made."""

from inventory.words.catalog import Kind, Place, said

_refusal = said(Place.COMMANDS, Kind.REFUSAL)
_note = said(Place.COMMANDS, Kind.NOTE)


@_refusal
def wrong_line(path: object, wrong: str) -> str:
    return f"{path}: {wrong}"


@_refusal
def broken_gzip(path: object, why: str) -> str:
    return f"{path}: found gzip that is cut or broken ({why}), expected a record"


@_refusal
def no_record(path: object, why: str) -> str:
    return f"{path}: found no file that can be read ({why}), expected a record"


@_refusal
def not_judged(path: object, line: int, failed: str) -> str:
    return f"{path}: found line {line}, which the judge fails at ({failed}), expected any record; please report it"


@_refusal
def empty_record(path: object) -> str:
    return f"{path}: found no line, expected a record"


@_refusal
def file_and_live() -> str:
    return "FILE: found one together with --for or --record, expected either: a record is judged, or made"


@_refusal
def no_time() -> str:
    return "--for: found 0s, expected a duration above 0"


@_note
def cut(last_s: float) -> str:
    return f"the end: the record is cut after {last_s:.1f} s, it is judged up to there"
