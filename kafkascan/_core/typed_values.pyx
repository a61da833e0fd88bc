"""Decode the values of records into columns with types."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free

from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport KS_OK, KS_OUTPUT_FULL, KS_SOURCE_FAULT


cdef extern from "typed_columns.h" nogil:
    const int KS_VALUES
    const int KS_ITEMS
    const int KS_LISTS
    const int KS_STRUCTS

    ctypedef struct ks_column:
        uint8_t *data
        int32_t *ends
        uint8_t *is_valid
        int64_t entries
        int64_t capacity
        int64_t size
        int64_t room
        int32_t kind
        int32_t width
        int32_t first_child
        int32_t children
        int32_t may_repeat_keys
        int64_t reached_entries
        int64_t reached_size

    ctypedef struct ks_typed_place:
        const uint8_t *at
        int32_t column

    ctypedef struct ks_typed:
        ks_column *columns
        int64_t needed
        int32_t full
        int status
        int remark
        ks_typed_place failed
        ks_typed_place remarked

    void ks_begin_value(ks_typed *typed, int64_t size)
    int ks_put_null(ks_typed *typed, ks_column *column)
    void ks_cut_column(ks_typed *typed, ks_column *column, int64_t entries)


cdef extern from "avro.h" nogil:
    ctypedef struct ks_avro_step:
        int32_t op
        int32_t column
        int32_t first_part
        int32_t parts
        int64_t size
        int64_t at

    ctypedef struct ks_avro:
        ks_typed typed
        const ks_avro_step *steps
        const int32_t *parts
        const uint8_t *constants

    const int KS_AVRO_OP_COUNT
    const char *const *ks_avro_op_names

    const uint8_t *ks_avro_run(
        ks_avro *avro, const ks_avro_step *step, const uint8_t *p, const uint8_t *limit
    )


cdef extern from "protobuf.h" nogil:
    ctypedef void *locale_t

    ctypedef struct ks_pb_message:
        int32_t kind

    ctypedef struct ks_pb_field:
        int32_t oneof

    ctypedef struct ks_pb_instance:
        int64_t serial

    ctypedef struct ks_pb_choice:
        int64_t serial

    ctypedef struct ks_protobuf:
        ks_typed typed
        const ks_pb_message *messages
        const ks_pb_field *fields
        const int32_t *parts
        ks_pb_instance *instances
        ks_pb_choice *choices
        int64_t serial
        locale_t c_locale

    const int KS_PB_OP_COUNT
    const int KS_PB_KIND_COUNT
    const char *const *ks_pb_op_names
    const char *const *ks_pb_kind_names

    const uint8_t *ks_pb_run(
        ks_protobuf *pb, int64_t path, const uint8_t *p, const uint8_t *limit
    )


cdef extern from "json_values.h" nogil:
    ctypedef struct ks_json_step:
        int32_t op

    ctypedef struct ks_json:
        ks_typed typed
        const ks_json_step *steps
        const int32_t *parts
        const uint8_t *constants
        locale_t c_locale

    const int KS_JSON_OP_COUNT
    const char *const *ks_json_op_names

    locale_t newlocale(int mask, const char *name, locale_t base)
    const int LC_ALL_MASK

    const uint8_t *ks_json_run(
        ks_json *json, const ks_json_step *step, const uint8_t *p, const uint8_t *limit
    )


cdef extern from "kafka_status.h" nogil:
    const int KS_VALUE_BYTES_LEFT


VALUES, ITEMS, LISTS, STRUCTS = KS_VALUES, KS_ITEMS, KS_LISTS, KS_STRUCTS
AVRO_OPS = {ks_avro_op_names[i].decode(): i for i in range(KS_AVRO_OP_COUNT)}
PROTOBUF_OPS = {ks_pb_op_names[i].decode(): i for i in range(KS_PB_OP_COUNT)}
PROTOBUF_KINDS = {ks_pb_kind_names[i].decode(): i for i in range(KS_PB_KIND_COUNT)}
JSON_OPS = {ks_json_op_names[i].decode(): i for i in range(KS_JSON_OP_COUNT)}

cdef locale_t c_locale = newlocale(LC_ALL_MASK, b"C", <locale_t>NULL)


cdef class TypedColumns:
    """
    Columns that are filled, numbered so that those below a column are contiguous and come later.

    Parameters
    ----------
    layout : array of int32, shape (columns, 4)
        Kind, width in bytes, first column below it, and number of these. Column 0 is the root.
    """

    cdef ks_column *columns
    cdef readonly int count
    cdef list memory

    def __cinit__(self, const int32_t[:, ::1] layout not None):
        cdef int i
        self.count = <int>layout.shape[0]
        if self.count == 0 or layout.shape[1] != 4:
            raise ValueError("a layout has four numbers for each of its columns")
        self.memory = [None] * self.count
        self.columns = <ks_column *>calloc(self.count, sizeof(ks_column))
        if self.columns == NULL:
            raise MemoryError
        for i in range(self.count):
            self.columns[i].kind = layout[i, 0]
            self.columns[i].width = layout[i, 1]
            self.columns[i].first_child = layout[i, 2]
            self.columns[i].children = layout[i, 3]
            if layout[i, 3] < 0 or layout[i, 1] < 0 or (
                layout[i, 3] and not i < layout[i, 2] <= self.count - layout[i, 3]
            ):
                raise ValueError("the columns below a column come after it")

    def __dealloc__(self):
        free(self.columns)

    def give(
        self,
        int column,
        int64_t capacity,
        uint8_t[::1] data,
        int32_t[::1] ends,
        uint8_t[::1] is_valid,
    ):
        """
        Give a column its memory, which begins with the entries that it has.

        Parameters
        ----------
        column : int
        capacity : int
            Entries that there is room for.
        data, ends, is_valid : arrays or None
            Values or bytes of items; `capacity` + 1 ends, of which the first is 0; ones.
        """
        if not 0 <= column < self.count or capacity > INT32_MAX:
            raise ValueError("there is no such column, or it has too many entries")
        cdef ks_column *one = self.columns + column
        cdef int64_t room = 0 if data is None else data.shape[0]
        if (
            capacity < one.entries
            or (one.kind == KS_VALUES and room < capacity * one.width)
            or (one.kind == KS_ITEMS and not one.size <= room <= INT32_MAX)
            or (one.kind in (KS_ITEMS, KS_LISTS) and (
                ends is None or ends.shape[0] != capacity + 1 or ends[0] != 0))
            or (is_valid is not None and is_valid.shape[0] != capacity)
        ):
            raise ValueError("the memory does not have the size of the column")
        one.data = &data[0] if room else NULL
        one.ends = NULL if ends is None else &ends[0]
        one.is_valid = NULL if is_valid is None or capacity == 0 else &is_valid[0]
        one.capacity, one.room = capacity, room
        self.memory[column] = (data, ends, is_valid)

    def reached(self, int column):
        """Return the same numbers as the value had made them for which a column had no room."""
        if not 0 <= column < self.count:
            raise IndexError(column)
        return self.columns[column].reached_entries, self.columns[column].reached_size

    def entries(self, int column):
        """Return the number of entries of a column, and of bytes of its items."""
        if not 0 <= column < self.count:
            raise IndexError(column)
        return self.columns[column].entries, self.columns[column].size

    def may_repeat_keys(self, int column):
        """Whether a map of the column may have a key more than once."""
        if not 0 <= column < self.count:
            raise IndexError(column)
        return self.columns[column].may_repeat_keys != 0


# Appends one value; `first` is where its program begins. Returns the end of its bytes, or NULL.
ctypedef const uint8_t *(*Machine)(
    void *machine, int64_t first, const uint8_t *p, const uint8_t *limit
) noexcept nogil


cdef struct Decoding:
    Machine run
    void *machine
    ks_typed *typed                # of the machine
    int64_t first_count
    int column_count
    const uintptr_t *address       # by value
    const int32_t *size
    const int32_t *first_step      # -1: a null, because of `status`
    uint8_t *status
    int32_t *place                 # two of each value: a column, and where the part of it begins
    int64_t done
    int64_t stop


cdef const uint8_t *run_avro(
    void *machine, int64_t first, const uint8_t *p, const uint8_t *limit
) noexcept nogil:
    cdef ks_avro *avro = <ks_avro *>machine
    return ks_avro_run(avro, avro.steps + first, p, limit)


cdef const uint8_t *run_json(
    void *machine, int64_t first, const uint8_t *p, const uint8_t *limit
) noexcept nogil:
    cdef ks_json *json = <ks_json *>machine
    return ks_json_run(json, json.steps + first, p, limit)


cdef const uint8_t *run_protobuf(
    void *machine, int64_t first, const uint8_t *p, const uint8_t *limit
) noexcept nogil:
    return ks_pb_run(<ks_protobuf *>machine, first, p, limit)


cdef void keep_reached(ks_column *columns, int count) noexcept nogil:
    cdef int i
    for i in range(count):
        columns[i].reached_entries = columns[i].entries
        columns[i].reached_size = columns[i].size


cdef void keep_place(
    Decoding *job, ks_typed_place place, const uint8_t *first
) noexcept nogil:
    """Keep what the status of a value is about; -1 if that is not known."""
    job.place[2 * job.done] = place.column
    job.place[2 * job.done + 1] = -1
    if place.column >= 0 and place.at != NULL:
        job.place[2 * job.done + 1] = <int32_t>(place.at - first)


cdef bint decode_one(Decoding *job) noexcept nogil:
    """Append one value, or a null; False if a column is full."""
    cdef ks_typed *typed = job.typed
    cdef int64_t row = job.done, rows = typed.columns.entries, size = job.size[row]
    cdef int64_t first = job.first_step[row]
    # Bytes of size 0 may have no address, but NULL means that a value cannot be decoded.
    cdef const uint8_t *p = <const uint8_t *>(job.address[row] if size else <uintptr_t>&size)
    cdef const uint8_t *end
    if 0 <= first < job.first_count and size >= 0:
        ks_begin_value(typed, size)
        end = job.run(job.machine, first, p, p + size)
        if end == p + size:
            if typed.remark != KS_OK:
                job.status[row] = <uint8_t>typed.remark
                keep_place(job, typed.remarked, p)
            return True
        if end != NULL:
            typed.status = KS_VALUE_BYTES_LEFT
        if typed.status == KS_OUTPUT_FULL:
            keep_reached(typed.columns, job.column_count)
        ks_cut_column(typed, typed.columns, rows)
        if typed.status == KS_OUTPUT_FULL:
            return False
        job.status[row] = <uint8_t>typed.status
        keep_place(job, typed.failed, p)
    if ks_put_null(typed, typed.columns):
        return True
    ks_cut_column(typed, typed.columns, rows)
    return False


cdef void decode_values(void *context) noexcept nogil:
    cdef Decoding *job = <Decoding *>context
    while job.done < job.stop and decode_one(job):
        job.done += 1


cdef tuple decode(
    Decoding *job,
    TypedColumns columns,
    const uintptr_t[::1] address,
    const int32_t[::1] size,
    const int32_t[::1] first_step,
    uint8_t[::1] status,
    int32_t[:, ::1] place,
    int64_t first,
    int64_t stop,
    const uint8_t[::1] source,
):
    cdef int64_t count = address.shape[0], fault = -1
    if not (size.shape[0] == first_step.shape[0] == status.shape[0] == place.shape[0] == count):
        raise ValueError("arrays differ in length")
    if place.shape[1] != 2:
        raise ValueError("a place has two numbers")
    if not 0 <= first <= stop <= count:
        raise ValueError("there are no such values")
    job.typed.columns, job.column_count = columns.columns, columns.count
    job.typed.full = -1
    if first < stop:
        job.address, job.size, job.first_step = &address[0], &size[0], &first_step[0]
        job.status, job.place = &status[0], &place[0, 0]
        job.done, job.stop = first, stop
        with nogil:
            if source is None or source.shape[0] == 0:
                decode_values(job)
            else:
                fault = run_guarded(decode_values, job, &source[0], source.shape[0])
    if fault >= 0:
        return KS_SOURCE_FAULT, job.done, -1, 0, fault
    if job.done < stop and first < stop:
        return KS_OUTPUT_FULL, job.done, job.typed.full, job.typed.needed, -1
    return KS_OK, stop, -1, 0, -1


def decode_into(
    TypedColumns columns not None,
    const uint8_t[::1] steps not None,
    const int32_t[::1] parts not None,
    const uint8_t[::1] constants not None,
    const uintptr_t[::1] address not None,
    const int32_t[::1] size not None,
    const int32_t[::1] first_step not None,
    uint8_t[::1] status not None,
    int32_t[:, ::1] place not None,
    int64_t first,
    int64_t stop,
    const uint8_t[::1] source,
):
    """
    Append values to columns, until a column is full.

    Parameters
    ----------
    columns : TypedColumns
    steps, parts, constants : arrays
        Programs of kafkascan.schemas.programs.avro_program, which are not checked.
    address, size : arrays of n
        Of the values.
    first_step : array of n
        Of the program of each value; -1 for one that is not decoded, which becomes a null.
    status : array of n
        Is set for values that become nulls because they cannot be decoded, and for those that are
        not exactly what was written.
    place : array of int32, shape (n, 2)
        Is set together with a status: the column that it is about, and where what is written of it
        begins, from the begin of the value; -1 if these are not known.
    first, stop : int
        The values to decode.
    source : buffer, optional
        That may be a map and contains some of the values.

    Returns
    -------
    status : int
        OK, or OUTPUT_FULL.
    done : int
        The next value.
    full, needed : int
        The column without room, and how many bytes of an item it needs, or 0 for an entry.
    fault : int
        Where the source could not be read, or -1.
    """
    cdef ks_avro avro
    cdef Decoding job
    if steps.shape[0] % sizeof(ks_avro_step):
        raise ValueError("steps have another size")
    job.run, job.machine, job.typed = run_avro, &avro, &avro.typed
    job.first_count = steps.shape[0] // sizeof(ks_avro_step)
    avro.steps = <const ks_avro_step *>&steps[0] if job.first_count else NULL
    avro.parts = &parts[0] if parts.shape[0] else NULL
    avro.constants = &constants[0] if constants.shape[0] else <const uint8_t *>b""
    return decode(&job, columns, address, size, first_step, status, place, first, stop, source)


def decode_json_into(
    TypedColumns columns not None,
    const uint8_t[::1] steps not None,
    const int32_t[::1] parts not None,
    const uint8_t[::1] names not None,
    const uintptr_t[::1] address not None,
    const int32_t[::1] size not None,
    const int32_t[::1] first_step not None,
    uint8_t[::1] status not None,
    int32_t[:, ::1] place not None,
    int64_t first,
    int64_t stop,
    const uint8_t[::1] source,
):
    """
    Append values in JSON to columns, until a column is full.

    Parameters
    ----------
    columns : TypedColumns
    steps, parts, names : arrays
        A program of kafkascan.schemas.programs.json_program, which is not checked.
    address, size, first_step, status, place, first, stop, source
        As for `decode_into`.

    Returns
    -------
    tuple
        As from `decode_into`.
    """
    cdef ks_json json
    cdef Decoding job
    if steps.shape[0] % sizeof(ks_json_step):
        raise ValueError("steps have another size")
    job.run, job.machine, job.typed = run_json, &json, &json.typed
    job.first_count = steps.shape[0] // sizeof(ks_json_step)
    json.steps = <const ks_json_step *>&steps[0] if job.first_count else NULL
    json.parts = &parts[0] if parts.shape[0] else NULL
    json.constants = &names[0] if names.shape[0] else <const uint8_t *>b""
    json.c_locale = c_locale
    return decode(&job, columns, address, size, first_step, status, place, first, stop, source)


def decode_protobuf_into(
    TypedColumns columns not None,
    const uint8_t[::1] messages not None,
    const uint8_t[::1] fields not None,
    const int32_t[::1] parts not None,
    const uintptr_t[::1] address not None,
    const int32_t[::1] size not None,
    const int32_t[::1] first_step not None,
    uint8_t[::1] status not None,
    int32_t[:, ::1] place not None,
    int64_t first,
    int64_t stop,
    const uint8_t[::1] source,
):
    """
    Append values of Protobuf messages to columns, until a column is full.

    Parameters
    ----------
    columns : TypedColumns
    messages, fields, parts : arrays
        A program of kafkascan.schemas.programs.protobuf_program, which is not checked.
    address, size : arrays of n
        Of the values.
    first_step : array of n
        What the program expects before each value; -1 for one that is not decoded.
    status, place, first, stop, source
        As for `decode_into`.

    Returns
    -------
    tuple
        As from `decode_into`.
    """
    cdef ks_protobuf pb
    cdef Decoding job
    cdef int64_t message_count = messages.shape[0] // sizeof(ks_pb_message)
    cdef int64_t field_count = fields.shape[0] // sizeof(ks_pb_field)
    if (
        message_count * sizeof(ks_pb_message) != <size_t>messages.shape[0] or message_count == 0
        or field_count * sizeof(ks_pb_field) != <size_t>fields.shape[0] or field_count == 0
    ):
        raise ValueError("messages or fields have another size")
    job.run, job.machine, job.typed = run_protobuf, &pb, &pb.typed
    job.first_count = parts.shape[0]
    pb.messages = <const ks_pb_message *>&messages[0]
    pb.fields = <const ks_pb_field *>&fields[0]
    pb.parts = &parts[0] if job.first_count else NULL
    pb.serial, pb.c_locale = 0, c_locale
    pb.instances = <ks_pb_instance *>calloc(message_count, sizeof(ks_pb_instance))
    pb.choices = <ks_pb_choice *>calloc(field_count, sizeof(ks_pb_choice))
    try:
        if pb.instances == NULL or pb.choices == NULL:
            raise MemoryError
        return decode(&job, columns, address, size, first_step, status, place, first, stop, source)
    finally:
        free(pb.instances)
        free(pb.choices)
