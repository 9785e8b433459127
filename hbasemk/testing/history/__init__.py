"""Histories of concurrent transactions, and a checker of the repository's guarantees.

``check(History.load(files))`` returns the anomalies of a recorded history; ``python -m hbasemk.testing.history FILE...``
prints them. Needs the extra ``testing`` (networkx).
"""

try:
    import networkx  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "hbasemk.testing.history needs networkx; install it with: pip install 'hbasemk[testing]'", name=error.name
    ) from error

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
