"""Decode messages of Kafka's own topics into columns (csrc/message_program.h)."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memset

from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport KS_OK, KS_SOURCE_FAULT


cdef extern from "message_program.h" nogil:
    const int KS_MESSAGE_COLUMNS
    const int KS_MESSAGE_TAGS
    const int KS_MAX_SEQUENCE

    ctypedef struct ks_instruction:
        int32_t op
        int32_t column
        int32_t is_nullable
        int32_t width
        int32_t first
        int32_t second

    ctypedef struct ks_message_column:
        uint8_t *values
        int32_t *ends
        uint8_t *data
        uint8_t *is_valid
        int64_t capacity
        int64_t data_room

    ctypedef struct ks_message_counts:
        int64_t values[1]
        int64_t sizes[1]

    ctypedef struct ks_message_reader:
        const ks_message_column *columns
        ks_message_counts counts

    bint ks_decode_message_columns(
        ks_message_reader *r, const ks_instruction *program, int64_t size, int32_t columns,
        const uint8_t *data, int64_t data_size, bint is_flexible, bint must_end
    )
    bint ks_read_message_prefix(const uint8_t *data, int64_t size, int32_t *number)
    int64_t ks_read_message_frame(
        const uint8_t *data, int64_t size, int32_t *type, int32_t *version
    )
    int KS_OP_NUMBER, KS_OP_BOOL, KS_OP_RAW, KS_OP_STRING, KS_OP_BYTES, KS_OP_ARRAY
    int KS_OP_VALID, KS_OP_NULLABLE, KS_OP_TAGGED_NULLABLE, KS_OP_DEFAULT, KS_OP_TAGS, KS_OP_TAG


OPS = {
    "NUMBER": KS_OP_NUMBER, "BOOL": KS_OP_BOOL, "RAW": KS_OP_RAW, "STRING": KS_OP_STRING,
    "BYTES": KS_OP_BYTES, "ARRAY": KS_OP_ARRAY, "VALID": KS_OP_VALID,
    "NULLABLE": KS_OP_NULLABLE, "TAGGED_NULLABLE": KS_OP_TAGGED_NULLABLE,
    "DEFAULT": KS_OP_DEFAULT, "TAGS": KS_OP_TAGS, "TAG": KS_OP_TAG,
}
MAX_COLUMNS, MAX_TAGS = KS_MESSAGE_COLUMNS, KS_MESSAGE_TAGS
SLACK = KS_MAX_SEQUENCE

cdef uint8_t NO_BYTES = 0


cdef struct Framing:
    const uintptr_t *addresses
    const int32_t *sizes
    int64_t count
    bint is_framed
    int32_t *types
    int32_t *versions
    int32_t *starts


cdef void read_frames(void *context) noexcept nogil:
    cdef Framing *job = <Framing *>context
    cdef const uint8_t *data
    cdef int64_t i
    for i in range(job.count):
        job.types[i] = job.versions[i] = 0
        job.starts[i] = 0
        if job.sizes[i] <= 0:
            continue
        data = <const uint8_t *>job.addresses[i]
        if job.is_framed:
            job.starts[i] = <int32_t>ks_read_message_frame(
                data, job.sizes[i], &job.types[i], &job.versions[i]
            )
        elif ks_read_message_prefix(data, job.sizes[i], &job.types[i]):
            job.starts[i] = 2


def frames_into(
    const uint8_t[::1] source not None,
    const uintptr_t[::1] addresses not None,
    const int32_t[::1] sizes not None,
    bint is_framed,
    int32_t[::1] types not None,
    int32_t[::1] versions not None,
    int32_t[::1] starts not None,
):
    """
    Read what precedes messages.

    Parameters
    ----------
    source : array of uint8
        Those bytes among the items that are a map, whose file may shrink.
    addresses, sizes : arrays of n
        The items; a negative size is a null.
    is_framed : bool
        Whether items begin with a frame, or otherwise with an int16.
    types, versions : arrays of int32, shape (n,)
        Are filled; the int16 is a type.
    starts : array of int32, shape (n,)
        Size of what precedes each message; 0 if it cannot be read.

    Returns
    -------
    status, fault : int
    """
    cdef Framing job
    cdef int64_t fault, count = sizes.shape[0]
    if not (
        addresses.shape[0] == count == types.shape[0] == versions.shape[0]
        and starts.shape[0] == count
    ):
        raise ValueError("columns differ in length")
    if count == 0:
        return KS_OK, 0
    job.addresses, job.sizes, job.count, job.is_framed = &addresses[0], &sizes[0], count, is_framed
    job.types, job.versions, job.starts = &types[0], &versions[0], &starts[0]
    fault = run(read_frames, &job, source)
    return outcome(fault)


cdef int64_t run(
    void (*job)(void *) noexcept nogil, void *context, const uint8_t[::1] source
) noexcept:
    cdef const uint8_t *start = &source[0] if source.shape[0] else NULL
    cdef int64_t fault
    with nogil:
        fault = run_guarded(job, context, start, source.shape[0])
    return fault


cdef tuple outcome(int64_t fault):
    if fault < 0:
        return KS_OK, 0
    return KS_SOURCE_FAULT, fault


cdef struct Decoding:
    ks_message_reader reader
    ks_message_column columns[64]  # KS_MESSAGE_COLUMNS
    int32_t columns_count
    const ks_instruction *program
    const int32_t *first           # instruction, by program
    const uint8_t *is_flexible     # by program
    const int32_t *program_of
    const uintptr_t *addresses
    const int32_t *sizes
    const int32_t *starts
    int64_t count
    bint must_end
    uint8_t *is_done


cdef void decode(void *context) noexcept nogil:
    cdef Decoding *job = <Decoding *>context
    cdef const uint8_t *data
    cdef int64_t i
    cdef int32_t number, first
    for i in range(job.count):
        number = job.program_of[i]
        first = job.first[number]
        data = &NO_BYTES
        if job.sizes[i] > job.starts[i]:
            data = <const uint8_t *>job.addresses[i] + job.starts[i]
        job.is_done[i] = ks_decode_message_columns(
            &job.reader, job.program + first, job.first[number + 1] - first, job.columns_count,
            data, max(0, job.sizes[i] - job.starts[i]), job.is_flexible[number], job.must_end,
        )


cdef class MessageDecoder:
    """
    Decode messages of one type by programs, one for each version.

    Parameters
    ----------
    program : array of int32, shape (m, 6)
        Instructions of all programs.
    first : array of int32, shape (programs + 1,)
        The first instruction of each program, and the number of all.
    is_flexible : array of uint8, shape (programs,)
    columns_count : int
    must_end : bool
        Whether bytes behind a message are an error.

    Notes
    -----
    Programs are trusted: they come from `compile_message` only.
    """

    cdef Decoding _job
    cdef tuple _owners
    cdef int64_t _programs

    def __init__(
        self,
        const int32_t[:, ::1] program not None,
        const int32_t[::1] first not None,
        const uint8_t[::1] is_flexible not None,
        int columns_count,
        bint must_end,
    ):
        if program.shape[0] == 0 or program.shape[1] != 6:
            raise ValueError("an instruction has 6 numbers")
        if is_flexible.shape[0] == 0 or first.shape[0] != is_flexible.shape[0] + 1:
            raise ValueError("programs differ in number")
        if not 0 < columns_count <= KS_MESSAGE_COLUMNS:
            raise ValueError("there are too many columns")
        self._owners = program, first, is_flexible
        self._programs = is_flexible.shape[0]
        self._job.program = <const ks_instruction *>&program[0, 0]
        self._job.first, self._job.is_flexible = &first[0], &is_flexible[0]
        self._job.columns_count, self._job.must_end = columns_count, must_end

    def decode(
        self,
        const uint8_t[::1] source not None,
        const uintptr_t[::1] addresses not None,
        const int32_t[::1] sizes not None,
        const int32_t[::1] starts not None,
        const int32_t[::1] program_of not None,
        uint8_t[::1] is_done not None,
        int64_t[:, ::1] counts not None,
        columns=None,
    ):
        """
        Decode messages, or count their values.

        Parameters
        ----------
        source, addresses, sizes
            As of `frames_into`.
        starts : array of int32, shape (n,)
            Size of what precedes each message.
        program_of : array of int32, shape (n,)
        is_done : array of uint8, shape (n,)
            Is filled: 0 for a message that cannot be decoded, which adds no values.
        counts : array of int64, shape (2, columns)
            Is filled: values of each column, and their bytes or elements.
        columns : sequence of tuples, optional
            Of each column the values (uint8) or None, ends (int32) or None, data (uint8) or
            None, and validity (uint8), in the sizes that were counted.

        Returns
        -------
        status, fault : int
        """
        cdef Decoding *job = &self._job
        cdef int64_t i, fault
        job.count = sizes.shape[0]
        if not (
            addresses.shape[0] == starts.shape[0] == program_of.shape[0] == job.count
            and is_done.shape[0] == job.count
        ) or counts.shape[0] != 2 or counts.shape[1] != job.columns_count:
            raise ValueError("columns differ in length")
        if job.count == 0:
            return KS_OK, 0
        for i in range(job.count):
            if not 0 <= program_of[i] < self._programs or starts[i] < 0:
                raise ValueError("a message has no program")
        memset(&job.reader, 0, sizeof(job.reader))
        job.reader.columns = NULL
        if columns is not None:
            self._set_columns(columns)
        job.addresses, job.sizes, job.starts = &addresses[0], &sizes[0], &starts[0]
        job.program_of, job.is_done = &program_of[0], &is_done[0]
        fault = run(decode, job, source)
        for i in range(job.columns_count):
            counts[0, i] = job.reader.counts.values[i]
            counts[1, i] = job.reader.counts.sizes[i]
        return outcome(fault)

    cdef int _set_columns(self, columns) except -1:
        cdef ks_message_column *column
        cdef uint8_t[::1] values, data, is_valid
        cdef int32_t[::1] ends
        cdef int64_t i
        if len(columns) != self._job.columns_count:
            raise ValueError("columns differ in number")
        for i in range(self._job.columns_count):
            values, ends, data, is_valid = columns[i]
            column = &self._job.columns[i]
            memset(column, 0, sizeof(ks_message_column))
            column.capacity = is_valid.shape[0]
            if column.capacity == 0:
                continue
            column.is_valid = &is_valid[0]
            if values is not None:
                column.values = &values[0]
            if ends is not None:
                if ends.shape[0] != column.capacity:
                    raise ValueError("ends and values differ in length")
                column.ends = &ends[0]
            if data is not None and data.shape[0]:
                column.data, column.data_room = &data[0], data.shape[0]
        self._job.reader.columns = self._job.columns
        return 0
