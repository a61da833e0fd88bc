"""Make lines of text from columns, in chunks of bounded size."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy

from kafkascan._core.guard cimport run_guarded
from kafkascan._core.layout cimport KS_OK, KS_OUTPUT_FULL, KS_ROW_MISMATCH, KS_SOURCE_FAULT
from kafkascan._core.record_headers cimport Header, read_header


cdef extern from "java_text.h" nogil:
    const int KS_MAX_SEQUENCE
    const int KS_MAX_DIGITS
    void ks_copy_java_text(
        const uint8_t **text, const uint8_t *limit, uint8_t **out, const uint8_t *room
    )
    int64_t ks_java_text_size(const uint8_t *p, const uint8_t *limit)
    uint8_t *ks_write_decimal(uint8_t *out, int64_t number)


cdef extern from "quoted_text.h" nogil:
    const int KS_JSON
    const int KS_JAVA_JSON
    const int KS_CSV
    const int KS_JSON_IN_CSV
    const int KS_NEEDS_QUOTES
    const int KS_HAS_RETURN
    void ks_copy_quoted(
        const uint8_t **text, const uint8_t *limit, uint8_t **out, const uint8_t *room, int style
    )
    void ks_copy_base64(
        const uint8_t **data, const uint8_t *limit, uint8_t **out, const uint8_t *room
    )
    int ks_csv_marks(const uint8_t *p, const uint8_t *limit)
    bint ks_starts_formula(uint8_t byte)


cpdef enum:
    # What a part of a line prints behind its literal.
    NOTHING = 0
    NUMBER = 1                     # of a column of numbers
    NAME = 2                       # one of some texts, by its number in a column
    # Items. A null is `null` in JSON and an empty cell in CSV; in plain lines, not even the
    # literal is written.
    TEXT = 3                       # UTF-8
    HEX = 4                        # hexadecimal digits
    BASE64 = 5
    BIG_ENDIAN = 6                 # the number that the bytes encode, of 4 or 8
    READY = 7                      # as it is: a number, or JSON
    MIXED = 8                      # one of these kinds for each line
    # The headers of a record.
    HEADER_KEYS = 9
    HEADERS = 10


cpdef enum:
    # How a line is written.
    PLAIN = 0                      # malformed UTF-8 replaced as Java does
    JSON = 1                       # in ASCII; a byte that is not UTF-8 becomes \\xff
    JAVA_JSON = 2                  # in ASCII; malformed UTF-8 replaced as Java does
    CSV = 3                        # a byte that is not UTF-8 becomes \xff


cpdef enum:
    MAX_PARTS = 96
    MAX_LITERAL = 200


cdef enum:
    MAX_FORMS = 8
    # A literal or name fits, and what is around it, and a number behind it.
    SMALLEST_ROOM = 256
    # The first six bits of a `+` in base64.
    BASE64_PLUS = 62


cdef struct Part:
    int kind
    const uint8_t *literal
    int64_t literal_size
    const int64_t *numbers
    const uint8_t *names
    const int64_t *name_starts
    int64_t names_count
    const uint8_t *kinds           # of MIXED
    const uintptr_t *addresses     # of items, or of the first header
    const int32_t *sizes           # of items, or numbers of headers
    const int64_t *rooms           # bytes in which headers must be
    int header_kind                # of the values of headers


cdef struct Form:
    const Part *parts
    int64_t count
    int dialect
    const uint8_t *end
    int64_t end_size


cdef enum Step:
    # What is next of a header.
    TO_BEGIN
    TO_WRITE_KEY
    TO_SEPARATE
    TO_WRITE_VALUE
    TO_END
    NO_STEP


cdef struct Writer:
    uint8_t *out
    const uint8_t *room            # end of `out`
    Form forms[2][MAX_FORMS]
    const uint8_t *form[2]
    const int64_t *first_line      # by head
    int64_t heads
    bint failed                    # whether headers are out of bounds
    # The place of a pause.
    int64_t head
    int64_t row
    int level                      # 0: the head's line, 1: a line that follows it
    int64_t part
    bint is_begun                  # whether the part's literal is written
    bint is_quoted                 # whether a quotation mark follows the part
    int64_t done                   # bytes of an item
    int64_t item                   # headers that were begun
    int step                       # of one header
    Header header
    const uint8_t *next_header
    bint is_all_quoted             # each cell of the line
    uint8_t marks[MAX_PARTS]       # of the cells of the line


cdef inline bint has_room(const Writer *writer, int64_t size) noexcept nogil:
    return writer.room - writer.out >= size


cdef inline void put(Writer *writer, const uint8_t *data, int64_t size) noexcept nogil:
    memcpy(writer.out, data, size)
    writer.out += size


cdef inline void put_byte(Writer *writer, uint8_t byte) noexcept nogil:
    writer.out[0] = byte
    writer.out += 1


# ---- items -----------------------------------------------------------------------------------


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


cdef bint put_ready(Writer *writer, const uint8_t *data, int64_t size) noexcept nogil:
    cdef int64_t some = min(size - writer.done, writer.room - writer.out)
    put(writer, data + writer.done, some)
    writer.done += some
    return writer.done == size


cdef bint put_bytes(
    Writer *writer, int kind, int dialect, int style, const uint8_t *data, int64_t size
) noexcept nogil:
    """Write the rest of an item; return False for a pause."""
    cdef const uint8_t *p = data + writer.done
    if size <= 0:
        return True
    if kind == HEX:
        return put_hex(writer, data, size)
    if kind == READY and dialect != CSV:
        return put_ready(writer, data, size)
    if kind == BASE64:
        ks_copy_base64(&p, data + size, &writer.out, writer.room)
    elif dialect == PLAIN:
        ks_copy_java_text(&p, data + size, &writer.out, writer.room)
    else:
        ks_copy_quoted(&p, data + size, &writer.out, writer.room, style)
    writer.done = p - data
    return writer.done == size


cdef void put_big_endian(Writer *writer, const uint8_t *data, int64_t size) noexcept nogil:
    cdef int64_t i, number = 0
    if size > 0 and data[0] & 0x80:
        number = -1
    for i in range(size):
        number = <int64_t>(<unsigned long long>number << 8 | data[i])
    writer.out = ks_write_decimal(writer.out, number)


cdef inline int style_of(int dialect) noexcept nogil:
    if dialect == CSV:
        return KS_CSV
    return KS_JSON if dialect == JSON else KS_JAVA_JSON


# ---- headers ---------------------------------------------------------------------------------


cdef void put_marked(Writer *writer, int dialect, const char *text) noexcept nogil:
    """Write JSON, of which CSV doubles the quotation marks."""
    cdef int64_t i = 0
    while text[i]:
        if text[i] == c'"' and dialect == CSV:
            put_byte(writer, c'"')
        put_byte(writer, text[i])
        i += 1


cdef bint begin_header(Writer *writer, const Part *part, int dialect, int64_t row) noexcept nogil:
    """Read the next header, and write what precedes its key."""
    cdef const uint8_t *first = <const uint8_t *>part.addresses[row]
    if writer.item == 0:
        writer.next_header = first
    writer.next_header = read_header(writer.next_header, first + part.rooms[row], &writer.header)
    if writer.next_header == NULL:
        writer.failed = True
        return False
    if writer.item > 0:
        put_marked(writer, dialect, b"," if dialect == PLAIN else b", ")
    if part.kind == HEADERS:
        put_marked(writer, dialect, b'{"key": "')
    elif dialect != PLAIN:
        put_marked(writer, dialect, b'"')
    writer.item += 1
    writer.done = 0
    return True


cdef bint put_header(Writer *writer, const Part *part, int dialect, int64_t row) noexcept nogil:
    """Write a header, or the rest of one; return False for a pause."""
    cdef const Header *header = &writer.header
    cdef int style = KS_JSON_IN_CSV if dialect == CSV else style_of(dialect)
    while writer.step != NO_STEP:
        # A pause is between steps, or inside of a key or value.
        if not has_room(writer, SMALLEST_ROOM):
            return False
        if writer.step == TO_BEGIN:
            if not begin_header(writer, part, dialect, row):
                return False
        elif writer.step == TO_WRITE_KEY:
            if not put_bytes(writer, TEXT, dialect, style, header.key, header.key_size):
                return False
        elif writer.step == TO_SEPARATE and part.kind == HEADERS:
            put_marked(writer, dialect, b'", "value": ')
            put_marked(writer, dialect, b"null" if header.value_size < 0 else b'"')
            writer.done = 0
        elif writer.step == TO_WRITE_VALUE and part.kind == HEADERS:
            if not put_bytes(
                writer, part.header_kind, dialect, style, header.value, header.value_size
            ):
                return False
        elif writer.step == TO_END:
            if dialect != PLAIN and (part.kind == HEADER_KEYS or header.value_size >= 0):
                put_marked(writer, dialect, b'"')
            if part.kind == HEADERS:
                put_byte(writer, c"}")
        writer.step += 1
    return True


cdef bint put_headers(Writer *writer, const Part *part, int dialect, int64_t row) noexcept nogil:
    """Write the headers of a record, or the rest of them; return False for a pause."""
    while writer.step != NO_STEP or writer.item < part.sizes[row]:
        if writer.step == NO_STEP:
            writer.step = TO_BEGIN
        if not put_header(writer, part, dialect, row):
            return False
    if dialect == PLAIN or (dialect == CSV and part.sizes[row] <= 0):
        return True
    # The quotation mark that follows in CSV must fit, too: nothing is written twice.
    if not has_room(writer, 2):
        return False
    put_byte(writer, c"]")
    return True


# ---- parts -----------------------------------------------------------------------------------


cdef inline int kind_of(const Part *part, int64_t row) noexcept nogil:
    return part.kinds[row] if part.kind == MIXED else part.kind


cdef inline bint is_item(int kind) noexcept nogil:
    return TEXT <= kind <= READY


cdef void mark_cells(Writer *writer, const Form *form, int64_t row) noexcept nogil:
    """Find what the cells of a line contain. As a reader may take a carriage return for the end
    of a line, each cell of a line with one is quoted."""
    cdef const Part *part
    cdef const uint8_t *data
    cdef int kind
    cdef int64_t i
    writer.is_all_quoted = False
    for i in range(form.count):
        part = form.parts + i
        writer.marks[i] = 0
        kind = kind_of(part, row)
        if (kind == TEXT or kind == READY) and part.sizes[row] > 0:
            data = <const uint8_t *>part.addresses[row]
            writer.marks[i] = ks_csv_marks(data, data + part.sizes[row])
            if writer.marks[i] & KS_HAS_RETURN:
                writer.is_all_quoted = True


cdef inline bint is_quoted_cell(
    const Writer *writer, const Form *form, const Part *part, int kind, int64_t row
) noexcept nogil:
    if writer.is_all_quoted or writer.marks[writer.part] & KS_NEEDS_QUOTES:
        return True
    if kind == HEADERS:
        return part.sizes[row] > 0 or form.count == 1
    # An empty line would be no row.
    return form.count == 1 and is_item(kind) and part.sizes[row] <= 0


cdef inline bint is_formula(const Part *part, int kind, int64_t row) noexcept nogil:
    """Whether a spreadsheet would evaluate a text."""
    cdef uint8_t first
    if (kind != TEXT and kind != BASE64) or part.sizes[row] <= 0:
        return False
    first = (<const uint8_t *>part.addresses[row])[0]
    return ks_starts_formula(first) if kind == TEXT else first >> 2 == BASE64_PLUS


cdef void begin_part(
    Writer *writer, const Form *form, const Part *part, int kind, int64_t row
) noexcept nogil:
    """Write what precedes the value of a part."""
    put(writer, part.literal, part.literal_size)
    writer.is_quoted = False
    if form.dialect == CSV:
        writer.is_quoted = is_quoted_cell(writer, form, part, kind, row)
    elif form.dialect != PLAIN and TEXT <= kind <= BASE64:
        writer.is_quoted = part.sizes[row] >= 0
    if writer.is_quoted:
        put_byte(writer, c'"')
    if form.dialect == CSV and is_formula(part, kind, row):
        put_byte(writer, c"'")
    if kind >= HEADER_KEYS and form.dialect != PLAIN:
        if form.dialect != CSV or part.sizes[row] > 0:
            put_byte(writer, c"[")
    writer.is_begun = True
    writer.item = 0
    writer.step = NO_STEP
    writer.done = 0


cdef bint put_name(Writer *writer, const Part *part, int64_t row) noexcept nogil:
    cdef int64_t name = part.numbers[row], size
    if not 0 <= name < part.names_count:
        return True
    size = part.name_starts[name + 1] - part.name_starts[name]
    if not has_room(writer, size + 1):
        return False
    put(writer, part.names + part.name_starts[name], size)
    return True


cdef bint put_value(
    Writer *writer, const Form *form, const Part *part, int kind, int64_t row
) noexcept nogil:
    """Write the value of a part, or the rest of it; return False for a pause."""
    cdef const uint8_t *data
    if kind == NOTHING:
        return True
    if kind == NUMBER:
        writer.out = ks_write_decimal(writer.out, part.numbers[row])
        return True
    if kind == NAME:
        return put_name(writer, part, row)
    if kind >= HEADER_KEYS:
        return put_headers(writer, part, form.dialect, row)
    if part.sizes[row] < 0:
        if form.dialect != CSV:
            put(writer, b"null", 4)
        return True
    data = <const uint8_t *>part.addresses[row]
    if kind == BIG_ENDIAN:
        put_big_endian(writer, data, part.sizes[row])
        return True
    return put_bytes(writer, kind, form.dialect, style_of(form.dialect), data, part.sizes[row])


cdef bint put_part(Writer *writer, const Form *form, int64_t row) noexcept nogil:
    """Write a part of a line; return False for a pause."""
    cdef const Part *part = form.parts + writer.part
    cdef int kind = kind_of(part, row)
    if form.dialect == PLAIN and is_item(kind) and part.sizes[row] < 0:
        return True
    if not writer.is_begun:
        if not has_room(writer, SMALLEST_ROOM):
            return False
        begin_part(writer, form, part, kind, row)
    if not put_value(writer, form, part, kind, row):
        return False
    if writer.is_quoted:
        if not has_room(writer, 1):
            return False
        put_byte(writer, c'"')
    return True


cdef bint put_line(Writer *writer, int level, int64_t row) noexcept nogil:
    """Write a line, or the rest of one; return False for a pause."""
    cdef const Form *form = &writer.forms[level][writer.form[level][row]]
    if form.dialect == CSV and writer.part == 0 and not writer.is_begun:
        mark_cells(writer, form, row)
    while writer.part < form.count:
        if not put_part(writer, form, row):
            return False
        writer.part += 1
        writer.is_begun = False
    if not has_room(writer, form.end_size):
        return False
    put(writer, form.end, form.end_size)
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


# ---- columns ---------------------------------------------------------------------------------


cdef class LineForm:
    """
    The parts of a line.

    Parameters
    ----------
    parts : sequence of tuples
        Each has a kind, a literal (bytes), and the columns of the kind: an array of int64 for
        NUMBER and NAME, for the latter also a tuple of bytes; addresses (uintp) and sizes (int32)
        for items, before them an array of uint8 for MIXED; for headers the addresses of the first
        ones (uintp), their numbers (int32) and the sizes of the memory from there on (int64), for
        HEADERS also the kind of their values.
    dialect : int, default PLAIN
        CSV has no BIG_ENDIAN and no HEADER_KEYS.
    end : bytes, default a newline
        Follows the last part.
    """

    cdef Part _parts[MAX_PARTS]
    cdef int64_t _count
    cdef int _dialect
    cdef bytes _end
    cdef int64_t _rows             # of the shortest column
    cdef list _owners

    def __init__(self, parts, int dialect=PLAIN, bytes end not None=b"\n"):
        if len(parts) > MAX_PARTS or len(end) > MAX_LITERAL:
            raise ValueError("a line has too many parts, or a long end")
        if not PLAIN <= dialect <= CSV:
            raise ValueError("the dialect is unknown")
        self._dialect, self._end = dialect, end
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
        if not NOTHING <= kind <= HEADERS or len(literal) > MAX_LITERAL:
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
        elif kind >= HEADER_KEYS:
            self._add_headers(part, columns)
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
        cdef const uint8_t[::1] kinds
        cdef int64_t i
        if kind == MIXED:
            kinds = columns.pop(0)
            self._require_rows(kinds.shape[0])
            for i in range(kinds.shape[0]):
                if not is_item(kinds[i]):
                    raise ValueError("an item has an unknown kind")
            part.kinds = &kinds[0] if kinds.shape[0] else NULL
            self._owners.append(kinds)
        self._add_located(part, columns)
        return 0

    cdef int _add_located(self, Part *part, list columns) except -1:
        cdef const uintptr_t[::1] addresses = columns[0]
        cdef const int32_t[::1] sizes = columns[1]
        self._require_rows(addresses.shape[0])
        self._require_rows(sizes.shape[0])
        part.addresses = &addresses[0] if addresses.shape[0] else NULL
        part.sizes = &sizes[0] if sizes.shape[0] else NULL
        return 0

    cdef int _add_headers(self, Part *part, list columns) except -1:
        cdef const int64_t[::1] rooms = columns[2]
        self._add_located(part, columns)
        self._require_rows(rooms.shape[0])
        part.rooms = &rooms[0] if rooms.shape[0] else NULL
        part.header_kind = columns[3] if part.kind == HEADERS else TEXT
        if not TEXT <= part.header_kind <= BASE64:
            raise ValueError("values of headers have an unknown kind")
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
        cdef Form *copy
        cdef int64_t i
        if len(forms) > MAX_FORMS:
            raise ValueError("there are too many forms")
        for i, form in enumerate(forms):
            if form._rows not in (-1, numbers.shape[0]):
                raise ValueError("columns and lines differ in length")
            copy = &self._writer.forms[level][i]
            copy.parts, copy.count, copy.dialect = form._parts, form._count, form._dialect
            copy.end, copy.end_size = form._end, len(form._end)
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
            KS_OUTPUT_FULL for a pause; KS_ROW_MISMATCH if headers are out of bounds.
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
        if writer.failed:
            return KS_ROW_MISMATCH, 0
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
