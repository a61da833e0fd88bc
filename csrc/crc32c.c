#include "crc32c.h"

#include "crc_kernels.h"

#if defined(__x86_64__)
#include "crc_x86.h"
#elif defined(__aarch64__)
#include "crc_arm.h"
#endif

static ks_slicing_table castagnoli_table;
static ks_slicing_table ieee_table;

static void fill_table(ks_slicing_table table, uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (polynomial & (0u - (crc & 1)));
        table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = table[k - 1][byte];
            table[k][byte] = (before >> 8) ^ table[0][before & 0xff];
        }
    }
}

static int always(void) { return 1; }

static uint32_t crc32c_portable(uint32_t crc, const uint8_t *data, size_t size) {
    return ~ks_slice_by_8(castagnoli_table, ~crc, data, size);
}

static uint32_t crc32_portable(uint32_t crc, const uint8_t *data, size_t size) {
    return ~ks_slice_by_8(ieee_table, ~crc, data, size);
}

#if defined(__x86_64__)
static uint32_t crc32_pclmul(uint32_t crc, const uint8_t *data, size_t size) {
    return ks_crc32_pclmul(crc, data, size, ieee_table);
}
#endif

const ks_crc_kernel ks_crc32c_kernels[] = {
    {"portable", crc32c_portable, always},
#if defined(__x86_64__)
    {"sse4.2", ks_castagnoli_streams, ks_has_sse42},
    {"avx512", ks_crc32c_avx512, ks_has_avx512},
#elif defined(__aarch64__)
    {"arm-crc32", ks_crc32c_arm_crc32, ks_has_arm_crc32},
    {"arm-pmull", ks_castagnoli_streams, ks_has_arm_pmull},
    {"arm-sha3", ks_crc32c_arm_sha3, ks_has_arm_sha3},
#endif
};

const ks_crc_kernel ks_crc32_kernels[] = {
    {"portable", crc32_portable, always},
#if defined(__x86_64__)
    {"pclmul", crc32_pclmul, ks_has_sse42},
#elif defined(__aarch64__)
    {"arm-crc32", ks_crc32_arm_crc32, ks_has_arm_crc32},
    {"arm-pmull", ks_ieee_streams, ks_has_arm_pmull},
    {"arm-sha3", ks_crc32_arm_sha3, ks_has_arm_sha3},
#endif
};

const int ks_crc32c_kernel_count = sizeof ks_crc32c_kernels / sizeof *ks_crc32c_kernels;
const int ks_crc32_kernel_count = sizeof ks_crc32_kernels / sizeof *ks_crc32_kernels;

void ks_crc_init(void) {
    fill_table(castagnoli_table, KS_CASTAGNOLI);
    fill_table(ieee_table, KS_IEEE);
#if defined(__x86_64__)
    ks_init_x86();
#elif defined(__aarch64__)
    ks_init_arm();
#endif
}

/* Enough bytes for every loop of every kernel; the portable kernels are the reference. */
enum { LONG_DATA = 16384 + 77 };

static int agrees_with(ks_crc_fn judge, ks_crc_fn run) {
    static uint8_t data[LONG_DATA];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * i >> 5);
    for (size_t size = 0; size <= sizeof data; size = size < 320 ? size + 1 : 2 * size + 1)
        if (run(7, data, size) != judge(7, data, size)) return 0;
    return run(0, data, sizeof data) == judge(0, data, sizeof data);
}

int ks_crc32c_answers_correctly(ks_crc_fn run) {
    uint8_t data[32];
    memset(data, 0x00, sizeof data);
    if (run(0, data, sizeof data) != 0x8a9136aau) return 0;
    memset(data, 0xff, sizeof data);
    if (run(0, data, sizeof data) != 0x62a8ab43u) return 0;
    for (int i = 0; i < 32; i++) data[i] = (uint8_t)i;
    if (run(0, data, sizeof data) != 0x46dd794eu) return 0;
    for (int i = 0; i < 32; i++) data[i] = (uint8_t)(31 - i);
    if (run(0, data, sizeof data) != 0x113fdb5cu) return 0;
    return agrees_with(crc32c_portable, run);
}

int ks_crc32_answers_correctly(ks_crc_fn run) {
    if (run(0, (const uint8_t *)"123456789", 9) != 0xcbf43926u) return 0;
    return agrees_with(crc32_portable, run);
}
