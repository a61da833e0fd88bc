"""Conditions on batches, as text: ``"producerId == 7 and maxTimestampMs >= 1700000000000"``.

They are looked at before anything of a batch is decoded and, as far as they ask for topic,
partition and segment only, before a file is opened.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafkascan.spark.schemas import closest

# By the name that a condition calls it: what the batch table calls it.
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
# Quoted text, or a word or sign of SQL's that Python writes differently.
_SQL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|<>|(?<![<>=!])=(?!=)|\b[A-Za-z]+\b")
_SQL_WORDS = {"<>": "!=", "=": "==", "true": "True", "false": "False"}
_KEYWORDS = ("and", "or", "not", "in")

UNKNOWN = object()
"""What a condition says where it asks for what is not known yet."""

Lookup = Callable[[str], Any]


class Where:
    """
    A condition.

    Parameters
    ----------
    text : str
        Comparisons of columns of the `batches` view with numbers, texts and booleans
        (``== != < <= > >= in``, also SQL's ``=`` and ``<>``), joined by ``and``, ``or``,
        ``not`` and parentheses.

    Raises
    ------
    ValueError
        If that is not what the text is.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(_SQL.sub(_as_python, text).strip(), mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"where: {text!r} is not a condition: {error.msg}") from None
        self._check(self._tree)

    def __reduce__(self) -> tuple[Any, ...]:
        return Where, (self.text,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Where({self.text!r})"

    def may_hold_in(self, file: Mapping[str, Any]) -> bool:
        """Tell whether batches of a file may be asked for, from `FILE_NAMES` alone."""
        outcome = self._evaluate(self._tree, lambda name: file.get(name, UNKNOWN))
        return outcome is UNKNOWN or bool(outcome)

    def mask(self, look_up: Lookup, count: int) -> NDArray[np.bool_]:
        """
        Tell which batches are asked for.

        Parameters
        ----------
        look_up : callable
            Gives the values of a column, or the one value of all, by name.
        count : int
            Number of batches.
        """
        outcome = self._evaluate(self._tree, look_up)
        return np.broadcast_to(np.asarray(outcome, np.bool_), (count,))

    def _check(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self._check(value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._check(node.operand)
        elif isinstance(node, ast.Compare):
            self._check_comparison(node)
        elif isinstance(node, ast.Name):
            self._require_name(node)
        elif not (isinstance(node, ast.Constant) and isinstance(node.value, bool)):
            raise self._error(node)

    def _check_comparison(self, node: ast.Compare) -> None:
        for operand in (node.left, *node.comparators):
            if isinstance(operand, ast.Name):
                self._require_name(operand)
            else:
                self._constant(operand)
        for kind in node.ops:
            if type(kind) not in _COMPARISONS and not isinstance(kind, (ast.In, ast.NotIn)):
                raise self._error(node)

    def _require_name(self, node: ast.Name) -> str:
        if node.id.lower() not in _KNOWN:
            hint = closest(node.id, _KNOWN.values())
            raise ValueError(f"where: there is no batch column {node.id!r}{hint}")
        return _KNOWN[node.id.lower()]

    def _constant(self, node: ast.expr) -> Any:
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            raise self._error(node) from None
        values = value if isinstance(value, (tuple, list, set)) else [value]
        if not all(isinstance(one, (int, float, str)) for one in values):
            raise self._error(node)
        return value

    def _error(self, node: ast.expr) -> ValueError:
        return ValueError(f"where: {ast.unparse(node)!r} is not part of a condition")

    def _evaluate(self, node: ast.expr, look_up: Lookup) -> Any:
        if isinstance(node, ast.BoolOp):
            outcomes = [self._evaluate(value, look_up) for value in node.values]
            return _joined(outcomes, isinstance(node.op, ast.And))
        if isinstance(node, ast.UnaryOp):
            outcome = self._evaluate(node.operand, look_up)
            return outcome if outcome is UNKNOWN else np.logical_not(outcome)
        if isinstance(node, ast.Name):
            return look_up(self._require_name(node))
        if isinstance(node, ast.Compare):
            operands = [self._operand(one, look_up) for one in (node.left, *node.comparators)]
            outcomes = [
                _compared(kind, left, right)
                for kind, left, right in zip(node.ops, operands[:-1], operands[1:], strict=True)
            ]
            return _joined(outcomes, True)
        return self._constant(node)

    def _operand(self, node: ast.expr, look_up: Lookup) -> Any:
        if isinstance(node, ast.Name):
            return look_up(self._require_name(node))
        return self._constant(node)


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
    """Three-valued logic: what is known may decide whatever the unknown will say."""
    known = [outcome for outcome in outcomes if outcome is not UNKNOWN]
    join = np.logical_and if is_and else np.logical_or
    result: Any = join.reduce(np.broadcast_arrays(*known)) if known else UNKNOWN
    if len(known) == len(outcomes):
        return result
    is_decided = known and np.ndim(result) == 0 and bool(result) != is_and
    return result if is_decided else UNKNOWN
