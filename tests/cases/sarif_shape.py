"""The part of SARIF 2.1.0 that fleetctl writes, as a JSON Schema of our own: names, types and values of the OASIS standard, no more.

Source: OASIS SARIF 2.1.0, sections 3.13 (sarifLog), 3.14 (run), 3.19 (toolComponent), 3.49 (reportingDescriptor), 3.27 (result), 3.28
(location), 3.35 (suppression).
"""

from __future__ import annotations

from typing import Any


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def _array(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


_TEXT = {"type": "string", "minLength": 1}
_MESSAGE = _object(("text",), text=_TEXT)
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_URI = {"type": "string", "minLength": 1, "pattern": r"^[A-Za-z0-9\-._~%/]+$"}
_REGION = _object(("startLine",), startLine={"type": "integer", "minimum": 1})
_PLACE = _object(("artifactLocation",), artifactLocation=_object(("uri",), uri=_URI), region=_REGION)
_RULE = _object(
    ("id",),
    id=_TEXT,
    shortDescription=_MESSAGE,
    help=_MESSAGE,
    defaultConfiguration=_object((), level=_LEVEL),
    properties={"type": "object"},
)
_RESULT = _object(
    ("message", "ruleId"),
    ruleId=_TEXT,
    level=_LEVEL,
    message=_MESSAGE,
    locations=_array(_object((), physicalLocation=_PLACE), 1),
    suppressions=_array(_object(("kind",), kind={"enum": ["inSource", "external"]}, justification=_TEXT), 1),
)
_DRIVER = _object(("name",), name=_TEXT, version=_TEXT, rules=_array(_RULE))
_RUN = _object(
    ("tool",),
    tool=_object(("driver",), driver=_DRIVER),
    automationDetails=_object((), id=_TEXT),
    results=_array(_RESULT),
    properties={"type": "object"},
)
SARIF_SHAPE = _object(("version", "runs"), version={"const": "2.1.0"}, runs=_array(_RUN))
SARIF_SHAPE["properties"]["$schema"] = {"type": "string", "format": "uri"}
