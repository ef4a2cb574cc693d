/* All requests but Produce: the header, ApiVersions, Metadata, InitProducerId, and two that no producer sends. From
 * the versions of these two, librdkafka infers a broker's features. connection.h calls it with a whole request.
 *
 * 1. A version is advertised only if its layout is implemented here or in produce.h.
 */
#ifndef NULL_BROKER_REQUESTS_H
#define NULL_BROKER_REQUESTS_H

#include "cluster.h"

enum { PRODUCE = 0, FETCH = 1, METADATA = 3, FIND_COORDINATOR = 10, API_VERSIONS = 18, INIT_PRODUCER_ID = 22 };

enum {
    NONE = 0,
    CORRUPT_MESSAGE = 2,
    UNKNOWN_TOPIC_OR_PARTITION = 3,
    NOT_LEADER_OR_FOLLOWER = 6,
    COORDINATOR_NOT_AVAILABLE = 15,
    INVALID_TOPIC_EXCEPTION = 17,
    INVALID_REQUIRED_ACKS = 21,
    UNSUPPORTED_VERSION = 35,
    INVALID_REQUEST = 42,
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45,
    DUPLICATE_SEQUENCE_NUMBER = 46,
    INVALID_PRODUCER_EPOCH = 47,
    INVALID_RECORD = 87,
    UNKNOWN_TOPIC_ID = 100,
};

/* Ten times the size for ten thousand partitions. It stops a peer that asks for one topic again and again. */
enum { MAX_ANSWER = 64 << 20 };

typedef struct {
    int16_t key, min, max, flexible_since;
} Api;

/* Without Fetch, librdkafka assumes a broker without record batches of magic 2 and sends older messages. Without
 * FindCoordinator, it assumes a broker without lz4 and sends such batches uncompressed. It reports neither. */
static const Api apis[] = {
    {PRODUCE, 3, 13, 9},
    {FETCH, 4, 11, 12},
    {METADATA, 0, 13, 9},
    {FIND_COORDINATOR, 0, 2, 3},
    {API_VERSIONS, 0, 4, 3},
    {INIT_PRODUCER_ID, 0, 5, 2},
};
enum { API_COUNT = sizeof apis / sizeof *apis };

typedef struct {
    int16_t api_key, version;
    int32_t correlation_id;
    bool is_flexible;
} RequestHeader;

static const Api *api_of(int16_t key)
{
    for (int index = 0; index < API_COUNT; index++)
        if (apis[index].key == key)
            return &apis[index];
    return NULL;
}

/* An ApiVersions request of an unknown version is valid up to its correlation id, and gets an answer (KIP-511). */
static RequestHeader read_header(Reader *reader)
{
    RequestHeader header = {.api_key = read_i16(reader), .version = read_i16(reader)};
    header.correlation_id = read_i32(reader);
    if (reader->is_short)
        return header;
    const Api *api = api_of(header.api_key);
    bool is_supported = api != NULL && header.version >= api->min && header.version <= api->max;
    if (!is_supported) {
        reader->is_bad = header.api_key != API_VERSIONS;
        return header;
    }
    header.is_flexible = header.version >= api->flexible_since;
    (void)read_string(reader, false); /* the client's id: never compact */
    if (header.is_flexible)
        skip_tags(reader);
    return header;
}

/* Start an answer; end_answer() fills in its size. */
static size_t begin_answer(Writer *writer, const RequestHeader *header)
{
    size_t start = writer->length;
    write_i32(writer, 0);
    write_i32(writer, header->correlation_id);
    write_tags(writer, header->is_flexible && header->api_key != API_VERSIONS); /* KIP-511: header v0 always */
    return start;
}

static void end_answer(Writer *writer, size_t start)
{
    put_i32(writer->bytes + start, (int32_t)(writer->length - start - 4));
}

static void answer_api_versions(const RequestHeader *header, Writer *writer)
{
    const Api *self = api_of(API_VERSIONS);
    bool is_supported = header->version >= self->min && header->version <= self->max;
    int16_t version = is_supported ? header->version : 0;
    bool is_flexible = version >= 3;
    write_i16(writer, is_supported ? NONE : UNSUPPORTED_VERSION);
    write_count(writer, API_COUNT, is_flexible);
    for (int index = 0; index < API_COUNT; index++) {
        write_i16(writer, apis[index].key);
        write_i16(writer, apis[index].min);
        write_i16(writer, apis[index].max);
        write_tags(writer, is_flexible);
    }
    if (version >= 1)
        write_i32(writer, 0);
    write_tags(writer, is_flexible);
}

/* ---- Metadata ---- */

static void write_brokers(Writer *writer, int16_t version)
{
    bool is_flexible = version >= 9;
    write_count(writer, cluster.broker_count, is_flexible);
    for (int broker = 0; broker < cluster.broker_count; broker++) {
        write_i32(writer, broker);
        write_text(writer, "127.0.0.1", is_flexible);
        write_i32(writer, cluster.ports[broker]);
        if (version >= 1)
            write_text(writer, NULL, is_flexible);
        write_tags(writer, is_flexible);
    }
    if (version >= 2)
        write_text(writer, "null-broker", is_flexible);
    if (version >= 1)
        write_i32(writer, 0);
}

static void write_partition_metadata(Writer *writer, int16_t version, int32_t partition)
{
    bool is_flexible = version >= 9;
    int leader = leader_of(partition);
    write_i16(writer, NONE);
    write_i32(writer, partition);
    write_i32(writer, leader);
    if (version >= 7)
        write_i32(writer, 0); /* leader epoch */
    for (int list = 0; list < 2; list++) { /* replicas, in-sync replicas */
        write_count(writer, 1, is_flexible);
        write_i32(writer, leader);
    }
    if (version >= 5)
        write_count(writer, 0, is_flexible);
    write_tags(writer, is_flexible);
}

/* Write one topic's entry; with an error, `name` and `id` are those of the request. */
static void write_topic_metadata(Writer *writer, int16_t version, const Topic *topic, int16_t error, Slice name,
                                 const uint8_t *id)
{
    bool is_flexible = version >= 9;
    write_i16(writer, error);
    if (topic != NULL)
        name = (Slice){(const uint8_t *)topic->name, topic->name_length};
    write_string(writer, name, is_flexible);
    if (version >= 10 && topic == NULL)
        write_bytes(writer, id, 16);
    else if (version >= 10)
        write_topic_id(writer, topic);
    if (version >= 1)
        write_u8(writer, 0); /* not internal */
    int32_t count = topic == NULL ? 0 : topic->partition_count;
    write_count(writer, count, is_flexible);
    for (int32_t partition = 0; partition < count; partition++)
        write_partition_metadata(writer, version, partition);
    if (version >= 8)
        write_i32(writer, INT32_MIN);
    write_tags(writer, is_flexible);
}

static void answer_metadata(const RequestHeader *header, Reader *reader, Writer *writer)
{
    int16_t version = header->version;
    bool is_flexible = header->is_flexible;
    if (version >= 3)
        write_i32(writer, 0);
    write_brokers(writer, version);
    int64_t count = read_count(reader, is_flexible);
    if (count < 0 && version == 0)
        reader->is_bad = true;
    bool wants_all = count < 0 || (count == 0 && version == 0);
    if (!wants_all && count > reader->end - reader->at) /* no entry is smaller than a byte */
        reader->is_bad = true;
    write_count(writer, wants_all ? cluster.topic_count : count, is_flexible);
    for (uint32_t index = 0; wants_all && index < cluster.topic_count; index++)
        write_topic_metadata(writer, version, cluster.topics[index], NONE, (Slice){NULL, 0}, NULL);
    for (; count > 0 && !reader->is_short && !reader->is_bad; count--) {
        static const uint8_t no_id[16];
        const uint8_t *id = version >= 10 ? take(reader, 16) : no_id;
        Slice name = read_string(reader, is_flexible);
        if (is_flexible)
            skip_tags(reader);
        bool is_too_much = writer->length > MAX_ANSWER;
        if (reader->is_short || reader->is_bad || is_too_much || (name.bytes == NULL && version < 10)) {
            reader->is_bad = true;
            return;
        }
        bool by_id = name.bytes == NULL;
        Topic *topic = by_id ? topic_of_id(id) : topic_named(name, cluster.default_partitions);
        int16_t error = topic != NULL ? NONE : by_id ? UNKNOWN_TOPIC_ID : INVALID_TOPIC_EXCEPTION;
        write_topic_metadata(writer, version, topic, error, name, by_id ? id : no_id);
    }
    if (version >= 8 && version <= 10)
        write_i32(writer, INT32_MIN);
    if (version >= 13)
        write_i16(writer, NONE);
    write_tags(writer, is_flexible);
}

/* ---- small requests ---- */

/* Transactions are refused: they need a coordinator. */
static void answer_init_producer_id(const RequestHeader *header, Reader *reader, Writer *writer)
{
    bool is_transactional = read_string(reader, header->is_flexible).bytes != NULL;
    write_i32(writer, 0);
    write_i16(writer, is_transactional ? INVALID_REQUEST : NONE);
    write_i64(writer, is_transactional ? -1 : cluster.next_producer_id++);
    write_i16(writer, is_transactional ? -1 : 0);
    write_tags(writer, header->is_flexible);
}

static void answer_find_coordinator(const RequestHeader *header, Writer *writer)
{
    if (header->version >= 1)
        write_i32(writer, 0);
    write_i16(writer, COORDINATOR_NOT_AVAILABLE);
    if (header->version >= 1)
        write_text(writer, "a null broker has no groups", false);
    write_i32(writer, -1);
    write_text(writer, "", false);
    write_i32(writer, -1);
}

/* The answer is always empty. */
static void answer_fetch(const RequestHeader *header, Writer *writer)
{
    write_i32(writer, 0);
    if (header->version >= 7) {
        write_i16(writer, NONE);
        write_i32(writer, 0);
    }
    write_count(writer, 0, false);
}

/* Answer the whole request in `reader`; return false if it is invalid and the connection must be closed. */
static bool answer_request(Reader *reader, Writer *writer)
{
    RequestHeader header = read_header(reader);
    if (reader->is_short || reader->is_bad)
        return false;
    size_t start = begin_answer(writer, &header);
    switch (header.api_key) {
    case API_VERSIONS: answer_api_versions(&header, writer); break;
    case METADATA: answer_metadata(&header, reader, writer); break;
    case INIT_PRODUCER_ID: answer_init_producer_id(&header, reader, writer); break;
    case FIND_COORDINATOR: answer_find_coordinator(&header, writer); break;
    case FETCH: answer_fetch(&header, writer); break;
    default: return false;
    }
    end_answer(writer, start);
    return !reader->is_short && !reader->is_bad;
}

#endif
