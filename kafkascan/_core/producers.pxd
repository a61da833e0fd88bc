"""The position in a log up to which producers were followed, shared with the census."""

from kafkascan._core.producer_orders cimport log_cursor


cdef class LogCursor:
    cdef log_cursor cursor
