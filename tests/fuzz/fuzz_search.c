/* Search for valid batches at every byte (batch_search.h).
 *
 * Input: 1 byte of flags, 1 byte: the CRC kernel, 2 bytes each: position, limit, bytes after the
 * window, 1 byte each: lowest and highest offset, 2 bytes: where a checksum is repaired, then the
 * window. Checked: the search finds what a search without any shortcut finds.
 */
#include "batch_search.h"
#include "fuzz_input.h"

enum { FLAG_ANY_HEADER = 1, FLAG_SIGN = 2, FLAG_ANY_OFFSET = 4, FLAG_SIZE_AFTER = 8 };
enum { MAX_FOUND = 64 };

static ks_crc_shifts castagnoli, ieee;

static void prepare(void) {
    if (castagnoli.polynomial != 0) return;
    ks_crc_init();
    ks_fill_shifts(&castagnoli, KS_CASTAGNOLI_REVERSED);
    ks_fill_shifts(&ieee, KS_IEEE_REVERSED);
}

static ks_crc_fn choose(const ks_crc_kernel *kernels, int count, uint8_t choice) {
    const ks_crc_kernel *kernel = &kernels[choice % count];
    return kernel->is_supported() ? kernel->run : kernels[0].run;
}

/* Makes the checksum of a framed batch right, so that mutations get past it. */
static void sign(uint8_t *p, int64_t available) {
    int64_t size = 0;
    if (ks_frame_batch(p, available, &size) != KS_OK) return;
    int is_legacy = p[KS_AT_magic] != 2;
    int64_t start = is_legacy ? KS_CRC_START_LEGACY : KS_CRC_START_V2;
    ks_crc_fn run = is_legacy ? ks_crc32_kernels[0].run : ks_crc32c_kernels[0].run;
    uint32_t crc = run(0, p + start, (size_t)(size - start));
    uint8_t *at = p + (is_legacy ? KS_V0_AT_crc : KS_AT_crc);
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(crc >> (24 - 8 * i));
}

static int is_valid(const ks_search *search, int64_t at, int64_t size) {
    const uint8_t *p = search->data + at;
    int is_legacy = p[KS_AT_magic] != 2;
    int is_plausible = is_legacy ? ks_is_plausible_legacy(search, p, search->size - at, size)
                                 : ks_is_plausible_v2(search, p);
    if (!is_plausible && !search->any_header) return 0;
    if (size > search->size - at) return 1;
    int64_t start = is_legacy ? KS_CRC_START_LEGACY : KS_CRC_START_V2;
    ks_crc_fn run = is_legacy ? ks_crc32_kernels[0].run : ks_crc32c_kernels[0].run;
    return run(0, p + start, (size_t)(size - start)) ==
           ks_load_u32(p + (is_legacy ? KS_V0_AT_crc : KS_AT_crc));
}

/* The same search, one byte after the other. */
static int search_plainly(const ks_search *search, int64_t *position) {
    int64_t size = 0;
    for (int64_t at = search->position; at < search->limit; at++) {
        int64_t available = search->size - at;
        *position = at;
        if (available < KS_BATCH_HEADER_SIZE && search->size_after > 0) return KS_NEED_WINDOW;
        *position = search->limit;
        if (available < KS_MESSAGE_V0_MIN_SIZE) return KS_AT_STOP;
        *position = at;
        const uint8_t *p = search->data + at;
        if (ks_frame_batch(p, available + search->size_after, &size) != KS_OK) continue;
        if (!is_valid(search, at, size)) continue;
        return size > available ? KS_NEED_WINDOW : KS_OK;
    }
    *position = search->limit;
    return KS_AT_STOP;
}

/* The search for the rest of the window found nothing. It may know this of bytes for whose header
 * the plain search needs the next window, but only if no batch is framed there. */
static void require_no_frames(const ks_search *search, int64_t from, int64_t to) {
    int64_t size = 0;
    REQUIRE(from <= to && to <= search->limit);
    for (int64_t at = from; at < to; at++) {
        int64_t left = search->size - at + search->size_after;
        REQUIRE(search->size - at >= KS_SIZE_UP_TO_MAGIC);
        REQUIRE(ks_frame_batch(search->data + at, left, &size) != KS_OK);
    }
}

static void require_same_batches(ks_search *search) {
    for (int found = 0; found < MAX_FOUND; found++) {
        int64_t expected = -1;
        int expected_status = search_plainly(search, &expected);
        int status = ks_find_batch(search);
        if (expected_status == KS_NEED_WINDOW && search->size - expected < KS_BATCH_HEADER_SIZE) {
            REQUIRE(status == KS_NEED_WINDOW || status == KS_AT_STOP);
            require_no_frames(search, expected, search->position);
            return;
        }
        REQUIRE(status == expected_status && search->position == expected);
        if (status != KS_OK) return;
        search->position++;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    prepare();
    fuzz_input input = {data, size};
    uint8_t flags = (uint8_t)fuzz_take(&input, 1), kernel = (uint8_t)fuzz_take(&input, 1);
    int64_t position = (int64_t)fuzz_take(&input, 2), limit = (int64_t)fuzz_take(&input, 2);
    int64_t size_after = (int64_t)fuzz_take(&input, 2);
    int64_t lowest = (int64_t)fuzz_take(&input, 1), highest = (int64_t)fuzz_take(&input, 1);
    int64_t signed_at = (int64_t)fuzz_take(&input, 2), left = (int64_t)input.left;
    uint8_t *window = fuzz_copy_rest(&input);
    position %= left + 1;
    if (flags & FLAG_SIGN) sign(window + signed_at % (left + 1), left - signed_at % (left + 1));
    size_t sums = (size_t)(left / KS_SUM_STEP + 2);
    ks_search search = {
        .data = window,
        .size = left,
        .size_after = flags & FLAG_SIZE_AFTER ? size_after : 0,
        .position = position,
        .limit = limit == 0 ? left : limit % (left + 1),
        .lowest = flags & FLAG_ANY_OFFSET ? 0 : lowest,
        .highest = flags & FLAG_ANY_OFFSET ? INT64_MAX : highest,
        .any_header = flags & FLAG_ANY_HEADER,
        .crc32c = {choose(ks_crc32c_kernels, ks_crc32c_kernel_count, kernel), &castagnoli, window,
                   fuzz_allocate(sums, sizeof(uint32_t)), 0, 0},
        .crc32 = {choose(ks_crc32_kernels, ks_crc32_kernel_count, kernel), &ieee, window,
                  fuzz_allocate(sums, sizeof(uint32_t)), 0, 0},
    };
    require_same_batches(&search);
    free(search.crc32c.sums);
    free(search.crc32.sums);
    free(window);
    return 0;
}
