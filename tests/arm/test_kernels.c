/* Tests of the CRC kernels and of the header decoder, without Python: for every architecture, also
 * under emulation.
 *
 *     test_kernels            print the names of the supported CRC-32C kernels
 *     test_kernels test       test all supported kernels
 *     test_kernels run TABLE KERNEL SIZE COUNT
 *                             sum a message COUNT times, to count instructions; TABLE is crc32c,
 *                             crc32 or header; for header, KERNEL is rows or fields, which decode
 *                             headers, or equals, which compares them with rows
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "batch_row.h"
#include "crc32c.h"

#define REQUIRE(condition, ...) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, ": not %s\n", #condition); \
            exit(1); \
        } \
    } while (0)

typedef struct table {
    const char *name;
    const ks_crc_kernel *kernels;
    int count;
    uint32_t polynomial;
    uint32_t check; /* the CRC of "123456789" */
    int (*answers_correctly)(ks_crc_fn run);
} table;

static table tables[2];

static void find_tables(void) {
    ks_crc_init();
    tables[0] = (table){"crc32c",   ks_crc32c_kernels, ks_crc32c_kernel_count,
                        0x82f63b78, 0xe3069283,        ks_crc32c_answers_correctly};
    tables[1] = (table){"crc32",    ks_crc32_kernels, ks_crc32_kernel_count,
                        0xedb88320, 0xcbf43926,       ks_crc32_answers_correctly};
}

/* ---- checksums, compared with one bit after the other ----------------------------------- */

enum { NOISE = 1 << 17, PAGE_COUNT = 3, LONGEST_AT_ALL = 300, LONGEST_AT_SOME = 1500 };

static uint8_t *noise; /* aligned to 64 bytes */

static void make_noise(void) {
    uint64_t state = 3720;
    noise = aligned_alloc(64, NOISE);
    REQUIRE(noise != NULL, "memory");
    for (int i = 0; i < NOISE; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        noise[i] = (uint8_t)(state >> 56);
    }
}

static uint32_t slow_crc(const table *t, uint32_t crc, const uint8_t *p, size_t size) {
    crc = ~crc;
    for (; size > 0; p++, size--) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (t->polynomial & (0u - (crc & 1)));
    }
    return ~crc;
}

static void require_crc(const table *t, const ks_crc_kernel *kernel, uint32_t before,
                        const uint8_t *p, size_t size, uint32_t expected) {
    uint32_t crc = kernel->run(before, p, size);
    REQUIRE(crc == expected, "%s by %s of %zu bytes, aligned to %zu", t->name, kernel->name, size,
            (size_t)((uintptr_t)p % 64));
}

/* Every length at every alignment; lengths that only loops over larger blocks reach, at some. */
static void test_lengths(const table *t, const ks_crc_kernel *kernel) {
    for (int start = 0; start < 64; start++) {
        uint32_t before = 0x9e3779b9u * (uint32_t)start, expected = before;
        const uint8_t *p = noise + start;
        int longest = start % 13 == 0 ? LONGEST_AT_SOME : LONGEST_AT_ALL;
        for (int size = 0; size <= longest; size++) {
            require_crc(t, kernel, before, p, (size_t)size, expected);
            expected = slow_crc(t, expected, p + size, 1);
        }
    }
}

static void test_long_messages(const table *t, const ks_crc_kernel *kernel) {
    uint32_t expected = 0;
    size_t size = 0;
    for (size_t next = 1600; next < NOISE; next += 1 + next * 7 / 64 + (size_t)noise[next]) {
        expected = slow_crc(t, expected, noise + size, next - size);
        size = next;
        require_crc(t, kernel, 0, noise, size, expected);
        require_crc(t, kernel, kernel->run(0, noise, size / 3), noise + size / 3, size - size / 3,
                    expected);
    }
}

/* Messages that start or end beside a page that may not be read. */
static void test_bounds(const table *t, const ks_crc_kernel *kernel) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages =
        mmap(NULL, PAGE_COUNT * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED, "mmap");
    uint8_t *first = pages + page, *end = first + page;
    memcpy(first, noise, page);
    REQUIRE(mprotect(pages, page, PROT_NONE) == 0 && mprotect(end, page, PROT_NONE) == 0, "guards");
    for (size_t size = 0; size <= page; size += size < 600 ? 1 : 37) {
        require_crc(t, kernel, 0, first, size, slow_crc(t, 0, first, size));
        require_crc(t, kernel, 0, end - size, size, slow_crc(t, 0, end - size, size));
    }
    munmap(pages, PAGE_COUNT * page);
}

/* Kernels that are wrong for messages of one size that begin with two given bytes. */
typedef struct wrong_sum {
    size_t size;
    uint8_t start[2];
} wrong_sum;

static wrong_sum wrong;
static ks_crc_fn correct;

static uint32_t sum_wrongly(uint32_t crc, const uint8_t *data, size_t size) {
    int is_wrong = size == wrong.size && memcmp(data, wrong.start, sizeof wrong.start) == 0;
    return correct(crc, data, size) ^ (uint32_t)is_wrong;
}

/* Each known value is compared, and a value of the portable kernel. */
static void test_rejection(const table *t) {
    static const wrong_sum of_crc32c[] = {
        {32, {0, 0}}, {32, {0xff, 0xff}}, {32, {0, 1}}, {32, {31, 30}}, {200, {0, 0}}};
    static const wrong_sum of_crc32[] = {{9, {'1', '2'}}, {200, {0, 0}}};
    int is_crc32c = t == &tables[0];
    const wrong_sum *sums = is_crc32c ? of_crc32c : of_crc32;
    correct = t->kernels[0].run;
    for (int i = 0; i < (is_crc32c ? 5 : 2); i++) {
        wrong = sums[i];
        REQUIRE(!t->answers_correctly(sum_wrongly), "%s: wrong kernel %d", t->name, i);
    }
}

static void test_table(const table *t) {
    test_rejection(t);
    for (int i = 0; i < t->count; i++) {
        const ks_crc_kernel *kernel = &t->kernels[i];
        if (!kernel->is_supported()) continue;
        require_crc(t, kernel, 0, (const uint8_t *)"123456789", 9, t->check);
        REQUIRE(t->answers_correctly(kernel->run), "%s by %s", t->name, kernel->name);
        test_lengths(t, kernel);
        test_long_messages(t, kernel);
        test_bounds(t, kernel);
        printf("%s by %s: correct\n", t->name, kernel->name);
    }
}

/* ---- headers, compared with one byte after the other ------------------------------------ */

static uint64_t big_endian(const uint8_t *p, int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; i++) value = value << 8 | p[i];
    return value;
}

static void test_header(const uint8_t *p) {
    uint8_t altered[KS_BATCH_HEADER_SIZE];
    ks_batch_row row;
    memset(&row, 0xaa, sizeof row);
    ks_read_header_v2(p, &row);
#define KS_REQUIRE(name, type, offset) \
    REQUIRE(row.name == (KS_CTYPE_##type)big_endian(p + (offset), (int)sizeof row.name), #name);
    KS_BATCH_HEADER(KS_REQUIRE)
#undef KS_REQUIRE
    REQUIRE(row.position == (int64_t)0xaaaaaaaaaaaaaaaa, "the position");
    REQUIRE(ks_equals_header_v2(p, &row), "a header equals its row");
    for (int bit = 0; bit < 8 * KS_BATCH_HEADER_SIZE; bit++) {
        memcpy(altered, p, sizeof altered);
        altered[bit / 8] ^= (uint8_t)(1 << bit % 8);
        REQUIRE(!ks_equals_header_v2(altered, &row), "bit %d of a header differs", bit);
    }
}

static void test_headers(void) {
    /* At the end of memory that may be read, byte by byte. */
    for (int i = 0; i < 500; i++) {
        uint8_t *header = malloc(KS_BATCH_HEADER_SIZE);
        REQUIRE(header != NULL, "memory");
        memcpy(header, noise + 7 * i, KS_BATCH_HEADER_SIZE);
        test_header(header);
        free(header);
    }
    printf("headers: correct\n");
}

/* ---- work whose instructions are counted ----------------------------------------------- */

static int run_kernel(const table *t, const char *name, size_t size, long count) {
    volatile uint32_t crc = 0;
    REQUIRE(size <= NOISE, "the size");
    for (int i = 0; i < t->count; i++) {
        if (strcmp(t->kernels[i].name, name) != 0 || !t->kernels[i].is_supported()) continue;
        for (long turn = 0; turn < count; turn++) crc = t->kernels[i].run(crc, noise, size);
        return 0;
    }
    return 1;
}

/* As without NEON or SSSE3. */
static void read_fields(const uint8_t *p, ks_batch_row *row) {
#define KS_READ(name, type, offset) row->name = ks_load_##type(p + (offset));
    KS_BATCH_HEADER(KS_READ)
#undef KS_READ
}

/* The row is used after each turn, as far as the compiler knows. */
#define REPEAT(count, p, action) \
    for (long turn = 0; turn < (count); turn++) { \
        const uint8_t *p = noise + turn % 64; \
        action; \
        __asm__ volatile("" : : "r"(&row) : "memory"); \
    }

static int run_headers(const char *what, long count) {
    static ks_batch_row row;
    volatile int equal = 0;
    if (strcmp(what, "fields") == 0) REPEAT(count, p, read_fields(p, &row));
    if (strcmp(what, "rows") == 0) REPEAT(count, p, ks_read_header_v2(p, &row));
    if (strcmp(what, "equals") == 0) REPEAT(count, p, equal = ks_equals_header_v2(p, &row));
    return equal;
}

int main(int count, char **arguments) {
    find_tables();
    make_noise();
    if (count == 6 && strcmp(arguments[2], "header") == 0)
        return run_headers(arguments[3], atol(arguments[5]));
    if (count == 6)
        return run_kernel(&tables[strcmp(arguments[2], "crc32c") != 0], arguments[3],
                          (size_t)atol(arguments[4]), atol(arguments[5]));
    if (count == 1) {
        for (int i = 0; i < ks_crc32c_kernel_count; i++)
            if (ks_crc32c_kernels[i].is_supported()) puts(ks_crc32c_kernels[i].name);
        return 0;
    }
    for (int i = 0; i < 2; i++) test_table(&tables[i]);
    test_headers();
    return 0;
}
