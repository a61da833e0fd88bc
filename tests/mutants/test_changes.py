"""The changes that `make mutants` makes to Python, Cython and C."""

from __future__ import annotations

from tests.mutants.changes import find_mutants


def changed(path: str, text: str) -> set[str]:
    """Return the text with each of the changes."""
    return {text[: one.start] + one.new + text[one.stop :] for one in find_mutants(path, text)}


def test_operators_numbers_conditions_and_statements_are_changed() -> None:
    assert changed("a.py", "    if not a and b[1] is None:\n") == {
        "    if a and b[1] is None:\n",
        "    if not a or b[1] is None:\n",
        "    if not a and b[2] is None:\n",
        "    if not a and b[1] is not None:\n",
        "    if not (not a and b[1] is None):\n",
    }
    assert changed("a.py", "x = [f(one) for one in many\n     if one in few]\n") == {
        "x = [f(one) for one in many\n     if one not in few]\n"
    }
    assert changed("a.py", "    return first(\n        a,\n    )\n") == {"    pass\n"}


def test_c_has_its_own_conditions_and_statements() -> None:
    assert changed("csrc/a.h", "    if (a && !b) return NULL; /* 1 < 2 */\n") == {
        "    if (a || !b) return NULL; /* 1 < 2 */\n",
        "    if (a && b) return NULL; /* 1 < 2 */\n",
        "    if (!(a && !b)) return NULL; /* 1 < 2 */\n",
    }
    assert changed("csrc/a.h", "    p = next(p);\n") == {"    ;\n"}
    # The result of a function without `return` is whatever a register holds.
    assert not changed("csrc/a.h", "    return next(p);\n")


def test_texts_definitions_and_types_are_not_changed() -> None:
    for line in (
        '    r"""Return 1 or 2, and ``"a"``."""\n',
        "    # 1 < 2\n",
        "def f(a: int = 1) -> bool:\n",
        "from a import b1\n",
        "    size: int | None\n",
        '    message = f"{one + 1} and 2"\n',
    ):
        assert not changed("a.py", line), line
    assert changed("a.py", "size: int | None = 1\n") == {"size: int | None = 2\n"}
    assert not changed("a.pyx", "cdef int64_t size(const uint8_t *data) noexcept nogil:\n")
    assert not changed("csrc/a.h", '#include "batch_row_2.h"\n')
