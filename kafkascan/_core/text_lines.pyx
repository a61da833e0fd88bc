"""Make lines of text from columns, in chunks of bounded size."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy

from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport KS_OK, KS_OUTPUT_FULL, KS_SOURCE_FAULT


cdef extern from "java_text.h" nogil:
    const int KS_MAX_SEQUENCE
    const int KS_MAX_DIGITS
    void ks_copy_java_text(
        const uint8_t **text, const uint8_t *limit, uint8_t **out, const uint8_t *room
    )
    int64_t ks_java_text_size(const uint8_t *p, const uint8_t *limit)
    uint8_t *ks_write_decimal(uint8_t *out, int64_t number)


cpdef enum:
    # What a part of a line prints behind its literal.
    NOTHING = 0
    NUMBER = 1                     # of a column of numbers
    NAME = 2                       # one of some texts, by its number in a column
    # Items; the literal is left out where one is null.
    TEXT = 3                       # UTF-8, malformed sequences replaced as Java does
    HEX = 4                        # hexadecimal digits
    BIG_ENDIAN = 5                 # the number that the bytes encode, of 4 or 8
    # Several items for each line.
    TEXTS = 6                      # with commas between them


cdef enum:
    MAX_PARTS = 32
    MAX_FORMS = 8
    # A literal or name fits, and a number behind it.
    SMALLEST_ROOM = 256
    MAX_LITERAL = 200


cdef struct Part:
    int kind
    const uint8_t *literal
    int64_t literal_size
    const int64_t *numbers
    const uint8_t *names
    const int64_t *name_starts
    int64_t names_count
    const uintptr_t *addresses
    const int32_t *sizes
    const int64_t *starts


cdef struct Writer:
    uint8_t *out
    const uint8_t *room            # end of `out`
    const Part *parts[2][MAX_FORMS]
    int64_t parts_count[2][MAX_FORMS]
    const uint8_t *form[2]
    const int64_t *first_line      # by head
    int64_t heads
    # The place of a pause.
    int64_t head
    int64_t row
    int level                      # 0: the head's line, 1: a line that follows it
    int64_t part
    bint is_begun                  # whether the part's literal is written
    int64_t item                   # of TEXTS
    int64_t done                   # bytes of an item


cdef inline bint has_room(const Writer *writer, int64_t size) noexcept nogil:
    return writer.room - writer.out >= size


cdef inline void put(Writer *writer, const uint8_t *data, int64_t size) noexcept nogil:
    memcpy(writer.out, data, size)
    writer.out += size


cdef bint put_text(Writer *writer, const uint8_t *data, int64_t size) noexcept nogil:
    """Write the rest of a text; return False for a pause."""
    cdef const uint8_t *p = data + writer.done
    ks_copy_java_text(&p, data + size, &writer.out, writer.room)
    writer.done = p - data
    return writer.done == size


cdef bint put_hex(Writer *writer, const uint8_t *data, int64_t size) noexcept nogil:
    cdef const char *digits = b"0123456789abcdef"
    while writer.done < size:
        if not has_room(writer, 2):
            return False
        writer.out[0] = digits[data[writer.done] >> 4]
        writer.out[1] = digits[data[writer.done] & 15]
        writer.out += 2
        writer.done += 1
    return True


cdef void put_big_endian(Writer *writer, const uint8_t *data, int64_t size) noexcept nogil:
    cdef int64_t i, number = 0
    if size > 0 and data[0] & 0x80:
        number = -1
    for i in range(size):
        number = <int64_t>(<unsigned long long>number << 8 | data[i])
    writer.out = ks_write_decimal(writer.out, number)


cdef bint put_item(Writer *writer, const Part *part, int64_t row) noexcept nogil:
    cdef const uint8_t *data = <const uint8_t *>part.addresses[row]
    cdef int64_t size = part.sizes[row]
    if part.kind == HEX:
        return put_hex(writer, data, size)
    if part.kind == BIG_ENDIAN:
        put_big_endian(writer, data, size)
        return True
    return put_text(writer, data, size)


cdef bint put_texts(Writer *writer, const Part *part, int64_t row) noexcept nogil:
    cdef int64_t first = part.starts[row], count = part.starts[row + 1] - first
    while writer.item < count:
        if writer.done == 0 and writer.item > 0:
            if not has_room(writer, KS_MAX_SEQUENCE):
                return False
            put(writer, b",", 1)
        # An empty text, or one that is not begun, would get its comma again.
        if not has_room(writer, KS_MAX_SEQUENCE) or not put_text(
            writer,
            <const uint8_t *>part.addresses[first + writer.item],
            part.sizes[first + writer.item],
        ):
            if writer.done == 0 and writer.item > 0:
                writer.out -= 1
            return False
        writer.item += 1
        writer.done = 0
    return True


cdef bint put_part(Writer *writer, const Part *part, int64_t row) noexcept nogil:
    """Write a part of a line; return False for a pause."""
    cdef int64_t name
    if TEXT <= part.kind <= BIG_ENDIAN and part.sizes[row] < 0:
        return True
    if not writer.is_begun:
        if not has_room(writer, SMALLEST_ROOM):
            return False
        put(writer, part.literal, part.literal_size)
        writer.is_begun = True
    if part.kind == NUMBER:
        writer.out = ks_write_decimal(writer.out, part.numbers[row])
    elif part.kind == NAME:
        name = part.numbers[row]
        if 0 <= name < part.names_count:
            if not has_room(writer, part.name_starts[name + 1] - part.name_starts[name]):
                return False
            put(
                writer, part.names + part.name_starts[name],
                part.name_starts[name + 1] - part.name_starts[name],
            )
    elif part.kind == TEXTS:
        return put_texts(writer, part, row)
    elif part.kind != NOTHING:
        return put_item(writer, part, row)
    return True


cdef bint put_line(Writer *writer, int level, int64_t row) noexcept nogil:
    """Write a line, or the rest of one; return False for a pause."""
    cdef uint8_t form = writer.form[level][row]
    cdef const Part *parts = writer.parts[level][form]
    cdef int64_t count = writer.parts_count[level][form]
    while writer.part < count:
        if not put_part(writer, parts + writer.part, row):
            return False
        writer.part += 1
        writer.is_begun = False
        writer.item = 0
        writer.done = 0
    if not has_room(writer, 1):
        return False
    put(writer, b"\n", 1)
    writer.part = 0
    return True


cdef void put_lines(void *context) noexcept nogil:
    cdef Writer *writer = <Writer *>context
    while writer.head < writer.heads:
        if writer.level == 0:
            if not put_line(writer, 0, writer.head):
                return
            writer.level = 1
        while writer.row < writer.first_line[writer.head + 1]:
            if not put_line(writer, 1, writer.row):
                return
            writer.row += 1
        writer.head += 1
        writer.level = 0


cdef class LineForm:
    """
    The parts of a line.

    Parameters
    ----------
    parts : sequence of tuples
        Each has a kind, a literal (bytes), and the columns of the kind: an array of int64 for
        NUMBER and NAME, for the latter also a tuple of bytes; addresses (uintp) and sizes (int32)
        for TEXT, HEX and BIG_ENDIAN; for TEXTS also the first item of each line (int64).
    """

    cdef Part _parts[MAX_PARTS]
    cdef int64_t _count
    cdef int64_t _rows             # of the shortest column
    cdef list _owners

    def __init__(self, parts):
        if len(parts) > MAX_PARTS:
            raise ValueError("a line has too many parts")
        self._owners = []
        self._count = 0
        self._rows = -1
        for kind, literal, *columns in parts:
            self._add(&self._parts[self._count], kind, literal, columns)
            self._count += 1

    cdef int _require_rows(self, int64_t rows) except -1:
        if self._rows not in (-1, rows):
            raise ValueError("columns differ in length")
        self._rows = rows
        return 0

    cdef int _add(self, Part *part, int kind, bytes literal, list columns) except -1:
        cdef const int64_t[::1] numbers
        if not NOTHING <= kind <= TEXTS or len(literal) > MAX_LITERAL:
            raise ValueError("a part has an unknown kind, or a long literal")
        self._owners.append((literal, columns))
        part.kind = kind
        part.literal, part.literal_size = literal, len(literal)
        if kind in (NUMBER, NAME):
            numbers = columns[0]
            self._require_rows(numbers.shape[0])
            part.numbers = &numbers[0] if numbers.shape[0] else NULL
            if kind == NAME:
                self._add_names(part, columns[1])
        elif kind != NOTHING:
            self._add_items(part, kind, columns)
        return 0

    cdef int _add_names(self, Part *part, tuple texts) except -1:
        cdef bytes joined = b"".join(texts)
        cdef int64_t[::1] starts = memoryview(bytearray(8 * (len(texts) + 1))).cast("q")
        cdef int64_t i
        for i in range(len(texts)):
            if len(texts[i]) > SMALLEST_ROOM - MAX_LITERAL:
                raise ValueError("a name is too long")
            starts[i + 1] = starts[i] + len(texts[i])
        self._owners.append((joined, starts))
        part.names, part.name_starts, part.names_count = joined, &starts[0], len(texts)
        return 0

    cdef int _add_items(self, Part *part, int kind, list columns) except -1:
        cdef const uintptr_t[::1] addresses = columns[0]
        cdef const int32_t[::1] sizes = columns[1]
        cdef const int64_t[::1] starts
        cdef int64_t i, items = sizes.shape[0]
        if addresses.shape[0] != items:
            raise ValueError("columns differ in length")
        if kind == TEXTS:
            starts = columns[2]
            if starts.shape[0] == 0 or starts[0] < 0 or starts[starts.shape[0] - 1] > items:
                raise ValueError("starts are out of range")
            for i in range(starts.shape[0] - 1):
                if starts[i] > starts[i + 1]:
                    raise ValueError("starts do not ascend")
            part.starts = &starts[0]
            self._require_rows(starts.shape[0] - 1)
        else:
            self._require_rows(items)
        part.addresses = &addresses[0] if items else NULL
        part.sizes = &sizes[0] if items else NULL
        return 0


cdef class LineWriter:
    """
    Write lines with two levels: heads, each followed by its lines.

    Parameters
    ----------
    head_forms, line_forms : tuple of LineForm
    head_form, line_form : arrays of uint8
        The number of each line's form.
    first_line : array of int64, shape (heads + 1,)
        The first line that follows each head, and the number of lines.
    source : array of uint8
        Those bytes among the items that are a map, whose file may shrink.

    Attributes
    ----------
    end : int
        Where the last chunk ends.
    """

    cdef Writer _writer
    cdef tuple _owners
    cdef const uint8_t[::1] _source
    cdef readonly int64_t end

    def __init__(
        self,
        tuple head_forms not None,
        const uint8_t[::1] head_form not None,
        tuple line_forms not None,
        const uint8_t[::1] line_form not None,
        const int64_t[::1] first_line not None,
        const uint8_t[::1] source not None,
    ):
        cdef int64_t heads = head_form.shape[0], i
        self._owners = head_forms, head_form, line_forms, line_form, first_line
        self._source = source
        if first_line.shape[0] != heads + 1 or first_line[0] != 0:
            raise ValueError("first_line does not fit the heads")
        for i in range(heads):
            if first_line[i] > first_line[i + 1]:
                raise ValueError("first_line does not ascend")
        if first_line[heads] != line_form.shape[0]:
            raise ValueError("first_line does not fit the lines")
        self._add_forms(0, head_forms, head_form)
        self._add_forms(1, line_forms, line_form)
        self._writer.first_line = &first_line[0]
        self._writer.heads = heads

    cdef int _add_forms(self, int level, tuple forms, const uint8_t[::1] numbers) except -1:
        cdef LineForm form
        cdef int64_t i
        if len(forms) > MAX_FORMS:
            raise ValueError("there are too many forms")
        for i, form in enumerate(forms):
            if form._rows not in (-1, numbers.shape[0]):
                raise ValueError("columns and lines differ in length")
            self._writer.parts[level][i] = form._parts
            self._writer.parts_count[level][i] = form._count
        for i in range(numbers.shape[0]):
            if numbers[i] >= len(forms):
                raise ValueError("the number of a form is out of range")
        self._writer.form[level] = &numbers[0] if numbers.shape[0] else NULL
        return 0

    def fill(self, uint8_t[::1] out not None, int64_t start):
        """
        Write lines from a position on, until all are written or the rest of `out` is too small.

        Returns
        -------
        status : int
            KS_OUTPUT_FULL for a pause.
        fault : int
            Position of the byte that faulted, for KS_SOURCE_FAULT.
        """
        cdef Writer *writer = &self._writer
        cdef const uint8_t *source = NULL
        cdef int64_t fault
        if not 0 <= start <= out.shape[0] or out.shape[0] < 2 * SMALLEST_ROOM:
            raise ValueError("the output is too small")
        writer.out = &out[0] + start
        writer.room = &out[0] + out.shape[0]
        if self._source.shape[0]:
            source = &self._source[0]
        with nogil:
            fault = run_guarded(put_lines, writer, source, self._source.shape[0])
        if fault >= 0:
            return KS_SOURCE_FAULT, fault
        self.end = writer.out - &out[0]
        return (KS_OUTPUT_FULL if writer.head < writer.heads else KS_OK), 0


def java_text(const uint8_t[::1] data not None):
    """Return UTF-8 as bytes, with malformed sequences replaced as ``new String`` of Java does."""
    cdef int64_t size
    cdef const uint8_t *p
    cdef const uint8_t *limit
    cdef uint8_t *out
    if data.shape[0] == 0:
        return b""
    p, limit = &data[0], &data[0] + data.shape[0]
    size = ks_java_text_size(p, limit)
    # A copy stops where a sequence of any size might not fit.
    cdef bytearray text = bytearray(size + KS_MAX_SEQUENCE)
    out = text
    ks_copy_java_text(&p, limit, &out, <uint8_t *>text + len(text))
    return bytes(text[:size])
