"""Print batches of magic 2 with their records, as `DumpLogSegments` does.

One loop decodes records and writes their lines (see csrc/dumped_batches.h). It leaves everything
unusual to the lines of `kafkascan._core.text_lines`, and all errors to `kafkascan._core.records`:
both ways print the same (tests/property/dump_log/test_dumped_batches.py).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from kafkascan._core.buffers cimport Buffers, bytes_at
from kafkascan._core.decoded_columns cimport ks_payload
from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport KS_SOURCE_FAULT, ks_batch_row


cdef extern from "dumped_batches.h" nogil:
    const int KS_HEAD_ROOM
    ctypedef struct ks_batch_dump:
        uint8_t *out
        const uint8_t *room
        const ks_batch_row *rows
        const uint8_t *is_valid
        const ks_payload *payloads
        int64_t row
        int64_t stop
        bint prints_metadata
        bint prints_data
        int64_t needed
        int64_t offsets_count
        int64_t first_offset
        int64_t last_offset
        int64_t *gaps
        int64_t gaps_count
        int64_t gaps_room

    int ks_dump_batches(ks_batch_dump *dump)


cdef enum:
    GAPS_ROOM = 4096

SMALLEST_OUTPUT = KS_HEAD_ROOM
"""Bytes that the line of a batch may need."""


cdef struct Run:
    ks_batch_dump dump
    int status


cdef void dump_run(void *context) noexcept nogil:
    cdef Run *run = <Run *>context
    run.status = ks_dump_batches(&run.dump)


cdef class BatchPrinter:
    """
    Prints batches of magic 2, each followed by its records.

    Parameters
    ----------
    rows : contiguous array of BATCH_DTYPE, shape (n,)
    is_valid : array of uint8, shape (n,)
        Whether each checksum is right.
    addresses, sizes : arrays of uintp and int64
        Of the buffers; buffer 0 may be a map, whose file may shrink.
    buffer_index, position, size : arrays of int32, int64 and int64, shape (n,)
        Where the uncompressed records of each batch are.
    owner : object
        Keeps the buffers.
    prints_metadata, prints_data : bool
        Whether lines contain offsets, sizes and the like; keys and values.

    Attributes
    ----------
    row : int
        The first batch that is not printed, or not to its end.
    end : int
        Where the lines end in the output.
    needed : int
        Bytes that the next line may need.
    """

    cdef Run _run
    cdef list _payloads            # owners of memory
    cdef tuple _owners
    cdef int64_t[::1] _gaps
    cdef const uint8_t *_source
    cdef int64_t _source_size
    cdef readonly int64_t end

    def __init__(
        self,
        const ks_batch_row[::1] rows not None,
        const uint8_t[::1] is_valid not None,
        const uintptr_t[::1] addresses not None,
        const int64_t[::1] sizes not None,
        const int32_t[::1] buffer_index not None,
        const int64_t[::1] position not None,
        const int64_t[::1] size not None,
        object owner,
        *,
        bint prints_metadata,
        bint prints_data,
    ):
        cdef int64_t n = rows.shape[0]
        if not (
            is_valid.shape[0] == buffer_index.shape[0] == position.shape[0] == size.shape[0] == n
        ) or addresses.shape[0] != sizes.shape[0] or addresses.shape[0] == 0:
            raise ValueError("arrays differ in length")
        self._gaps = memoryview(bytearray(16 * GAPS_ROOM)).cast("q")
        self._owners = rows, is_valid, addresses, sizes, owner
        self._source = <const uint8_t *>addresses[0]
        self._source_size = sizes[0]
        self._run.dump.gaps = &self._gaps[0]
        self._run.dump.gaps_room = GAPS_ROOM
        self._run.dump.prints_metadata = prints_metadata
        self._run.dump.prints_data = prints_data
        self._run.dump.stop = n
        if n:
            self._run.dump.rows, self._run.dump.is_valid = &rows[0], &is_valid[0]
            self._locate(addresses, sizes, buffer_index, position, size)

    cdef int _locate(
        self,
        const uintptr_t[::1] addresses,
        const int64_t[::1] sizes,
        const int32_t[::1] buffer_index,
        const int64_t[::1] position,
        const int64_t[::1] size,
    ) except -1:
        cdef int64_t i, n = position.shape[0]
        cdef bytearray memory = bytearray(n * sizeof(ks_payload))
        cdef ks_payload *payloads = <ks_payload *><char *>memory
        cdef Buffers buffers
        buffers.addresses, buffers.sizes, buffers.count = &addresses[0], &sizes[0], sizes.shape[0]
        for i in range(n):
            payloads[i].start = bytes_at(&buffers, buffer_index[i], position[i], size[i])
            if payloads[i].start == NULL:
                raise ValueError("records are out of bounds")
            payloads[i].limit = payloads[i].start + size[i]
            payloads[i].buffer = <const uint8_t *>addresses[buffer_index[i]]
        self._payloads = [memory]
        self._run.dump.payloads = payloads
        return 0

    @property
    def row(self):
        return self._run.dump.row

    @property
    def needed(self):
        return self._run.dump.needed

    def fill(self, uint8_t[::1] out not None):
        """
        Write the next lines, until all are written or a line may not fit.

        Returns
        -------
        status : int
            KS_OUTPUT_FULL for a pause; KS_OK if all is written up to `row`, which is left to
            others if it is a batch; or the error of a record of that batch, in front of which
            everything is written.
        fault : int
            Position of the byte that faulted, for KS_SOURCE_FAULT.
        """
        cdef ks_batch_dump *dump = &self._run.dump
        cdef int64_t fault
        if out.shape[0] == 0:
            raise ValueError("the output is empty")
        dump.out, dump.room = &out[0], &out[0] + out.shape[0]
        dump.offsets_count = dump.gaps_count = 0
        with nogil:
            fault = run_guarded(dump_run, &self._run, self._source, self._source_size)
        if fault >= 0:
            return KS_SOURCE_FAULT, fault
        self.end = dump.out - &out[0]
        return self._run.status, 0

    def offsets(self):
        """
        Return the first and last offset of the last call, and pairs that are not consecutive.

        Returns
        -------
        first, last : int
        gaps : list of tuple of int
            None if no record was printed.
        """
        cdef ks_batch_dump *dump = &self._run.dump
        if dump.offsets_count == 0:
            return None
        gaps = [(dump.gaps[2 * i], dump.gaps[2 * i + 1]) for i in range(dump.gaps_count)]
        return dump.first_offset, dump.last_offset, gaps
