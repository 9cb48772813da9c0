"""JSON of others, which may be nested as deeply as its author likes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any

MAX_DEPTH = 200  #: lists and objects within each other

_BRACKET = re.compile(r"[\[\]{}]")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # also one that does not end


def decode_json(text: str | bytes | bytearray, decode: Callable[[str], Any] = json.loads) -> Any:
    """Parse JSON, with the method of a JSONDecoder if it is not the usual one.

    Raises ValueError, also if it is nested so deeply that the parser might reach Python's limit of
    recursion: there, finalizers fail of any object that is collected meanwhile.
    """
    if not isinstance(text, str):
        text = text.decode("utf-8", "surrogatepass")
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels of lists and objects")
    return decode(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is listed twice")
    return found


#: refuses an object with a name twice: parsers differ, as some take the first, some the last
decode_once = json.JSONDecoder(object_pairs_hook=_once).decode


def _depth(text: str) -> int:
    brackets = _BRACKET.findall(_STRING.sub("", text))
    return max(accumulate(1 if one in "[{" else -1 for one in brackets), default=0)
