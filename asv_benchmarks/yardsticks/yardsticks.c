/* What the machine can do: measuring sticks, not readers. No bounds checks worth the name. */
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t wide[6];
    int32_t narrow[6];
    int16_t small[2];
    int8_t tiny[4];
} row;

static uint64_t load8(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

static uint32_t load4(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

static uint16_t load2(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}

/* The plain dependent walk: what every reader does that chases one length after another.
 * Writes one row of 80 bytes per batch, as a reader has to; returns how many. */
int64_t plain_walk(const uint8_t *data, int64_t size, void *out) {
    row *rows = out;
    int64_t position = 0, count = 0;
    while (position + 61 <= size) {
        const uint8_t *p = data + position;
        int64_t batch_size = (int64_t)load4(p + 8) + 12;
        if (position + batch_size > size) break;
        row *r = &rows[count++];
        r->wide[0] = position;
        r->wide[1] = (int64_t)load8(p);
        r->wide[2] = (int64_t)load8(p + 27);
        r->wide[3] = (int64_t)load8(p + 35);
        r->wide[4] = (int64_t)load8(p + 43);
        r->wide[5] = r->wide[1] + (int32_t)load4(p + 23);
        r->narrow[0] = (int32_t)batch_size;
        r->narrow[1] = (int32_t)load4(p + 12);
        r->narrow[2] = (int32_t)load4(p + 17);
        r->narrow[3] = (int32_t)load4(p + 23);
        r->narrow[4] = (int32_t)load4(p + 53);
        r->narrow[5] = (int32_t)load4(p + 57);
        r->small[0] = (int16_t)load2(p + 21);
        r->small[1] = (int16_t)load2(p + 51);
        r->tiny[0] = (int8_t)p[16];
        position += batch_size;
    }
    return count;
}

/* One word of every cache line: the bandwidth at which one core can read memory once. */
uint64_t touch(const uint8_t *data, int64_t size) {
    uint64_t seen = 0;
    for (int64_t i = 0; i + 64 <= size; i += 64) {
        uint64_t v;
        memcpy(&v, data + i, 8);
        seen ^= v;
    }
    return seen;
}
