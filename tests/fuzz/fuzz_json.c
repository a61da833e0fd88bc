/* Decode JSON into typed columns (json_values.h).
 *
 * Input: 2 bytes: entries and bytes that each column has room for, then the text, twice in a row.
 * Checked: columns that belong together have as many entries, whether a value is decoded or not.
 */
#include "fuzz_input.h"
#include "json_values.h"

enum { COLUMNS = 14, ROOT = 0, LARGEST_WIDTH = 8 };

/* Kind, width, first column below, number of these. */
static const int32_t layout[COLUMNS][4] = {
    {KS_STRUCTS, 0, 1, 8},  {KS_VALUES, 8, 0, 0}, {KS_VALUES, 8, 0, 0},   {KS_ITEMS, 0, 0, 0},
    {KS_VALUES, 1, 0, 0},   {KS_ITEMS, 0, 0, 0},  {KS_LISTS, 0, 9, 1},    {KS_LISTS, 0, 10, 1},
    {KS_STRUCTS, 0, 11, 1}, {KS_VALUES, 8, 0, 0}, {KS_STRUCTS, 0, 12, 2}, {KS_ITEMS, 0, 0, 0},
    {KS_ITEMS, 0, 0, 0},    {KS_VALUES, 8, 0, 0},
};
static const uint8_t names[] = "insbtlmo";
static const int32_t parts[] = {
    1,  2,  3, 4, 5, 6, 7, 8,                         /* the steps of the members of the root */
    3,  0,  5, 6, 1, 7, 2, 4,                         /* their order by name */
    0,  1,  1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1, 7, 1, /* their names */
    9,  10,       /* the steps of an item, and of a value of the map */
    11, 0,  2, 1, /* the member of the inner object */
};
static const ks_json_step steps[] = {
    {KS_JSON_OBJECT, 0, 0, 32, 1, COLUMNS}, {KS_JSON_INTEGER, 1, 0, 0, 1, 1},
    {KS_JSON_NUMBER, 2, 0, 0, 1, 1},        {KS_JSON_STRING, 3, 0, 0, 1, 1},
    {KS_JSON_BOOLEAN, 4, 0, 0, 1, 1},       {KS_JSON_TEXT, 5, 0, 0, 1, 1},
    {KS_JSON_ARRAY, 6, 32, 1, 1, 2},        {KS_JSON_MAP, 7, 33, 1, 1, 4},
    {KS_JSON_OBJECT, 8, 34, 4, 1, 2},       {KS_JSON_INTEGER, 9, 0, 0, 1, 1},
    {KS_JSON_NUMBER, 13, 0, 0, 1, 1},       {KS_JSON_STRING, 11, 0, 0, 1, 1},
};

static void allocate(ks_column *columns, int64_t capacity, int64_t room) {
    memset(columns, 0, COLUMNS * sizeof *columns);
    for (int i = 0; i < COLUMNS; i++) {
        ks_column *one = columns + i;
        one->kind = layout[i][0];
        one->width = layout[i][1];
        one->first_child = layout[i][2];
        one->children = layout[i][3];
        one->capacity = capacity;
        one->room = room;
        one->data =
            fuzz_allocate(1, (size_t)(one->kind == KS_ITEMS ? room : capacity * one->width) + 1);
        one->ends = fuzz_allocate((size_t)capacity + 1, sizeof *one->ends);
        one->is_valid = fuzz_allocate((size_t)capacity, 1);
        memset(one->is_valid, 1, (size_t)capacity);
    }
}

static void require_entries(const ks_column *columns, const ks_column *one, int64_t entries) {
    REQUIRE(one->entries == entries && entries <= one->capacity);
    if (one->kind == KS_ITEMS) REQUIRE(one->size == one->ends[entries] && one->size <= one->room);
    int64_t below = one->kind == KS_LISTS ? one->ends[entries] : entries;
    for (int32_t i = 0; i < one->children; i++) {
        require_entries(columns, columns + one->first_child + i, below);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    int64_t capacity = (int64_t)fuzz_take(&input, 1), room = (int64_t)fuzz_take(&input, 1) * 8;
    uint8_t *text = fuzz_copy_rest(&input);
    ks_column columns[COLUMNS];
    allocate(columns, capacity, room);
    ks_json json = {.typed = {.columns = columns},
                    .steps = steps,
                    .parts = parts,
                    .constants = names,
                    .c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    for (int64_t rows = 0, again = 0; again < 2; again++) {
        ks_begin_value(&json.typed, (int64_t)input.left);
        ks_json_at end = ks_json_run(&json, steps, text, text + input.left);
        REQUIRE(end == NULL || (end >= text && end <= text + input.left));
        REQUIRE((end == NULL) == (json.typed.status != KS_OK));
        if (end != NULL) {
            rows++;
        } else {
            ks_cut_column(&json.typed, columns, rows);
        }
        require_entries(columns, columns, rows);
    }
    freelocale(json.c_locale);
    for (int i = 0; i < COLUMNS; i++) {
        free(columns[i].data);
        free(columns[i].ends);
        free(columns[i].is_valid);
    }
    free(text);
    return 0;
}
