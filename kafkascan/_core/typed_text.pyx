"""Write the values of typed columns as JSON."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free


cdef extern from "typed_text.h" nogil:
    const int KS_TEXT_KIND_COUNT
    const char *const *ks_text_kind_names

    ctypedef struct ks_text_column:
        const uint8_t *data
        const int32_t *ends
        const uint8_t *is_valid
        const uint8_t *label
        int64_t label_size
        int32_t kind
        int32_t first_child
        int32_t children

    ctypedef struct ks_texts:
        const ks_text_column *columns
        uint8_t *out
        const uint8_t *room
        int style

    bint ks_put_json(ks_texts *texts, const ks_text_column *column, int64_t row)


cdef extern from "quoted_text.h" nogil:
    const int KS_JSON
    const int KS_JSON_UTF8


ASCII, UTF8 = KS_JSON, KS_JSON_UTF8
KINDS = {ks_text_kind_names[i].decode(): i for i in range(KS_TEXT_KIND_COUNT)}


cdef class TextColumns:
    """
    Columns whose values are written; they are not checked.

    Parameters
    ----------
    columns : sequence of tuples
        Kind; label; bytes; ends of items, or None; ones for valid entries, or None; numbers of the
        first column below and of these. Column 0 is the root.
    """

    cdef ks_text_column *columns
    cdef list memory

    def __cinit__(self, columns not None):
        cdef ks_text_column *one
        cdef const uint8_t[::1] label, data, is_valid
        cdef const int32_t[::1] ends
        cdef int i
        self.memory = list(columns)
        self.columns = <ks_text_column *>calloc(len(self.memory), sizeof(ks_text_column))
        if self.columns == NULL:
            raise MemoryError
        for i in range(len(self.memory)):
            one = self.columns + i
            one.kind, label, data, ends, is_valid, one.first_child, one.children = self.memory[i]
            one.label, one.label_size, one.data = b"", label.shape[0], b""
            if label.shape[0]:
                one.label = &label[0]
            if data.shape[0]:
                one.data = &data[0]
            if ends is not None:
                one.ends = &ends[0]
            if is_valid is not None and is_valid.shape[0]:
                one.is_valid = &is_valid[0]

    def __dealloc__(self):
        free(self.columns)

    def write(
        self,
        int64_t first,
        int64_t[::1] ends not None,
        uint8_t[::1] out not None,
        int style,
    ):
        """
        Write rows from one on, until all are written or one has no room.

        Parameters
        ----------
        first : int
        ends : array of int64, shape (n + 1,)
            Where each row ends in `out`, behind a 0; filled.
        out : array of uint8
        style : int

        Returns
        -------
        int
            The next row.
        """
        cdef ks_texts texts
        cdef int64_t row = first, rows = ends.shape[0] - 1
        if not 0 <= first <= rows or ends[first] > out.shape[0]:
            raise ValueError("there is no such row")
        if out.shape[0] == 0:
            return first
        texts.columns, texts.style = self.columns, style
        texts.out, texts.room = &out[0] + ends[first], &out[0] + out.shape[0]
        with nogil:
            while row < rows and ks_put_json(&texts, self.columns, row):
                row += 1
                ends[row] = texts.out - &out[0]
        return row
