/* Read from a map whose file may be truncated meanwhile.
 *
 * Reading a mapped byte after the end of the file, or one that the disk cannot deliver, raises
 * SIGBUS, which would end the process. ks_run_guarded() runs a job so that a fault in
 * [data, data + size) ends only the job.
 */
#ifndef KAFKASCAN_FAULT_GUARD_H
#define KAFKASCAN_FAULT_GUARD_H

#include <stddef.h>
#include <stdint.h>

typedef void (*ks_job)(void *context);

/* Runs job(context). Returns -1 after it has finished, or the offset into `data` of the byte
 * that could not be read. In that case the job was aborted at that instruction, so it must not
 * own memory or hold locks. */
int64_t ks_run_guarded(ks_job job, void *context, const uint8_t *data, size_t size);

#endif /* KAFKASCAN_FAULT_GUARD_H */
