/* What the system reports about the CPU, reduced to the features that the test allows: a CPU
 * without them, as far as dispatch is concerned. Linked with --wrap=getauxval. */
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "macos/sys/sysctl.h"

static const char *allowed_features(void) {
    const char *names = getenv("ALLOWED_FEATURES");
    return names != NULL ? names : "crc32 pmull sha3";
}

static int is_allowed(const char *name) { return strstr(allowed_features(), name) != NULL; }

unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);

unsigned long __wrap_getauxval(unsigned long type) {
    unsigned long value = __real_getauxval(type);
    if (type != AT_HWCAP) return value;
    if (!is_allowed("crc32")) value &= ~(unsigned long)HWCAP_CRC32;
    if (!is_allowed("pmull")) value &= ~(unsigned long)HWCAP_PMULL;
    if (!is_allowed("sha3")) value &= ~(unsigned long)HWCAP_SHA3;
    return value;
}

/* The names of macOS 12 and newer. As there, an unknown name is an error. */
int sysctlbyname(const char *name, void *value, size_t *size, void *new_value, size_t new_size) {
    static const char *const features[][2] = {{"hw.optional.armv8_crc32", "crc32"},
                                              {"hw.optional.arm.FEAT_PMULL", "pmull"},
                                              {"hw.optional.armv8_2_sha3", "sha3"}};
    if (new_value != NULL || new_size != 0 || *size != sizeof(int)) return -1;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        if (strcmp(name, features[i][0]) != 0) continue;
        int answer = is_allowed(features[i][1]);
        memcpy(value, &answer, sizeof answer);
        return 0;
    }
    return -1;
}
