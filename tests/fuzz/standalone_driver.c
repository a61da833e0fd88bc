/* Runs a fuzz target where libFuzzer is not installed: mutates the corpus at random, without
 * coverage. Usage: TARGET CORPUS SECONDS SEED FAILED_INPUT
 *
 * If the target fails, the input is written to FAILED_INPUT.
 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "fuzz_input.h"

enum { LARGEST = 1 << 16, MAX_SEEDS = 4096, MAX_MUTATIONS = 8 };

static struct {
    uint8_t *bytes;
    size_t size;
} seeds[MAX_SEEDS];
static size_t seed_count;
static uint8_t current[2 * LARGEST];
static size_t current_size;
static const char *failed_input;
static uint64_t state;

static uint64_t next_random(void) { /* splitmix64 */
    uint64_t n = state += 0x9e3779b97f4a7c15;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
    n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
    return n ^ (n >> 31);
}

static size_t below(size_t limit) { return limit ? (size_t)(next_random() % limit) : 0; }

static void keep_input(int number) {
    FILE *file = fopen(failed_input, "wb");
    if (file != NULL) {
        fwrite(current, 1, current_size, file);
        fclose(file);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void load_seeds(const char *folder) {
    DIR *entries = opendir(folder);
    struct dirent *entry;
    char path[4096];
    if (entries == NULL) return;
    while ((entry = readdir(entries)) != NULL && seed_count < MAX_SEEDS) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "rb");
        if (file == NULL) continue;
        uint8_t *bytes = fuzz_allocate(LARGEST, 1);
        seeds[seed_count].size = fread(bytes, 1, LARGEST, file);
        seeds[seed_count++].bytes = bytes;
        fclose(file);
    }
    closedir(entries);
}

static void insert(size_t at, const uint8_t *bytes, size_t size) {
    if (current_size + size > LARGEST) return;
    memmove(current + at + size, current + at, current_size - at);
    memcpy(current + at, bytes, size);
    current_size += size;
}

static void mutate(void) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, 2, 4, 0x10};
    size_t at = below(current_size), size = 1 + below(8), other = below(seed_count);
    if (current_size == 0) return;
    if (size > current_size - at) size = current_size - at;
    switch (below(6)) {
        case 0:
            current[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            current[at] = (uint8_t)next_random();
            break;
        case 2:
            memset(current + at, edges[below(sizeof edges)], size);
            break;
        case 3: /* delete */
            memmove(current + at, current + at + size, current_size - at - size);
            current_size -= size;
            break;
        case 4: { /* repeat a range */
            uint8_t range[8];
            memcpy(range, current + at, size);
            insert(below(current_size + 1), range, size);
            break;
        }
        default: { /* a range of another seed */
            size_t from = below(seeds[other].size), most = seeds[other].size - from;
            insert(at, seeds[other].bytes + from, below(most < 64 ? most + 1 : 64));
        }
    }
}

static double seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    double limit = atof(argv[2]);
    state = strtoull(argv[3], NULL, 10);
    failed_input = argv[4];
    load_seeds(argv[1]);
    if (seed_count == 0) return 2;
    signal(SIGABRT, keep_input);
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    unsigned long runs = 0;
    for (; runs < seed_count || runs % 256 != 0 || seconds_since(&start) < limit; runs++) {
        size_t seed = runs < seed_count ? (size_t)runs : below(seed_count);
        current_size = seeds[seed].size;
        memcpy(current, seeds[seed].bytes, current_size);
        if (runs >= seed_count)
            for (size_t i = 1 + below(MAX_MUTATIONS); i > 0; i--) mutate();
        LLVMFuzzerTestOneInput(current, current_size);
    }
    printf("Done %lu runs\n", runs);
    return 0;
}
