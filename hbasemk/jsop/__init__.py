"""JSOP, the change language of the MicroKernel, and the JSON in it: read with positions in errors, written back exactly.

A number keeps its spelling, every string its characters (lone surrogates too), and no text is too deeply nested: reading,
writing, comparing and pickling are loops, never recursion. Time is linear in the length of the text. What the operations
do to a tree is not decided here.
"""

from __future__ import annotations

from hbasemk.format.json_number import Number
from hbasemk.jsop.builder import JsonBuilder
from hbasemk.jsop.model import JsonNode, Scalar, Value
from hbasemk.jsop.operations import AddNode, ChangedSubtree, Copy, Move, Operation, Remove, SetProperty
from hbasemk.jsop.reader import parse, parse_node, parse_value
from hbasemk.jsop.strings import quote
from hbasemk.jsop.writer import write, write_node, write_value

__all__ = [
    "AddNode",
    "ChangedSubtree",
    "Copy",
    "JsonBuilder",
    "JsonNode",
    "Move",
    "Number",
    "Operation",
    "Remove",
    "Scalar",
    "SetProperty",
    "Value",
    "parse",
    "parse_node",
    "parse_value",
    "quote",
    "write",
    "write_node",
    "write_value",
]
