"""Small histories, each with one anomaly or with none but nearly one."""

from __future__ import annotations

from typing import Any

from hbasemk.testing.history import Add, Kind, Read, Transaction, Write
from hbasemk.testing.history.parts import EACH, part


def t(name: str, *operations: Any, **fields: Any) -> Transaction:
    """Return a committed transaction of a separate instance, concurrent with all others; revision 5 if named "5 ..."."""
    number = name.split()[0]
    fields.setdefault("revision", number if number.isdigit() else None)
    fields = {"instance": name, "outcome": "committed", "begun": 0.0, "ended": 9.0, **fields}
    return Transaction(name, operations=operations, **fields)


def r(key: str, value: Any, **fields: Any) -> Read:
    return Read(key, value, **fields)


def w(key: str, value: Any) -> Write:
    return Write(key, value)


def rr(key: str, value: Any) -> Read:
    return Read(key, value, depended_on=True)


def reset(key: str, bit: int, *others: Any, **fields: Any) -> Transaction:
    """Return revision 1, which sets a number to a power of two."""
    return t("1", w(key + EACH, None), w(part(key, bit), 1), *others, **fields)


SETUP = t("1 setup", w("x", "x0"), w("y", "y0"), w("z", "z0"), ended=0.0)
WRONG: dict[str, tuple[Kind, list[Transaction]]] = {
    "two overwrote each other in a circle": (
        # Without revisions the order comes from what the writers read.
        Kind.G0,
        [
            t("a", r("x", "xb"), w("x", "xa"), w("y", "ya")),
            t("b", w("x", "xb"), r("y", "ya"), w("y", "yb")),
        ],
    ),
    "a value of one that aborted was read": (
        Kind.G1A,
        [SETUP, t("2", w("x", "x2"), outcome="aborted"), t("reader", r("x", "x2"))],
    ),
    "an element of one that aborted was read": (
        Kind.G1A,
        [t("2", Add("s", 1), outcome="aborted"), t("reader", r("s", (1,)))],
    ),
    "an aborted removal was read": (
        Kind.G1A,
        [SETUP, t("2", w("x", None), outcome="aborted"), t("reader", r("x", None, version="2"))],
    ),
    "a value was read that its writer overwrote": (
        Kind.G1B,
        [SETUP, t("2", w("x", "first"), w("x", "second")), t("reader", r("x", "first"))],
    ),
    "a part of what one added was read": (
        Kind.G1B,
        [t("2", Add("s", 1), Add("s", 2)), t("reader", r("s", (1,)))],
    ),
    "two read each other's writes": (
        Kind.G1C,
        [SETUP, t("2", w("x", "x2"), r("y", "y3")), t("3", w("y", "y3"), r("x", "x2"))],
    ),
    "one read what was built on its own write": (
        Kind.G1C,
        [SETUP, t("2", w("x", "x2"), r("y", "y3")), t("3", w("y", "y3"), r("x", "x2"), w("x", "x3"))],
    ),
    "a revision is lower than what it was built on": (
        Kind.G1C,
        [SETUP, t("4", w("x", "x4")), t("3", r("x", "x4"), w("x", "x3"))],
    ),
    "one read what its own instance wrote later": (
        Kind.EFFECT_BEFORE_CAUSE,
        [
            SETUP,
            t("reader", r("x", "x2"), instance="i", begun=1.0, ended=2.0),
            t("2", w("x", "x2"), instance="i", begun=3.0, ended=4.0),
        ],
    ),
    "two increments of one value": (
        Kind.LOST_UPDATE,
        [SETUP, t("2", r("x", "x0"), w("x", "x2")), t("3", r("x", "x0"), w("x", "x3"))],
    ),
    "two increments of one value, without revisions": (
        Kind.LOST_UPDATE,
        [
            t("s", w("x", "x0")),
            t("a", r("x", "x0"), w("x", "xa")),
            t("b", r("x", "x0"), w("x", "xb")),
        ],
    ),
    "overwritten unseen, as another key shows": (
        Kind.LOST_UPDATE,
        [SETUP, t("2", w("x", "x2"), w("y", "y2")), t("3", w("x", "x3"), r("y", "y0"))],
    ),
    "an element is missing from a later value": (
        Kind.LOST_UPDATE,
        [t("2", Add("s", 1)), t("3", Add("s", 2)), t("reader", r("s", (2,)))],
    ),
    "another's transaction was seen in part": (
        Kind.FRACTURED_READ,
        [SETUP, t("2", w("x", "x2"), w("y", "y2")), t("reader", r("x", "x2"), r("y", "y0"))],
    ),
    "an aborted transaction saw another in part": (
        Kind.FRACTURED_READ,
        [
            SETUP,
            t("2", w("x", "x2"), w("y", "y2")),
            t("3", r("x", "x2"), r("y", "y0"), w("z", "z3"), outcome="aborted"),
        ],
    ),
    "nothing was read where there had been something, as its maker shows": (
        Kind.FRACTURED_READ,
        [t("2", w("a", "a2"), w("b", "b2")), t("reader", r("a", None, version=""), r("b", "b2")), t("3", w("a", None))],
    ),
    "a removal was seen without what else it did": (
        Kind.FRACTURED_READ,
        [SETUP, t("2", w("x", None), w("y", "y2")), t("reader", r("x", None, version="2"), r("y", "y0"))],
    ),
    "an effect was seen without its cause": (
        Kind.NOT_CAUSAL,
        [
            SETUP,
            t("2", w("x", "x2")),
            t("3", r("x", "x2"), w("y", "y3")),
            t("reader", r("y", "y3"), r("x", "x0")),
        ],
    ),
    "an instance does not see its own commit": (
        Kind.READ_YOUR_WRITES,
        [
            SETUP,
            t("2", w("x", "x2"), instance="i", begun=1.0, ended=2.0),
            t("reader", r("x", "x0"), instance="i", begun=2.5, ended=3.0),
        ],
    ),
    "an instance goes back": (
        Kind.MONOTONIC_SNAPSHOTS,
        [
            SETUP,
            t("2", w("x", "x2")),
            t("reader", r("x", "x2"), instance="i", begun=1.0, ended=2.0),
            t("later", r("x", "x0"), instance="i", begun=3.0, ended=4.0),
        ],
    ),
    "a commit is not seen by who asks after it": (
        Kind.STALE,
        [
            SETUP,
            t("2", w("x", "x2"), ended=2.0),
            t("reader", r("x", "x0"), polled=3.0, begun=4.0, ended=5.0),
        ],
    ),
    "what another saw is not seen by who asks after it": (
        Kind.STALE,
        [
            SETUP,
            t("2", w("x", "x2"), ended=None),
            t("reader", r("x", "x2"), begun=1.0, ended=2.0),
            t("later", r("x", "x0"), polled=3.0, begun=4.0, ended=5.0),
        ],
    ),
    "an adjust of a number that was set is not seen by who asks after it": (
        Kind.STALE,
        [
            reset("n", 1, ended=1.0),
            t("2", w(part("n", 2), 1), begun=1.5, ended=2.0),
            t("reader", r("n" + EACH, (1,)), polled=3.0, begun=4.0, ended=5.0),
        ],
    ),
    "an adjust of a number that was set was seen in part": (
        Kind.FRACTURED_READ,
        [
            reset("n", 1),
            t("2", w(part("n", 2), 1), w("y", "y2")),
            t("reader", r("n" + EACH, (1,)), r("y", "y2")),
        ],
    ),
    "a removal that was aborted does not excuse who asks after the commit": (
        Kind.STALE,
        [
            SETUP,
            t("2", rr("x", "x0"), w("x", None), outcome="aborted", revision=None),
            t("reader", r("x", None), polled=3.0, begun=4.0, ended=5.0),
        ],
    ),
    "two withdrew from one sum": (
        Kind.WRITE_SKEW,
        [
            SETUP,
            t("2", r("x", "x0"), r("y", "y0"), w("x", "x2"), isolation="serializable"),
            t("3", r("x", "x0"), r("y", "y0"), w("y", "y3"), isolation="serializable"),
        ],
    ),
    "two added a child where there were none": (
        Kind.WRITE_SKEW,
        [
            t("2", r("/a", None), r("/b", None), w("/a", "a"), isolation="serializable"),
            t("3", r("/a", None), r("/b", None), w("/b", "b"), isolation="serializable"),
        ],
    ),
    "a child was added below what was removed": (
        Kind.WRITE_SKEW,
        [
            t("1 setup", w("/a", "a0")),
            t("2", rr("/a", "a0"), rr("/a/k", None), w("/a", None)),
            t("3", rr("/a", "a0"), w("/a/k", "k3")),
        ],
    ),
    "three each missed the next": (
        Kind.G2,
        [
            SETUP,
            t("2", r("x", "x0"), w("y", "y2"), isolation="serializable"),
            t("3", r("y", "y0"), w("z", "z3"), isolation="serializable"),
            t("4", r("z", "z0"), w("x", "x4"), isolation="serializable"),
        ],
    ),
    "a serializable reader saw what no order explains": (
        Kind.G2,
        [
            SETUP,
            t("2", r("x", "x0"), r("y", "y0"), w("x", "x2"), isolation="serializable"),
            t("3", r("y", "y0"), w("y", "y3"), isolation="serializable"),
            t("reader", r("x", "x0"), r("y", "y3"), isolation="serializable"),
        ],
    ),
    "one did not read its own write": (
        Kind.INTERNAL,
        [SETUP, t("2", w("x", "x2"), r("x", "x0"))],
    ),
    "one did not read its own element": (
        Kind.INTERNAL,
        [t("2", Add("s", 1), r("s", ()))],
    ),
    "one read its own write before it": (
        Kind.INTERNAL,
        [SETUP, t("2", r("x", "x2"), w("x", "x2"))],
    ),
    "one read two values of one key": (
        Kind.UNREPEATABLE,
        [SETUP, t("2", w("x", "x2")), t("reader", r("x", "x0"), r("x", "x2"))],
    ),
    "a snapshot changed": (
        Kind.UNSTABLE,
        [
            SETUP,
            t("2", w("x", "x2")),
            t("reader", r("x", "x0"), instance="i", snapshot="s"),
            t("again", r("x", "x2"), instance="i", snapshot="s", ordered=False),
        ],
    ),
    "a value of another type was read": (Kind.UNWRITTEN, [t("2", w("x", True)), t("reader", r("x", 1))]),
    "a list with a value of another type was read": (
        Kind.UNWRITTEN,
        [t("2", w("x", (1, "a"))), t("reader", r("x", (1.0, "a")))],
    ),
    "a value of another type was read again": (
        Kind.UNREPEATABLE,
        [t("2", w("x", 1)), t("3", r("x", 1), w("x", True)), t("reader", r("x", 1), r("x", True))],
    ),
    "an element of another type was read": (Kind.UNWRITTEN, [t("2", Add("s", 1)), t("reader", r("s", (True,)))]),
    "nobody wrote it": (Kind.UNWRITTEN, [SETUP, t("reader", r("x", "nonsense"))]),
    "nobody added it": (Kind.UNWRITTEN, [t("2", Add("s", 1)), t("reader", r("s", (1, 2)))]),
    "nobody removed it": (Kind.UNWRITTEN, [SETUP, t("reader", r("x", None, version="7"))]),
    "one set what was there, which another had changed before": (
        Kind.OVERTAKEN,
        [
            SETUP,
            t("2", r("x", "x0"), w("x", "x2"), begun=1.0, ended=2.0),
            t("stale", rr("x", "x0"), begun=0.5, committing=3.0, ended=4.0),
        ],
    ),
    "a serializable one read what another had changed before it was committed": (
        Kind.OVERTAKEN,
        [
            SETUP,
            t("2", r("x", "x0"), w("x", "x2"), begun=1.0, ended=2.0),
            t("stale", r("x", "x0"), begun=0.5, committing=3.0, ended=4.0, isolation="serializable"),
        ],
    ),
    "one set what others had changed before, the first of them at an unknown time": (
        Kind.OVERTAKEN,
        [
            SETUP,
            t("2", r("x", "x0"), w("x", "x2"), begun=1.0, ended=None),
            t("3", r("x", "x2"), w("x", "x3"), begun=1.5, ended=2.0),
            t("stale", rr("x", "x0"), begun=0.5, committing=3.0, ended=4.0),
        ],
    ),
    "a committed and an aborted transaction created one revision": (
        Kind.SAME_REVISION,
        [
            t("a", w("x", "x2"), outcome="aborted", revision="2"),
            t("b", w("y", "y2"), revision="2"),
            t("reader", r("y", "y2", version="2")),
        ],
    ),
    "two transactions created one revision": (
        Kind.SAME_REVISION,
        [t("a", w("x", "x1"), revision="1"), t("b", w("y", "y1"), revision="1")],
    ),
}
RIGHT: dict[str, list[Transaction]] = {
    "one after the other": [
        SETUP,
        t("2", r("x", "x0"), w("x", "x2")),
        t("3", r("x", "x2"), w("x", "x3")),
        t("reader", r("x", "x3"), r("y", "y0")),
    ],
    "an adjust that is read before its own transaction sets the number": [
        t("1", w(part("n", 1), 1), r("n" + EACH, (1,)), w("n" + EACH, None), w(part("n", 2), 1)),
    ],
    "one after the other, without revisions": [
        t("s", w("x", "x0")),
        t("a", r("x", "x0"), w("x", "xa")),
        t("b", r("x", "xa"), w("x", "xb")),
        t("reader", r("x", "xa")),
    ],
    "blind writes": [SETUP, t("2", w("x", "x2")), t("3", w("x", "x3")), t("reader", r("x", "x2"))],
    "an aborted transaction read an older snapshot": [
        SETUP,
        t("2", r("x", "x0"), w("x", "x2")),
        t("3", r("x", "x0"), w("x", "x3"), outcome="aborted"),
    ],
    "the last of two writes was read": [
        SETUP,
        t("2", w("x", "first"), w("x", "second")),
        t("reader", r("x", "second")),
    ],
    "a long fork": [
        SETUP,
        t("2", w("x", "x2")),
        t("3", w("y", "y3")),
        t("one", r("x", "x2"), r("y", "y0")),
        t("other", r("x", "x0"), r("y", "y3")),
    ],
    "a long fork of serializable writers, seen by readers that are not": [
        SETUP,
        t("2", w("x", "x2"), isolation="serializable"),
        t("3", w("y", "y3"), isolation="serializable"),
        t("one", r("x", "x2"), r("y", "y0")),
        t("other", r("x", "x0"), r("y", "y3")),
    ],
    "write skew of ordinary transactions": [
        SETUP,
        t("2", r("x", "x0"), r("y", "y0"), w("x", "x2")),
        t("3", r("x", "x0"), r("y", "y0"), w("y", "y3")),
    ],
    "write skew of an ordinary and a serializable transaction": [
        SETUP,
        t("2", r("x", "x0"), r("y", "y0"), w("x", "x2")),
        t("3", r("x", "x0"), r("y", "y0"), w("y", "y3"), isolation="serializable"),
    ],
    "write skew, but one aborted": [
        SETUP,
        t("2", r("x", "x0"), r("y", "y0"), w("x", "x2"), isolation="serializable"),
        t("3", r("x", "x0"), r("y", "y0"), w("y", "y3"), isolation="serializable", outcome="aborted"),
    ],
    "one of two serializable ones before the other": [
        SETUP,
        t("2", r("x", "x0"), r("y", "y0"), w("x", "x2"), isolation="serializable"),
        t("3", r("x", "x2"), r("y", "y0"), w("y", "y3"), isolation="serializable"),
        t("reader", r("x", "x2"), r("y", "y0"), isolation="serializable"),
    ],
    "a child added before the parent was removed": [
        t("1 setup", w("/a", "a0")),
        t("2", rr("/a", "a0"), w("/a/k", "k2")),
        t("3", rr("/a", "a0"), rr("/a/k", "k2"), w("/a", None), w("/a/k", None)),
        t("reader", r("/a", None, version="3"), r("/a/k", None, version="3")),
    ],
    "a child added to a parent that came back": [
        t("1 setup", w("/a", "a0")),
        t("2", rr("/a", "a0"), rr("/a/k", None), w("/a", None)),
        t("3", r("/a", None, version="2"), w("/a", "a3")),
        t("4", rr("/a", "a3"), rr("/a/k", None), w("/a/k", "k4")),
    ],
    "nothing was read of what came and went, nobody knows when": [
        t("2", w("a", "a2"), w("b", "b2")),
        t("reader", r("a", None), r("b", "b2")),
        t("3", w("a", None)),
    ],
    "one set what was there while another changed it": [
        SETUP,
        t("2", r("x", "x0"), w("x", "x2"), begun=1.0, ended=3.5),
        t("stale", rr("x", "x0"), begun=0.5, committing=3.0, ended=4.0),
    ],
    "one read what another had changed, and depended on nothing": [
        SETUP,
        t("2", r("x", "x0"), w("x", "x2"), begun=1.0, ended=2.0),
        t("stale", r("x", "x0"), w("y", "y1"), begun=0.5, committing=3.0, ended=4.0),
    ],
    "another instance goes back": [
        SETUP,
        t("2", w("x", "x2")),
        t("reader", r("x", "x2"), begun=1.0, ended=2.0),
        t("later", r("x", "x0"), begun=3.0, ended=4.0),
    ],
    "an instance reads an old snapshot on purpose": [
        SETUP,
        t("2", w("x", "x2"), instance="i", begun=1.0, ended=2.0),
        t("reader", r("x", "x0"), instance="i", begun=3.0, ended=4.0, ordered=False, polled=2.5),
    ],
    "two transactions of one instance at the same time": [
        SETUP,
        t("2", w("x", "x2"), instance="i", begun=1.0, ended=3.0),
        t("reader", r("x", "x0"), instance="i", begun=2.0, ended=4.0),
    ],
    "who asked before the commit ended need not see it": [
        SETUP,
        t("2", w("x", "x2"), ended=3.0),
        t("reader", r("x", "x0"), polled=3.0, begun=4.0, ended=5.0),
    ],
    "one of unknown end that committed": [
        SETUP,
        t("2", w("x", "x2"), w("y", "y2"), outcome="unknown", ended=2.0),
        t("reader", r("x", "x2"), r("y", "y2")),
        t("later", r("x", "x0"), r("y", "y0"), polled=3.0),
    ],
    "one of unknown end that nobody saw": [
        SETUP,
        t("2", r("x", "x0"), w("x", "x2"), outcome="unknown", ended=2.0),
        t("3", r("x", "x0"), w("x", "x3")),
        t("later", r("x", "x3"), polled=3.0),
    ],
    "elements one by one": [
        t("2", Add("s", 1)),
        t("3", Add("s", 2), r("s", (1, 2))),
        t("one", r("s", None)),
        t("two", r("s", (1,))),
        t("three", r("s", (2, 1))),
    ],
    "an adjust before a number was set, and one after it": [
        t("0", w(part("n", 5), 1)),
        reset("n", 1),
        t("2", w(part("n", 2), 1)),
        t("before", r("n" + EACH, (5,))),
        t("after", r("n" + EACH, (1,))),
        t("late", r("n" + EACH, (1, 2))),
    ],
    "one set a value that others change later": [
        SETUP,
        t("2", r("x", "x0"), w("x", "x2"), begun=1.0, ended=None),
        t("3", r("x", "x2"), w("x", "x3"), begun=1.5, ended=3.5),
        t("stale", rr("x", "x0"), begun=0.5, committing=3.0, ended=4.0),
    ],
    "elements read twice, in another order": [
        t("2", Add("s", 1), Add("s", 2)),
        t("reader", r("s", (1, 2)), r("s", (2, 1))),
    ],
    "an absent set to which the reader adds": [t("2", r("s", None), Add("s", 1), r("s", (1,)))],
    "a set that is absent, and empty, in one snapshot": [
        t("2", Add("s", 1)),
        t("reader", r("s", None), instance="i", snapshot="s"),
        t("again", r("s", ()), instance="i", snapshot="s", ordered=False),
    ],
    "a set to which nobody added": [t("reader", r("s", ()))],
    "own writes are read": [SETUP, t("2", r("x", "x0"), w("x", "x2"), r("x", "x2"))],
    "a snapshot read twice": [
        SETUP,
        t("2", w("x", "x2")),
        t("reader", r("x", "x0"), instance="i", snapshot="s"),
        t("again", r("x", "x0"), instance="i", snapshot="s", ordered=False),
        t("elsewhere", r("x", "x2"), instance="j", snapshot="s"),
    ],
}
