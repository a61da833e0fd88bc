"""Parser for the option ``where``: predicates on batch columns.

An example is ``"producerId == 7 and maxTimestampMs >= 1700000000000"``. A predicate is evaluated on
batch headers, before anything is decoded. A predicate that topic, partition and segment decide is
evaluated before a file is opened.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafkascan.format.suggestions import suggestion

# Names in conditions, and the columns of the batch table.
BATCH_NAMES = {
    "position": "position",
    "sizeInBytes": "size_in_bytes",
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "leaderEpoch": "partition_leader_epoch",
    "magic": "magic",
    "crc": "crc",
    "attributes": "attributes",
    "codec": "compression_type",
    "timestampType": "timestamp_type",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
    "baseTimestampMs": "base_timestamp",
    "maxTimestampMs": "max_timestamp",
    "deleteHorizonMs": "delete_horizon_ms",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "recordCount": "records_count",
}
FILE_NAMES = ("topic", "partition", "segment")

_KNOWN = {name.lower(): name for name in (*BATCH_NAMES, *FILE_NAMES)}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# A quoted string, or a word or operator that SQL and Python write differently.
_SQL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|<>|(?<![<>=!])=(?!=)|\b[A-Za-z]+\b")
_SQL_WORDS = {"<>": "!=", "=": "==", "true": "True", "false": "False"}
_KEYWORDS = ("and", "or", "not", "in")

UNKNOWN = object()
"""The value of a column, or the result of a condition, that is not known yet."""

ColumnLookup: TypeAlias = Callable[[str], object]
"""Returns the values of a column, or the single value of a constant column, by name."""


class WhereClause:
    """
    A parsed condition. Create one with `WhereClause.parse`.

    Attributes
    ----------
    text : str
    """

    def __init__(self, text: str, tree: ast.expr) -> None:
        self.text = text
        self._tree = tree

    @classmethod
    def parse(cls, text: str) -> WhereClause:
        """
        Parse a condition.

        Parameters
        ----------
        text : str
            Comparisons of columns of the `batches` view with numbers, strings and booleans
            (``== != < <= > >= in``, also SQL's ``=`` and ``<>``), combined with ``and``, ``or``,
            ``not`` and parentheses.

        Raises
        ------
        ValueError
            If the text is not such a condition.
        """
        try:
            tree = ast.parse(_SQL.sub(_as_python, text).strip(), mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"where: {text!r} is not a condition: {error.msg}") from None
        _check(tree)
        return cls(text, tree)

    def __reduce__(self) -> tuple[Any, ...]:
        return WhereClause.parse, (self.text,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WhereClause) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"WhereClause.parse({self.text!r})"

    def may_match_file(self, file: Mapping[str, Any]) -> bool:
        """Whether batches of a file may match, given the values of `FILE_NAMES`."""
        outcome = _evaluate(self._tree, lambda name: file.get(name, UNKNOWN))
        return outcome is UNKNOWN or bool(outcome)

    def mask(self, look_up: ColumnLookup, count: int) -> NDArray[np.bool_]:
        """
        Return a mask of the batches that match.

        Parameters
        ----------
        look_up : callable
        count : int
            Number of batches.
        """
        outcome = _evaluate(self._tree, look_up)
        return np.broadcast_to(np.asarray(outcome, np.bool_), (count,))


def _check(node: ast.expr) -> None:
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            _check(value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check(node.operand)
    elif isinstance(node, ast.Compare):
        _check_comparison(node)
    elif isinstance(node, ast.Name):
        _require_name(node)
    elif not (isinstance(node, ast.Constant) and isinstance(node.value, bool)):
        raise _unexpected(node)


def _check_comparison(node: ast.Compare) -> None:
    for operand in (node.left, *node.comparators):
        if isinstance(operand, ast.Name):
            _require_name(operand)
        else:
            _constant(operand)
    for kind in node.ops:
        if type(kind) not in _COMPARISONS and not isinstance(kind, (ast.In, ast.NotIn)):
            raise _unexpected(node)


def _require_name(node: ast.Name) -> str:
    if node.id.lower() not in _KNOWN:
        hint = suggestion(node.id, _KNOWN.values())
        raise ValueError(f"where: there is no batch column {node.id!r}{hint}")
    return _KNOWN[node.id.lower()]


def _constant(node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise _unexpected(node) from None
    values = value if isinstance(value, (tuple, list, set)) else [value]
    if not all(isinstance(one, (int, float, str)) for one in values):
        raise _unexpected(node)
    return value


def _unexpected(node: ast.expr) -> ValueError:
    return ValueError(f"where: {ast.unparse(node)!r} is not part of a condition")


def _evaluate(node: ast.expr, look_up: ColumnLookup) -> Any:
    if isinstance(node, ast.BoolOp):
        outcomes = [_evaluate(value, look_up) for value in node.values]
        return _joined(outcomes, isinstance(node.op, ast.And))
    if isinstance(node, ast.UnaryOp):
        outcome = _evaluate(node.operand, look_up)
        return outcome if outcome is UNKNOWN else np.logical_not(outcome)
    if isinstance(node, ast.Name):
        return look_up(_require_name(node))
    if isinstance(node, ast.Compare):
        operands = [_operand(one, look_up) for one in (node.left, *node.comparators)]
        outcomes = [
            _compared(kind, left, right)
            for kind, left, right in zip(node.ops, operands[:-1], operands[1:], strict=True)
        ]
        return _joined(outcomes, True)
    return _constant(node)


def _operand(node: ast.expr, look_up: ColumnLookup) -> Any:
    if isinstance(node, ast.Name):
        return look_up(_require_name(node))
    return _constant(node)


def _as_python(match: re.Match[str]) -> str:
    word = match[0]
    if word.lower() in _KEYWORDS:
        return word.lower()
    return _SQL_WORDS.get(word.lower(), word)


def _compared(kind: ast.cmpop, left: Any, right: Any) -> Any:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if isinstance(kind, (ast.In, ast.NotIn)):
        choices = right if isinstance(right, (tuple, list, set)) else [right]
        found = np.isin(left, np.array(list(choices))) if len(choices) else np.zeros((), np.bool_)
        return np.logical_not(found) if isinstance(kind, ast.NotIn) else found
    return _COMPARISONS[type(kind)](left, right)


def _joined(outcomes: list[Any], is_and: bool) -> Any:
    """Combine outcomes by three-valued logic: known outcomes may decide the result."""
    known = [outcome for outcome in outcomes if outcome is not UNKNOWN]
    join = np.logical_and if is_and else np.logical_or
    result: Any = join.reduce(np.broadcast_arrays(*known)) if known else UNKNOWN
    if len(known) == len(outcomes):
        return result
    is_decided = known and np.ndim(result) == 0 and bool(result) != is_and
    return result if is_decided else UNKNOWN
