"""A parser and writer for JSOP, the change language of the MicroKernel, and the JSON in it.

Errors have positions, and the writer reproduces values exactly: numbers keep their spelling, strings all their characters
(lone surrogates, too). Any depth of nesting works, since reading, writing, comparing and pickling use loops instead of
recursion. Time is linear in the length of the text. This package does not define the operations' effect on a tree.
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
