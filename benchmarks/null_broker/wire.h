/* Reading and writing Kafka's primitive types; used by every other part of the null broker.
 *
 * 1. A Reader never reads at or beyond `end`. The first read that would do so sets `is_short`, and it and all later
 *    reads return zero. So a parser checks `is_short` only once, before it uses the values.
 * 2. A value that no later bytes can make valid sets `is_bad`. A request is parsed while it arrives, so the two
 *    differ: short means wait, bad means close.
 * 3. Writers grow their buffer; running out of memory ends the process.
 */
#ifndef NULL_BROKER_WIRE_H
#define NULL_BROKER_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *reallocate(void *old, size_t size)
{
    void *memory = realloc(old, size);
    if (memory == NULL) {
        fputs("null_broker: out of memory\n", stderr);
        abort();
    }
    return memory;
}

/* ---- reading ---- */

typedef struct {
    const uint8_t *at, *end;
    bool is_short, is_bad;
} Reader;

typedef struct {
    const uint8_t *bytes; /* NULL is Kafka's null */
    uint32_t length;
} Slice;

static const uint8_t *take(Reader *reader, uint32_t length)
{
    static const uint8_t zeros[16];
    if (!reader->is_short && length <= (size_t)(reader->end - reader->at)) {
        const uint8_t *bytes = reader->at;
        reader->at += length;
        return bytes;
    }
    reader->is_short = true;
    return zeros; /* for the fixed sizes below; a Slice is never used after a short read */
}

static uint8_t read_u8(Reader *reader)
{
    return *take(reader, 1);
}

static int16_t get_i16(const uint8_t *bytes)
{
    return (int16_t)(bytes[0] << 8 | bytes[1]);
}

static int32_t get_i32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return (int32_t)__builtin_bswap32(value);
}

static int64_t get_i64(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return (int64_t)__builtin_bswap64(value);
}

static int16_t read_i16(Reader *reader)
{
    return get_i16(take(reader, 2));
}

static int32_t read_i32(Reader *reader)
{
    return get_i32(take(reader, 4));
}

/* Unsigned LEB128 of 32 bits. */
static uint32_t read_varint(Reader *reader)
{
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        uint8_t byte = read_u8(reader);
        value |= (uint32_t)(byte & 0x7f) << (shift < 32 ? shift : 0);
        if (!(byte & 0x80))
            return value;
    }
    reader->is_bad = true;
    return 0;
}

/* A length or count: -1 is null. Compact ones are stored plus one (KIP-482). */
static int64_t read_length(Reader *reader, bool is_compact, bool is_i16)
{
    int64_t length = is_compact ? (int64_t)read_varint(reader) - 1 : is_i16 ? read_i16(reader) : read_i32(reader);
    if (length < -1 || length > INT32_MAX) {
        reader->is_bad = true;
        return -1;
    }
    return length;
}

static Slice read_string(Reader *reader, bool is_compact)
{
    int64_t length = read_length(reader, is_compact, true);
    if (length < 0)
        return (Slice){NULL, 0};
    return (Slice){take(reader, (uint32_t)length), (uint32_t)length};
}

static int64_t read_count(Reader *reader, bool is_compact)
{
    return read_length(reader, is_compact, false);
}

static void skip_tags(Reader *reader)
{
    uint32_t count = read_varint(reader);
    for (; count > 0 && !reader->is_short && !reader->is_bad; count--) {
        (void)read_varint(reader);
        (void)take(reader, read_varint(reader));
    }
}

/* ---- writing ---- */

typedef struct {
    uint8_t *bytes;
    size_t length, capacity;
} Writer;

static uint8_t *extend(Writer *writer, size_t length)
{
    if (writer->capacity - writer->length < length) {
        writer->capacity = (writer->length + length) * 2;
        writer->bytes = reallocate(writer->bytes, writer->capacity);
    }
    uint8_t *place = writer->bytes + writer->length;
    writer->length += length;
    return place;
}

static void put_i32(uint8_t *place, int32_t value)
{
    uint32_t swapped = __builtin_bswap32((uint32_t)value);
    memcpy(place, &swapped, sizeof swapped);
}

static void write_u8(Writer *writer, uint8_t value)
{
    *extend(writer, 1) = value;
}

static void write_i16(Writer *writer, int16_t value)
{
    uint16_t swapped = __builtin_bswap16((uint16_t)value);
    memcpy(extend(writer, 2), &swapped, sizeof swapped);
}

static void write_i32(Writer *writer, int32_t value)
{
    put_i32(extend(writer, 4), value);
}

static void write_i64(Writer *writer, int64_t value)
{
    uint64_t swapped = __builtin_bswap64((uint64_t)value);
    memcpy(extend(writer, 8), &swapped, sizeof swapped);
}

static void write_varint(Writer *writer, uint32_t value)
{
    for (; value >= 0x80; value >>= 7)
        write_u8(writer, (uint8_t)(value | 0x80));
    write_u8(writer, (uint8_t)value);
}

static void write_bytes(Writer *writer, const void *bytes, size_t length)
{
    if (length > 0)
        memcpy(extend(writer, length), bytes, length);
}

static void write_count(Writer *writer, int64_t count, bool is_compact)
{
    if (is_compact)
        write_varint(writer, (uint32_t)(count + 1));
    else
        write_i32(writer, (int32_t)count);
}

static void write_string(Writer *writer, Slice text, bool is_compact)
{
    int64_t length = text.bytes == NULL ? -1 : (int64_t)text.length;
    if (is_compact)
        write_varint(writer, (uint32_t)(length + 1));
    else
        write_i16(writer, (int16_t)length);
    write_bytes(writer, text.bytes, text.bytes == NULL ? 0 : text.length);
}

static void write_text(Writer *writer, const char *text, bool is_compact)
{
    write_string(writer, (Slice){(const uint8_t *)text, text == NULL ? 0 : (uint32_t)strlen(text)}, is_compact);
}

/* Write no tagged fields: a zero in flexible versions, nothing in older ones. */
static void write_tags(Writer *writer, bool is_flexible)
{
    if (is_flexible)
        write_u8(writer, 0);
}

#endif
