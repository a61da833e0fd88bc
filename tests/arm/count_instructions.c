/* A plugin of QEMU that counts the instructions that ran, and those of the CRC, PMULL and SHA3
 * extensions among them. Prints "counted TOTAL CRC32 PMULL EOR3" to stderr at the end.
 *
 * Declares the few functions that it uses: Debian does not package qemu-plugin.h. PLUGIN_VERSION
 * is the version of the interface; QEMU names those it accepts.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { QEMU_PLUGIN_CB_NO_REGS = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*callback)(qemu_plugin_id_t,
                                                            struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block,
                                          void (*callback)(unsigned, void *), int flags,
                                          void *context);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*callback)(qemu_plugin_id_t, void *),
                                    void *context);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);

#if PLUGIN_VERSION < 3
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction);

static uint32_t code_of(const struct qemu_plugin_insn *instruction) {
    uint32_t code;
    memcpy(&code, qemu_plugin_insn_data(instruction), sizeof code);
    return code;
}
#else
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction, void *out, size_t size);

static uint32_t code_of(const struct qemu_plugin_insn *instruction) {
    uint32_t code = 0;
    qemu_plugin_insn_data(instruction, &code, sizeof code);
    return code;
}
#endif

EXPORTED int qemu_plugin_version = PLUGIN_VERSION;

/* Counts of a block of code, or of all that ran. */
typedef struct counts {
    uint64_t total, crc32, pmull, eor3;
} counts;

static counts all;

/* Encodings: Arm Architecture Reference Manual, C6.2 and C7.2. */
static void add_instruction(counts *c, uint32_t code) {
    c->total++;
    c->crc32 += (code & 0x7fe0e000) == 0x1ac04000;
    c->pmull += (code & 0xbf20fc00) == 0x0e20e000;
    c->eor3 += (code & 0xffe08000) == 0xce000000;
}

static void on_run(unsigned cpu, void *block) {
    const counts *c = block;
    (void)cpu;
    all.total += c->total;
    all.crc32 += c->crc32;
    all.pmull += c->pmull;
    all.eor3 += c->eor3;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    counts *c = calloc(1, sizeof *c); /* until the end: QEMU keeps the block */
    (void)id;
    if (c == NULL) abort();
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++)
        add_instruction(c, code_of(qemu_plugin_tb_get_insn(block, i)));
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_run, QEMU_PLUGIN_CB_NO_REGS, c);
}

static void on_exit_of_program(qemu_plugin_id_t id, void *context) {
    (void)id, (void)context;
    fprintf(stderr, "counted %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", all.total,
            all.crc32, all.pmull, all.eor3);
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **values) {
    (void)info, (void)count, (void)values;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit_of_program, NULL);
    return 0;
}
