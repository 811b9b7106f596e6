"""Structs into structural schemas: the types from the struct, everything else from the ``Shape`` that goes with it.

A shape says what a type cannot: which fields are required, bounds, keys of lists, defaults, rules in CEL, and fields
that the API has and nobody here reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec.inspect as ms

from controller.objects.core import PodTemplateSpec
from controller.objects.meta import ObjectMeta
from controller.objects.quantity import Quantity
from hack.crds.podtemplate import QUANTITY, pod_template

Schema = dict[str, Any]

_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True)
class Shape:
    """What a struct's type does not say. Field names are those on the wire."""

    required: Sequence[str] = ()
    fields: Mapping[str, Schema] = field(default_factory=dict)
    """Keywords laid over a field's schema, at any depth; a field that the struct does not have is added."""
    rules: Sequence[tuple[str, str]] = ()
    """CEL over the whole struct, and what it says when it does not hold."""
    without: Sequence[str] = ()
    """Fields that this version of the API does not have."""


Shapes = Mapping[type, Shape]


def structural(kind: type, shapes: Shapes) -> Schema:
    """The OpenAPI v3 schema of a struct."""
    info = ms.type_info(kind)
    assert isinstance(info, ms.StructType), kind
    return _struct(info, shapes)


def laid_over(schema: Any, more: Any) -> Any:
    """``more`` over ``schema``, at any depth; None takes a keyword away."""
    if not isinstance(schema, dict) or not isinstance(more, dict):
        return more
    made = dict(schema)
    for key, value in more.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = laid_over(schema.get(key), value)
    return made


def rules(*pairs: tuple[str, str]) -> Schema:
    """The keyword for CEL rules: each an expression and what it says when it does not hold."""
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in pairs]}


def _struct(info: ms.StructType, shapes: Shapes) -> Schema:
    if info.cls is PodTemplateSpec:
        return pod_template()
    shape = shapes.get(info.cls, Shape())
    properties = {each.encode_name: _schema(each.type, shapes) for each in info.fields}
    unknown = {*shape.required, *shape.without} - set(properties) - set(shape.fields)
    assert not unknown, f"{info.cls.__name__}: no fields {sorted(unknown)}"
    for name, more in shape.fields.items():
        properties[name] = laid_over(properties.get(name, {}), more)
    for name in shape.without:
        del properties[name]
    made: Schema = {"type": "object", "properties": dict(sorted(properties.items()))}
    if shape.required:
        made["required"] = sorted(shape.required)
    if shape.rules:
        made |= rules(*shape.rules)
    return made


def _schema(info: ms.Type, shapes: Shapes) -> Schema:
    match info:
        case ms.StructType(cls=cls):
            return {"type": "object"} if cls is ObjectMeta else _struct(info, shapes)
        case ms.UnionType(types=types):
            (only,) = [each for each in types if not isinstance(each, ms.NoneType)]
            return _schema(only, shapes)
        case ms.Metadata(type=inner):
            return _schema(inner, shapes)
        case ms.VarTupleType(item_type=item):
            return {"type": "array", "items": _schema(item, shapes)}
        case ms.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _schema(value, shapes)}
    return _scalar(info)


def _scalar(info: ms.Type) -> Schema:
    match info:
        case ms.LiteralType(values=values):
            return {"type": "string", "enum": list(values)}
        case ms.IntType(ge=least, le=most):
            made = {"type": "integer", "format": "int32" if most == _INT32_MAX else "int64"}
            return made | {"minimum": 0} if least == 0 else made
        case ms.BoolType():
            return {"type": "boolean"}
        case ms.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case ms.CustomType(cls=cls) if cls is Quantity:
            return dict(QUANTITY)
        case ms.StrType():
            return {"type": "string"}
    raise TypeError(f"no schema for {info}")
