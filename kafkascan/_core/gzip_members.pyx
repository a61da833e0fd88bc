"""Decompress runs of small gzip members, without a Python object for each."""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from libc.stdint cimport int64_t, uint8_t

from kafkascan._core.checksums cimport crc32_kernel, ks_crc_fn


cdef extern from "small_members.h" nogil:
    ctypedef struct ks_output:
        uint8_t *data
        int64_t size
        int64_t room

    ctypedef struct ks_codes:
        pass

    void ks_build_fixed_codes(ks_codes *codes)
    int64_t ks_decode_small_member(
        const uint8_t *data, int64_t size, ks_output *out, const ks_codes *fixed, ks_crc_fn crc32
    )


# Output and input of one call, at most: signals are handled between calls.
cdef int64_t _RUN = 1 << 20


def decompress_small_members(const uint8_t[::1] data not None, int64_t at):
    """
    Decompress consecutive small members, up to one that is damaged, unusual or larger.

    Parameters
    ----------
    data : bytes-like
    at : int
        Position of the first member.

    Returns
    -------
    output : bytearray
        1 MiB at most.
    at : int
        Position after the last member.
    """
    cdef int64_t start = at, size = data.shape[0], taken = -1
    cdef bytearray output
    cdef ks_output out
    cdef ks_codes fixed
    if not 0 <= at < size:
        return bytearray(), at
    output = PyByteArray_FromStringAndSize(NULL, _RUN)
    out.data, out.size, out.room = <uint8_t *>PyByteArray_AS_STRING(output), 0, _RUN
    with nogil:
        ks_build_fixed_codes(&fixed)
        while taken != 0 and at < size and at - start < _RUN:
            taken = ks_decode_small_member(&data[at], size - at, &out, &fixed, crc32_kernel)
            at += taken
    PyByteArray_Resize(output, out.size)
    return output, at
