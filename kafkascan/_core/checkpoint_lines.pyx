"""Parse the lines of checkpoint files: numbers separated by blanks, after a topic or not."""

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t count)
    void PyObject_GC_UnTrack(void *item)

# Lines between two checks for signals.
cdef int64_t _RUN = 1 << 16

cdef Py_ssize_t _TUPLE_SIZE = (<PyTypeObject *>tuple).tp_basicsize

cdef struct line:
    const uint8_t *at
    const uint8_t *limit
    int64_t word_size
    int64_t first
    int64_t second


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    """Return whether a byte is one of ``\\s`` in Java's patterns, but does not end a line."""
    return byte == 0x20 or byte == 0x09 or byte == 0x0b or byte == 0x0c


cdef inline bint ends_line(uint8_t byte) noexcept nogil:
    return byte == 0x0a or byte == 0x0d


cdef bint take_word(line *one) noexcept nogil:
    """Skip a word and the blanks after it, both of one byte at least."""
    cdef const uint8_t *start = one.at
    while one.at < one.limit and not is_blank(one.at[0]) and not ends_line(one.at[0]):
        one.at += 1
    one.word_size = one.at - start
    return one.word_size > 0 and skip_blanks(one) > 0


cdef int64_t skip_blanks(line *one) noexcept nogil:
    cdef const uint8_t *start = one.at
    while one.at < one.limit and is_blank(one.at[0]):
        one.at += 1
    return one.at - start


cdef bint take_number(line *one, int bits, int64_t *number) noexcept nogil:
    """Read a number as Java's ``parseInt`` and ``parseLong`` do; return whether it fits."""
    cdef bint is_negative = one.at < one.limit and one.at[0] == 0x2d
    cdef uint64_t most = (<uint64_t>1 << (bits - 1)) - (0 if is_negative else 1)
    cdef uint64_t value = 0
    cdef uint8_t digit
    if is_negative or (one.at < one.limit and one.at[0] == 0x2b):
        one.at += 1
    cdef const uint8_t *start = one.at
    while one.at < one.limit and 0x30 <= one.at[0] <= 0x39:
        digit = one.at[0] - 0x30
        if value > (most - digit) // 10:
            return False
        value = 10 * value + digit
        one.at += 1
    number[0] = <int64_t>(0 - value if is_negative else value)
    return one.at > start


cdef bint take_end(line *one) noexcept nogil:
    """Skip blanks and the end of a line, as Java's ``readLine`` finds it."""
    skip_blanks(one)
    if one.at == one.limit:
        return True
    if not ends_line(one.at[0]):
        return False
    if one.at[0] == 0x0d and one.limit - one.at > 1 and one.at[1] == 0x0a:
        one.at += 1
    one.at += 1
    return True


cdef bint take_numbers(line *one) noexcept nogil:
    """Read an int, a long, and the end of the line."""
    return (
        take_number(one, 32, &one.first)
        and skip_blanks(one) > 0
        and take_number(one, 64, &one.second)
        and take_end(one)
    )


def parse_pairs(
    const uint8_t[::1] data not None, int64_t at, type kind not None, list pairs not None
):
    """
    Parse lines of an int and a long, up to one that is not such a line.

    Parameters
    ----------
    data : bytes-like
    at : int
        Position of the first line.
    kind : type
        A class of named tuples with two fields.
    pairs : list
        Receives a tuple for each line.

    Returns
    -------
    int
        Position after the last line.
    """
    cdef line one
    cdef int64_t count = 0, size = data.shape[0]
    if not issubclass(kind, tuple) or (<PyTypeObject *>kind).tp_basicsize != _TUPLE_SIZE:
        raise TypeError("kind is not a class of named tuples")
    if not 0 <= at < size:
        return at
    one.at, one.limit = &data[at], &data[0] + size
    while one.at < one.limit and take_numbers(&one):
        pairs.append(new_pair(kind, one.first, one.second))
        at = one.at - &data[0]
        count += 1
        if count % _RUN == 0:
            PyErr_CheckSignals()
    return at


cdef object new_pair(type kind, object first, object second):
    """Return ``kind(first, second)`` without the call, which takes several times as long."""
    pair = PyType_GenericAlloc(kind, 2)
    Py_INCREF(first)
    PyTuple_SET_ITEM(pair, 0, first)
    Py_INCREF(second)
    PyTuple_SET_ITEM(pair, 1, second)
    # Numbers refer to nothing: the collector would traverse millions of pairs again and again.
    PyObject_GC_UnTrack(<void *>pair)
    return pair


def parse_offsets(const uint8_t[::1] data not None, int64_t at, dict offsets not None):
    """
    Parse lines of a topic, a partition and an offset, up to one that is not such a line.

    Parameters
    ----------
    data : bytes-like
    at : int
        Position of the first line.
    offsets : dict
        Receives the offsets by topic and partition.

    Returns
    -------
    count : int
        Number of lines: several may have the same topic and partition.
    at : int
        Position after the last line.
    """
    cdef line one
    cdef const uint8_t *start
    cdef int64_t count = 0, size = data.shape[0]
    if not 0 <= at < size:
        return 0, at
    one.at, one.limit = &data[at], &data[0] + size
    while one.at < one.limit:
        start = one.at
        if not (take_word(&one) and take_numbers(&one)):
            break
        topic = PyUnicode_DecodeUTF8(<const char *>start, one.word_size, NULL)
        offsets[topic, one.first] = one.second
        at = one.at - &data[0]
        count += 1
        if count % _RUN == 0:
            PyErr_CheckSignals()
    return count, at
