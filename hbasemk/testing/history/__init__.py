"""Histories of concurrent transactions, and a checker that says whether a repository kept its promises in them.

``check(History.load(files))`` judges what was recorded; ``python -m hbasemk.testing.history FILE...`` does so from the
command line. Needs the extra ``testing`` (networkx).
"""

from hbasemk.testing.history.anomalies import Anomaly, Kind, Step
from hbasemk.testing.history.checker import check
from hbasemk.testing.history.records import Add, History, HistoryError, Read, Transaction, Value, Write

__all__ = [
    "Add",
    "Anomaly",
    "History",
    "HistoryError",
    "Kind",
    "Read",
    "Step",
    "Transaction",
    "Value",
    "Write",
    "check",
]
