/* CRC-32C (Castagnoli) of record batches, for `--verify`: by the processor's instruction if it has one, else by eight
 * tables. Both can continue a CRC, so bytes may come in pieces.
 */
#ifndef NULL_BROKER_CRC32C_H
#define NULL_BROKER_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc32c_tables[8][256];

static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *bytes, size_t length)
{
    crc = ~crc;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint32_t low = crc ^ ((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                              (uint32_t)bytes[3] << 24);
        crc = crc32c_tables[7][low & 0xff] ^ crc32c_tables[6][low >> 8 & 0xff] ^ crc32c_tables[5][low >> 16 & 0xff] ^
              crc32c_tables[4][low >> 24] ^ crc32c_tables[3][bytes[4]] ^ crc32c_tables[2][bytes[5]] ^
              crc32c_tables[1][bytes[6]] ^ crc32c_tables[0][bytes[7]];
    }
    for (; length > 0; bytes++, length--)
        crc = crc >> 8 ^ crc32c_tables[0][(crc ^ *bytes) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *bytes,
                                                                        size_t length)
{
    uint64_t state = (uint32_t)~crc;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        state = __builtin_ia32_crc32di(state, word);
    }
    for (; length > 0; bytes++, length--)
        state = __builtin_ia32_crc32qi((uint32_t)state, *bytes);
    return ~(uint32_t)state;
}
#endif

static uint32_t (*crc32c)(uint32_t crc, const uint8_t *bytes, size_t length) = crc32c_by_table;

/* Call once before the first crc32c(). `by_table` always selects the tables, to test them. */
static void choose_crc32c(int by_table)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        crc32c_tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = crc32c_tables[table - 1][byte];
            crc32c_tables[table][byte] = crc >> 8 ^ crc32c_tables[0][crc & 0xff];
        }
#if defined(__x86_64__)
    if (!by_table && __builtin_cpu_supports("sse4.2"))
        crc32c = crc32c_by_instruction;
#else
    (void)by_table;
#endif
}

#endif
