"""What the JSOP reader accepts, what it refuses, and what its errors say."""

from __future__ import annotations

import pickle

import pytest

from hbasemk import InvalidPathError
from hbasemk.errors import HbasemkError, JsopError
from hbasemk.jsop import (
    AddNode,
    ChangedSubtree,
    Copy,
    JsonNode,
    Move,
    Number,
    Remove,
    SetProperty,
    parse,
    parse_node,
    parse_value,
)


def refused(text: str, root: str = "") -> JsopError:
    with pytest.raises(JsopError) as caught:
        parse(text, root)
    return caught.value


# --- operations ---


@pytest.mark.parametrize("text", ["", " ", " \t\r\n"])
def test_an_empty_text_has_no_operations(text: str) -> None:
    assert parse(text) == []


def test_each_operation_in_order_with_its_offset() -> None:
    text = '+"/a":{"p":1} ^"/a/p":"x"\n-"/b" >"/c":"/d"*"/d":"/e"+"/a/q":true'
    operations = parse(text)
    assert operations == [
        AddNode("/a", JsonNode({"p": Number("1")})),
        SetProperty("/a", "p", "x"),
        Remove("/b"),
        Move("/c", "/d"),
        Copy("/d", "/e"),
        SetProperty("/a", "q", True),
    ]
    assert [text[one.offset] for one in operations] == list("+^->*+")
    assert [one.offset for one in operations] == [0, 14, 26, 32, 42, 52]


def test_white_space_is_allowed_between_all_parts() -> None:
    spaced = '\n+ "/a" :\t{ "p" : [ 1 , true ] ,\r "c" : { } , "d" : { "q" : "x" } } - "/b" > "/c" : "/d" '
    assert parse(spaced) == parse('+"/a":{"p":[1,true],"c":{},"d":{"q":"x"}}-"/b">"/c":"/d"')


@pytest.mark.parametrize("space", ["\x0b", "\x0c", "\x00", "\x85", "\xa0", "\u2028", "\ufeff"])
def test_only_the_white_space_of_json_is_white_space(space: str) -> None:
    assert refused(f'{space}-"/a"').offset == 0
    assert refused(f'+"/a":{{{space}}}').offset == 7


def test_a_number_ends_where_the_next_operation_begins() -> None:
    assert parse('^"/a/p":1-"/b"^"/a/q":2+"/c":{}') == [
        SetProperty("/a", "p", Number("1")),
        Remove("/b"),
        SetProperty("/a", "q", Number("2")),
        AddNode("/c", JsonNode()),
    ]


@pytest.mark.parametrize("operator", ["+", "^"])
def test_null_removes_a_property(operator: str) -> None:
    assert parse(operator + '"/a/p":null') == [SetProperty("/a", "p", None)]


def test_a_property_of_the_root() -> None:
    assert parse('^"/p":1') == [SetProperty("/", "p", Number("1"))]


def test_names_and_paths_may_be_escaped() -> None:
    assert parse(r'+"\/\u0061":{"\u0062\n":{"\"":1}}') == [
        AddNode("/a", JsonNode({}, {"b\n": JsonNode({'"': Number("1")})}))
    ]


# --- paths ---


@pytest.mark.parametrize(
    ("root", "path", "meant"),
    [
        ("/", "a", "/a"),
        ("/", "a/b", "/a/b"),
        ("/r", "a", "/r/a"),
        ("/r/s", "a/b", "/r/s/a/b"),
        ("/r", "/a", "/a"),
        ("", "/a", "/a"),
        ("/r", ":hidden", "/r/:hidden"),
        ("/r", "...", "/r/..."),
        ("/r", " ", "/r/ "),
    ],
)
def test_relative_paths_are_below_the_root_that_is_given(root: str, path: str, meant: str) -> None:
    assert parse(f'-"{path}"+"{path}":{{}}>"{path}":"/x"*"/x":"{path}"', root) == [
        Remove(meant),
        AddNode(meant, JsonNode()),
        Move(meant, "/x"),
        Copy("/x", meant),
    ]
    assert parse(f'^"{path}/p":1', root) == [SetProperty(meant, "p", Number("1"))]


def test_without_a_root_a_relative_path_is_refused() -> None:
    error = refused('-"/a" -"b/c"')
    assert error.offset == 7
    assert "'b/c' is relative" in str(error)
    assert refused('>"/a":"b"').offset == 6


@pytest.mark.parametrize("path", ["", "a/", "/a/", "//", "/a//b", "a//b", ".", "..", "/./a", "a/../b", "/a/.."])
@pytest.mark.parametrize("before", ["+", "-", "^", '>"/x":', '*"/x":', " > "])
def test_the_error_for_an_invalid_path_has_its_position(before: str, path: str) -> None:
    assert refused(f'{before}"{path}":{{}}', "/r").offset == len(before)


@pytest.mark.parametrize("root", ["r", "/r/", "//", "/.."])
def test_a_wrong_root_is_an_error_of_its_own(root: str) -> None:
    with pytest.raises(InvalidPathError):
        parse("", root)


@pytest.mark.parametrize("text", ['+"/":{}', '^"/":1', '+"/":1'])
def test_the_root_can_be_neither_added_nor_set(text: str) -> None:
    error = refused(text, "/r")
    assert error.offset == 1
    assert "the root" in str(error)


def test_the_root_can_be_the_source_of_a_copy() -> None:
    assert parse('*"/":"/a"') == [Copy("/", "/a")]


def test_a_path_longer_than_a_row_key_is_refused_in_a_short_message() -> None:
    assert len(str(refused(f'-"/{"x" * 100_000}"'))) < 500
    assert len(str(refused(f'-"//{"x" * 100_000}"'))) < 500


# --- what is not accepted ---


@pytest.mark.parametrize(
    ("text", "offset", "says"),
    [
        ('="/a":1', 0, "test operations"),
        ('-"/a" @"/b"', 6, "found '@'"),
        ('"/a":1', 0, "expected an operation"),
        ("{}", 0, "expected an operation"),
        ('-"/a",-"/b"', 5, "expected an operation"),
        ("/**/", 0, "expected an operation"),
        ("+", 1, "expected a path"),
        ("- /a", 2, "expected a path"),
        ("-'/a'", 1, "expected a path"),
        ('-"/a', 1, "does not end"),
        ('-"/a":1', 5, "expected an operation"),
        ('+"/a"', 5, "expected ':'"),
        ('+"/a" {}', 6, "expected ':'"),
        ('+"/a":', 6, "expected a value"),
        ('+"/a": x', 7, "expected a value"),
        ('^"/a":-"/b"', 6, "expected a value"),
        ('>"/a":1', 6, "expected the target path"),
        ('*"/a":{}', 6, "expected the target path"),
        ('>"/a":{"before":"/b"}', 6, "positions"),
        ('>"/a":null', 6, "expected the target path"),
        ('^"/a":{}', 6, "to add a node, use '+'"),
        ('^"/a":{"p":1}', 6, "to add a node, use '+'"),
        ('+"/a":{}}', 8, "expected an operation"),
        ('+"/a":truex', 10, "expected an operation"),
    ],
)
def test_wrong_operations(text: str, offset: int, says: str) -> None:
    error = refused(text)
    assert error.offset == offset
    assert says in str(error)


@pytest.mark.parametrize(
    ("json", "offset", "says"),
    [
        ("{", 1, "expected a name"),
        ("{,}", 1, "expected a name"),
        ("{a:1}", 1, "expected a name"),
        ("{'a':1}", 1, "expected a name"),
        ('{"a":1,}', 7, "expected a name"),
        ('{"a":1,,"b":2}', 7, "expected a name"),
        ('{"a"}', 4, "expected ':'"),
        ('{"a" 1}', 5, "expected ':'"),
        ('{"\\n" 1}', 6, "expected ':'"),
        ('{"a":}', 5, "expected a value"),
        ('{"\\n":}', 6, "expected a value"),
        ('{"a":1 "b":2}', 7, "expected ',' or '}'"),
        ('{"a":{} "b":2}', 8, "expected ',' or '}'"),
        ('{"a":{"x":1} "b":2}', 13, "expected ',' or '}'"),
        ('{"a":"\\n" 1}', 10, "expected ',' or '}'"),
        ('{"a":1]', 6, "expected ',' or '}'"),
        ('{"a":01}', 6, "expected ',' or '}'"),
        ('{"a":1.}', 6, "expected ',' or '}'"),
        ('{"a":1e}', 6, "expected ',' or '}'"),
        ('{"a":.5}', 5, "expected a value"),
        ('{"a":+1}', 5, "expected a value"),
        ('{"a":-}', 5, "expected a value"),
        ('{"a":NaN}', 5, "expected a value"),
        ('{"a":Infinity}', 5, "expected a value"),
        ('{"a":-Infinity}', 5, "expected a value"),
        ('{"a":\u0661}', 5, "expected a value"),
        ('{"a":1\u0661}', 6, "expected ',' or '}'"),
        ('{"a":True}', 5, "expected a value"),
        ('{"a":[null]}', 6, "true or false in an array"),
        ('{"a":[[]]}', 6, "true or false in an array"),
        ('{"a":[1, {}]}', 9, "true or false in an array"),
        ('{"a":[1,]}', 8, "true or false in an array"),
        ('{"a":[', 6, "true or false in an array"),
        ('{"a":[1 2]}', 8, "expected ',' or ']'"),
        ('{"a":["\\n" 2]}', 11, "expected ',' or ']'"),
        ('{"a":[1}', 7, "expected ',' or ']'"),
        ('{"a":"x', 5, "does not end"),
        ('{"a":"x\\"', 5, "does not end"),
        ('{"a":"x\\q"}', 7, "not a valid escape"),
        ('{"a":"\\u12g4"}', 7, "not a valid escape"),
        ('{"a":"\\u 123"}', 7, "not a valid escape"),
        ('{"a":"x\ny"}', 7, "control character"),
        ('{"a":"\x00"}', 6, "control character"),
        ('{"a\t":1}', 3, "control character"),
        ('{"a":1,"a":2}', 7, "'a' occurs twice"),
        ('{"a":1,"\\u0061":2}', 7, "'a' occurs twice"),
        ('{"a":1,"a":{}}', 7, "'a' occurs twice"),
        ('{"a":{},"a":1}', 8, "'a' occurs twice"),
        ('{"a":null,"a":1}', 10, "'a' occurs twice"),
        ('{"x":{"a":null},"a":null,"a":null}', 25, "'a' occurs twice"),
        ('{"":1}', 1, "'' is not a name"),
        ('{".":1}', 1, "'.' is not a name"),
        ('{"..":{}}', 1, "'..' is not a name"),
        ('{ "a/b":1}', 2, "'a/b' is not a name"),
        ('{"a":{"\\/":1}}', 6, "'/' is not a name"),
    ],
)
def test_wrong_json(json: str, offset: int, says: str) -> None:
    error = refused(f'+"/a":{json}')
    assert error.offset == 6 + offset
    assert says in str(error)
    with pytest.raises(JsopError, match="HERE|END") as caught:
        parse_node(json)
    assert caught.value.offset == offset


def test_different_objects_can_have_the_same_name() -> None:
    assert parse_node('{"a":{"a":{"a":null},"b":null},"b":1}') == JsonNode(
        {"b": Number("1")}, {"a": JsonNode({}, {"a": JsonNode()})}
    )


def test_a_changed_subtree_is_read_only_on_request() -> None:
    assert parse('^"/a":{ } ^"/":{}', changed_subtrees=True) == [ChangedSubtree("/a"), ChangedSubtree("/")]
    with pytest.raises(JsopError, match="empty object"):
        parse('^"/a":{"b":1}', changed_subtrees=True)


@pytest.mark.parametrize("text", [None, b'-"/a"', 3])
def test_only_text_is_read(text: object) -> None:
    with pytest.raises(TypeError, match="must be str"):
        parse(text)  # type: ignore[arg-type]


# --- errors ---


def test_an_error_shows_the_text_around_it() -> None:
    error = refused(f'+"/{"b" * 50}":{{"p":?{"c" * 50}}}')
    assert error.context == f'…{"b" * 13}":{{"p": <-- HERE ?{"c" * 19}…'
    assert str(error) == f"expected a value; at offset {error.offset}: {error.context}"
    assert error.message == str(error)


def test_an_error_at_the_end_of_a_text_shows_its_last_part() -> None:
    assert refused("+").context == "+ <-- END"
    assert refused("?").context == " <-- HERE ?"


def test_an_error_for_any_text_can_be_printed() -> None:
    error = refused('-"/\ud800\n\x1b" ? \udfff\u2028')
    assert error.context == '-"/\\ud800 <-- HERE \\n\\x1b" ? \\udfff\\u2028'
    str(error).encode()
    str(refused('+"/a":{"\ud800":1,"\ud800":2}')).encode()
    str(refused("\ud800")).encode()


def test_an_error_is_one_of_the_microkernel_and_can_be_pickled() -> None:
    error = refused("?")
    assert isinstance(error, HbasemkError)
    assert isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.offset, again.context) == (JsopError, str(error), 0, error.context)


# --- values ---


@pytest.mark.parametrize(
    "spelling", ["0", "-0", "1", "-12", "1.10", "0.0", "1e3", "1E3", "1e+03", "-1.5e-07", "9" * 4300, "1e999"]
)
def test_a_number_keeps_its_spelling(spelling: str) -> None:
    assert parse_value(f" {spelling} ") == Number(spelling)
    assert parse_value(f"[{spelling}]") == (Number(spelling),)
    assert parse_node(f'{{"p":{spelling}}}').properties == {"p": Number(spelling)}
    assert parse(f'^"/p":{spelling}') == [SetProperty("/", "p", Number(spelling))]


@pytest.mark.parametrize(
    ("json", "value"),
    [
        ('""', ""),
        ('"a"', "a"),
        (r'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t'),
        (r'"\u0000\u001f\u00e9\u00E9"', "\x00\x1féé"),
        ('"é😀\x7f\u2028"', "é😀\x7f\u2028"),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\uD83D\uDE00\ud83d"', "😀\ud83d"),
        (r'"\ud83d"', "\ud83d"),
        (r'"\ude00\ud83d"', "\ude00\ud83d"),
        (r'"\ud83dx\ude00"', "\ud83dx\ude00"),
        ('"\ud83d"', "\ud83d"),
        ('"\ud83d\ude00"', "😀"),
        ('"\ud83d\\ude00"', "😀"),
        ('"\\ud83d\ude00"', "😀"),
        ("true", True),
        ("false", False),
        ("[]", ()),
        ("[ ]", ()),
        (r'["a","\n",1.0,true,false]', ("a", "\n", Number("1.0"), True, False)),
    ],
)
def test_values(json: str, value: object) -> None:
    assert parse_value(json) == value
    assert parse_node(f'{{"p":{json},"q":{json}}}').properties == {"p": value, "q": value}
    assert parse(f'^"/p":{json}-"/q"') == [SetProperty("/", "p", value), Remove("/q")]


def test_surrogates_are_joined_in_names_paths_and_arrays_too() -> None:
    assert parse('+"/\ud83d\ude00":{"\ud83d\ude00":["\ud83d\ude00"]}') == parse('+"/😀":{"😀":["😀"]}')


@pytest.mark.parametrize("text", ["", "null", "{}", '{"a":1}', "1 2", "x", "[1]]", "1,"])
def test_texts_that_are_not_one_value_are_rejected(text: str) -> None:
    with pytest.raises(JsopError):
        parse_value(text)


@pytest.mark.parametrize("text", ["", "null", "[]", "1", "{}{}", "{},", '-"/a"'])
def test_texts_that_are_not_one_node_are_rejected(text: str) -> None:
    with pytest.raises(JsopError):
        parse_node(text)


def test_members_keep_their_order() -> None:
    node = parse_node('{"z":1,"b":{},"a":2,"y":{"k":{}},"m":"x"}')
    assert list(node.properties) == ["z", "a", "m"]
    assert list(node.children) == ["b", "y"]
