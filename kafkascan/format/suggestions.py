"""Suggest the known name that is most similar to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """
    Return the end of a message that suggests the most similar known name.

    Parameters
    ----------
    name : str
        The unknown name; case is ignored.
    known : iterable of str

    Returns
    -------
    str
        Such as ``; did you mean 'value'?``; empty if no known name is similar.
    """
    import difflib  # for a wrong name only

    lowered = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f"; did you mean {lowered[found[0]]!r}?" if found else ""
