/* The part of macOS's header that csrc uses, to run its dispatch elsewhere. */
#ifndef TESTS_ARM_SYSCTL_H
#define TESTS_ARM_SYSCTL_H

#include <stddef.h>

int sysctlbyname(const char *name, void *value, size_t *size, void *new_value, size_t new_size);

#endif
