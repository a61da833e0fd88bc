/* Parse the framing of compressed data (compressed.h), and decode small blocks of snappy
 * (small_blocks.h).
 *
 * Input: 1 byte: the codec, then the data. Checked: blocks are inside of the data, do not overlap
 * and have a bounded size, sizes do not exceed what the format allows, and outputs fit their room.
 */
#include "compressed.h"
#include "fuzz_input.h"
#include "small_blocks.h"

enum { CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD, CODECS };

/* Decode a block into memory of exactly its room. */
static void decode_block(const ks_block *block) {
    uint8_t *output = fuzz_allocate((size_t)block->room, 1);
    int64_t made = ks_decode_small_snappy(block->data, block->size, output, block->room);
    REQUIRE(made == -1 || made == block->room);
    free(output);
}

static void follow_blocks(ks_blocks blocks, const uint8_t *data, int64_t size) {
    int64_t room = 0, expected = ks_room_of_blocks(blocks);
    const uint8_t *previous_end = data;
    ks_block block;
    ks_block_found found;
    while ((found = ks_next_block(&blocks, &block)) == KS_BLOCK_FOUND) {
        REQUIRE(block.size > 0 && block.data >= previous_end);
        REQUIRE(block.size <= data + size - block.data);
        REQUIRE(block.room > 0 && block.room <= KS_LZ4_LARGEST_RATIO * block.size);
        if (blocks.lz4_block_size)
            REQUIRE(block.room <= blocks.lz4_block_size);
        else if (block.room <= KS_SMALL_OUTPUT)
            decode_block(&block);
        if (block.checksum != NULL) {
            REQUIRE(block.checksum == block.data + block.size);
            REQUIRE(data + size - block.checksum >= 4);
        }
        previous_end = block.data + block.size;
        room += block.room;
    }
    REQUIRE(expected == (found == KS_BLOCKS_END ? room : 0));
}

static void parse_gzip(const uint8_t *data, int64_t size) {
    int64_t hint = -1, most = -1;
    if (!ks_gzip_member(data, size, &hint, &most)) return;
    REQUIRE(hint >= 0 && hint <= most && most <= KS_GZIP_LARGEST_RATIO * size);
}

static void parse_zstd(const uint8_t *data, int64_t size) {
    int64_t most = -1, window = -1, least_of_all = -1, most_of_all = -1;
    ks_zstd_status status = ks_zstd_bounds(data, size, &least_of_all, &most_of_all);
    REQUIRE(0 <= least_of_all && least_of_all <= most_of_all);
    REQUIRE(most_of_all <= KS_ZSTD_LARGEST_BLOCK * (size / 3));
    if (!ks_zstd_frame(data, size, &most, &window)) return;
    REQUIRE(status == KS_ZSTD_FRAMES && most_of_all == most);
    REQUIRE(window >= 0 && window <= KS_ZSTD_LARGEST_WINDOW);
    REQUIRE(most > 0 && most <= KS_ZSTD_LARGEST_BLOCK * (size / 3));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    int codec = (int)fuzz_take(&input, 1) % CODECS;
    uint8_t *bytes = fuzz_copy_rest(&input);
    int64_t left = (int64_t)input.left;
    ks_blocks blocks;
    if (codec == CODEC_GZIP) {
        parse_gzip(bytes, left);
    } else if (codec == CODEC_ZSTD) {
        parse_zstd(bytes, left);
    } else if (codec == CODEC_SNAPPY) {
        if (ks_snappy_blocks(bytes, left, &blocks)) follow_blocks(blocks, bytes, left);
    } else if (ks_lz4_blocks(bytes, left, &blocks)) {
        follow_blocks(blocks, bytes, left);
    }
    free(bytes);
    return 0;
}
