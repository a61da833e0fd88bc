/* Reading a map whose file may shrink under it.
 *
 * A byte of a map that lies behind the file's end, or that the disk cannot deliver,
 * raises SIGBUS, which would end the process. ks_run_guarded() runs a job so that a
 * fault inside of [data, data + size) ends the job instead.
 */
#ifndef KAFKASCAN_FAULT_GUARD_H
#define KAFKASCAN_FAULT_GUARD_H

#include <stddef.h>
#include <stdint.h>

typedef void (*ks_job)(void *context);

/* Runs job(context). Returns -1 when it came to its end, else the offset into
 * `data` of the byte that could not be read; the job was then abandoned where it
 * stood, so it must own nothing and hold no lock. */
int64_t ks_run_guarded(ks_job job, void *context, const uint8_t *data, size_t size);

#endif /* KAFKASCAN_FAULT_GUARD_H */
