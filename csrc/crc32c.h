/* Checksums of batches: CRC-32C (magic 2) and CRC-32 (magic 0 and 1).
 *
 * Each has several kernels; ks_crc32c_kernels and ks_crc32_kernels list the compiled ones,
 * slowest first. kafkascan/_core/checksums.pyx selects one at import and calls it through its
 * pointer.
 */
#ifndef KAFKASCAN_CRC32C_H
#define KAFKASCAN_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of `size` bytes that follow bytes whose CRC is `crc` (0 for none), so that
 * kernel(kernel(0, a), b) is the CRC of a followed by b. */
typedef uint32_t (*ks_crc_fn)(uint32_t crc, const uint8_t *data, size_t size);

typedef struct ks_crc_kernel {
    const char *name;
    ks_crc_fn run;
    int (*is_supported)(void); /* by the current CPU */
} ks_crc_kernel;

extern const ks_crc_kernel ks_crc32c_kernels[];
extern const int ks_crc32c_kernel_count;

/* The same for CRC-32 as zlib computes it (IEEE 802.3). */
extern const ks_crc_kernel ks_crc32_kernels[];
extern const int ks_crc32_kernel_count;

/* Fills the tables. Must be called once, before any kernel. */
void ks_crc_init(void);

/* Whether a kernel returns the known values (RFC 3720, appendix B.4) and, for many sizes, the
 * values of the portable kernel. */
int ks_crc32c_answers_correctly(ks_crc_fn run);
int ks_crc32_answers_correctly(ks_crc_fn run);

#endif /* KAFKASCAN_CRC32C_H */
