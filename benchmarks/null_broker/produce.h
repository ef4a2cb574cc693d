/* Produce requests, parsed while they arrive; connection.h calls parse_produce() with the bytes read so far.
 *
 * The parser reads only the header of each batch, 61 bytes. It skips the bytes between headers, so they need no
 * buffer and no copy out of the kernel, and a request of any size needs the same small buffer.
 *
 * 1. Nothing is counted before the request's last byte has arrived: a request that was cut off was never received,
 *    as with a real broker.
 * 2. A step succeeds as a whole or changes nothing. A step that lacks bytes is repeated when more have arrived.
 * 3. No step reads beyond its request: `left` counts its remaining bytes, and lengths inside must fit into it.
 * 4. One batch for each partition, of magic 2 (KIP-98), as Kafka demands since Produce version 3.
 */
#ifndef NULL_BROKER_PRODUCE_H
#define NULL_BROKER_PRODUCE_H

#include "crc32c.h"
#include "requests.h"

enum {
    BATCH_HEADER = 61,
    BEFORE_CRC = 21,          /* the CRC covers all bytes after it */
    MAX_ENTRIES = 1 << 20,    /* partitions in one request */
};

typedef enum { AT_HEAD, AT_TOPIC, AT_PARTITION, AT_BATCH, IN_BATCH, AFTER_PARTITION, AFTER_TOPIC, AT_TAIL } Phase;

typedef enum { ADVANCED, SHORT, BAD, COMPLETE } Step;

/* One partition of a request, and the result for its answer. */
typedef struct {
    Topic *topic;
    int32_t partition;
    uint32_t topic_place; /* index of the topic in the request */
    int32_t record_count, base_sequence;
    int64_t producer_id;
    uint32_t bytes;
    int16_t epoch, error;
    bool has_batch;
} ProduceEntry;

/* A topic of a request. */
typedef struct {
    Topic *topic;
    uint8_t id[16]; /* as in the request: the answer must name an unknown one */
    int32_t partition_count;
} ProduceTopic;

typedef struct {
    RequestHeader header;
    Phase phase;
    int16_t acks;
    uint32_t left;          /* bytes of the request that are not yet parsed */
    int32_t topics_left, partitions_left;
    uint32_t records_left;  /* bytes of the partition's records */
    uint32_t batch_left;    /* bytes of the batch */
    uint32_t last_batch;    /* size of the previous batch: sets the size of the next read */
    uint32_t crc, expected_crc;
    ProduceEntry *entries;
    uint32_t entry_count, entry_capacity;
    ProduceTopic *topics;
    uint32_t topic_count, topic_capacity;
} Produce;

static void begin_produce(Produce *produce, uint32_t size)
{
    produce->phase = AT_HEAD;
    produce->left = size;
    produce->entry_count = produce->topic_count = 0;
    produce->records_left = produce->batch_left = 0;
}

static void free_produce(Produce *produce)
{
    free(produce->entries);
    free(produce->topics);
}

/* ---- steps: each parses one piece from `reader` ---- */

static Step parse_head(Produce *produce, Reader *reader)
{
    produce->header = read_header(reader);
    bool is_flexible = produce->header.is_flexible;
    (void)read_string(reader, is_flexible); /* transactional id */
    produce->acks = read_i16(reader);
    (void)read_i32(reader); /* time-out */
    int64_t count = read_count(reader, is_flexible);
    if (reader->is_short)
        return SHORT;
    if (count < 0)
        return BAD;
    produce->topics_left = (int32_t)count;
    produce->phase = AT_TOPIC;
    return ADVANCED;
}

static Step parse_topic(Produce *produce, Reader *reader)
{
    if (produce->topics_left == 0) {
        produce->phase = AT_TAIL;
        return ADVANCED;
    }
    bool by_id = produce->header.version >= 13, is_flexible = produce->header.is_flexible;
    const uint8_t *id = by_id ? take(reader, 16) : NULL;
    Slice name = by_id ? (Slice){NULL, 0} : read_string(reader, is_flexible);
    int64_t count = read_count(reader, is_flexible);
    if (reader->is_short)
        return SHORT;
    if (count < 0 || (!by_id && name.bytes == NULL) || produce->topic_count == MAX_ENTRIES)
        return BAD;
    if (produce->topic_count == produce->topic_capacity) {
        produce->topic_capacity = produce->topic_capacity * 2 + 4;
        produce->topics = reallocate(produce->topics, produce->topic_capacity * sizeof *produce->topics);
    }
    ProduceTopic *topic = &produce->topics[produce->topic_count];
    topic->topic = by_id ? topic_of_id(id) : topic_named(name, cluster.default_partitions);
    if (topic->topic == NULL && !by_id)
        return BAD; /* a correct client never sends a name that Metadata refused */
    if (by_id)
        memcpy(topic->id, id, sizeof topic->id);
    topic->partition_count = (int32_t)count;
    produce->topic_count++;
    produce->topics_left--;
    produce->partitions_left = (int32_t)count;
    produce->phase = AT_PARTITION;
    return ADVANCED;
}

static int16_t partition_error(const Produce *produce, const ProduceTopic *topic, int32_t partition, int broker)
{
    if (topic->topic == NULL)
        return UNKNOWN_TOPIC_ID;
    if (partition < 0 || partition >= topic->topic->partition_count)
        return UNKNOWN_TOPIC_OR_PARTITION;
    if (leader_of(partition) != broker)
        return NOT_LEADER_OR_FOLLOWER;
    return produce->acks < -1 || produce->acks > 1 ? INVALID_REQUIRED_ACKS : NONE;
}

static Step parse_partition(Produce *produce, Reader *reader, int broker)
{
    if (produce->partitions_left == 0) {
        produce->phase = AFTER_TOPIC;
        return ADVANCED;
    }
    const uint8_t *start = reader->at;
    int32_t partition = read_i32(reader);
    int64_t length = read_count(reader, produce->header.is_flexible);
    if (reader->is_short)
        return SHORT;
    if (reader->is_bad || length > (int64_t)produce->left - (reader->at - start) ||
        produce->entry_count == MAX_ENTRIES)
        return BAD;
    if (produce->entry_count == produce->entry_capacity) {
        produce->entry_capacity = produce->entry_capacity * 2 + 8;
        produce->entries = reallocate(produce->entries, produce->entry_capacity * sizeof *produce->entries);
    }
    const ProduceTopic *topic = &produce->topics[produce->topic_count - 1];
    produce->entries[produce->entry_count++] = (ProduceEntry){
        .topic = topic->topic,
        .partition = partition,
        .topic_place = produce->topic_count - 1,
        .error = partition_error(produce, topic, partition, broker),
    };
    produce->partitions_left--;
    produce->records_left = length < 0 ? 0 : (uint32_t)length;
    produce->phase = AT_BATCH;
    return ADVANCED;
}

static void refuse(ProduceEntry *entry, int16_t error)
{
    if (entry->error == NONE)
        entry->error = error;
}

/* Skip the rest of the partition's records: they cannot be parsed, or are not allowed. */
static Step refuse_rest(Produce *produce, int16_t error)
{
    refuse(&produce->entries[produce->entry_count - 1], error);
    produce->batch_left = produce->records_left;
    produce->records_left = 0;
    produce->crc = produce->expected_crc = 0;
    produce->phase = IN_BATCH;
    return ADVANCED;
}

static Step parse_batch_header(Produce *produce, Reader *reader)
{
    ProduceEntry *entry = &produce->entries[produce->entry_count - 1];
    if (produce->records_left == 0) {
        if (!entry->has_batch)
            refuse(entry, INVALID_RECORD);
        produce->phase = AFTER_PARTITION;
        return ADVANCED;
    }
    if (entry->has_batch)
        return refuse_rest(produce, INVALID_RECORD);
    if (produce->records_left < BATCH_HEADER)
        return refuse_rest(produce, CORRUPT_MESSAGE);
    const uint8_t *batch = take(reader, BATCH_HEADER);
    if (reader->is_short)
        return SHORT;
    int64_t size = (int64_t)get_i32(batch + 8) + 12;
    int32_t count = get_i32(batch + 57);
    if (batch[16] != 2 || count < 0) /* the old message formats have their magic in the same place */
        refuse(entry, INVALID_RECORD);
    if (size < BATCH_HEADER || size > produce->records_left) {
        refuse(entry, CORRUPT_MESSAGE);
        size = produce->records_left;
    }
    entry->has_batch = true;
    entry->record_count = count;
    entry->bytes = (uint32_t)size;
    entry->producer_id = get_i64(batch + 43);
    entry->epoch = get_i16(batch + 51);
    entry->base_sequence = get_i32(batch + 53);
    produce->expected_crc = (uint32_t)get_i32(batch + 17);
    produce->crc = cluster.verifies ? crc32c(0, batch + BEFORE_CRC, BATCH_HEADER - BEFORE_CRC) : produce->expected_crc;
    produce->records_left -= (uint32_t)size;
    produce->batch_left = (uint32_t)size - BATCH_HEADER;
    produce->last_batch = (uint32_t)size;
    produce->phase = IN_BATCH;
    return ADVANCED;
}

static Step parse_batch_body(Produce *produce, Reader *reader)
{
    size_t there = (size_t)(reader->end - reader->at);
    uint32_t length = there < produce->batch_left ? (uint32_t)there : produce->batch_left;
    const uint8_t *bytes = take(reader, length);
    if (cluster.verifies)
        produce->crc = crc32c(produce->crc, bytes, length);
    produce->batch_left -= length;
    if (produce->batch_left > 0)
        return length > 0 ? ADVANCED : SHORT;
    ProduceEntry *entry = &produce->entries[produce->entry_count - 1];
    if (entry->error == NONE && produce->crc != produce->expected_crc) {
        entry->error = CORRUPT_MESSAGE;
        cluster.totals.crc_errors++;
    }
    produce->phase = AT_BATCH;
    return ADVANCED;
}

static Step parse_end(Produce *produce, Reader *reader, Phase next)
{
    if (produce->header.is_flexible)
        skip_tags(reader);
    if (reader->is_short)
        return SHORT;
    produce->phase = next;
    return ADVANCED;
}

static Step parse_step(Produce *produce, Reader *reader, int broker)
{
    switch (produce->phase) {
    case AT_HEAD: return parse_head(produce, reader);
    case AT_TOPIC: return parse_topic(produce, reader);
    case AT_PARTITION: return parse_partition(produce, reader, broker);
    case AT_BATCH: return parse_batch_header(produce, reader);
    case IN_BATCH: return parse_batch_body(produce, reader);
    case AFTER_PARTITION: return parse_end(produce, reader, AT_PARTITION);
    case AFTER_TOPIC: return parse_end(produce, reader, AT_TOPIC);
    case AT_TAIL: {
        Step step = parse_end(produce, reader, AT_TAIL);
        return step == ADVANCED ? COMPLETE : step;
    }
    }
    return BAD;
}

/* Run as many steps as `length` bytes allow; set `used` to the bytes that they parsed. */
static Step parse_produce(Produce *produce, const uint8_t *bytes, size_t length, int broker, size_t *used)
{
    *used = 0;
    for (;;) {
        size_t there = length - *used;
        bool is_all = there >= produce->left;
        const uint8_t *at = bytes + *used;
        Reader reader = {at, at + (is_all ? produce->left : there), false, false};
        Step step = parse_step(produce, &reader, broker);
        if (reader.is_bad || step == BAD || (step == SHORT && is_all))
            return BAD;
        if (step == SHORT)
            return SHORT;
        *used += (size_t)(reader.at - at);
        produce->left -= (uint32_t)(reader.at - at);
        if (step == COMPLETE)
            return produce->left == 0 ? COMPLETE : BAD;
    }
}

/* ---- counting ---- */

static int32_t sequence_after(int32_t sequence, int32_t count)
{
    return (int32_t)(((int64_t)sequence + count) & INT32_MAX); /* Kafka's wrap: 2147483647 is followed by 0 */
}

/* Return the error of Kafka's ProducerStateManager; if there is none, advance the state. */
static int16_t sequence_error(const ProduceEntry *entry, const Partition *partition)
{
    if (entry->producer_id < 0)
        return NONE;
    ProducerState *state = state_of(entry->producer_id, partition->id, entry->epoch);
    if (entry->epoch < state->epoch)
        return INVALID_PRODUCER_EPOCH;
    if (entry->epoch > state->epoch) {
        state->epoch = entry->epoch;
        state->next_sequence = 0;
    }
    int32_t behind = (int32_t)(((int64_t)state->next_sequence - entry->base_sequence) & INT32_MAX);
    if (entry->base_sequence < 0 || behind >= 1 << 30)
        return OUT_OF_ORDER_SEQUENCE_NUMBER; /* a gap */
    if (behind > 0)
        return DUPLICATE_SEQUENCE_NUMBER;
    state->next_sequence = sequence_after(entry->base_sequence, entry->record_count);
    return NONE;
}

/* Count the entry; return its base offset, or -1 with an error. */
static int64_t append(ProduceEntry *entry)
{
    Partition *partition = entry->error == NONE ? &entry->topic->partitions[entry->partition] : NULL;
    if (partition != NULL && cluster.verifies) {
        entry->error = sequence_error(entry, partition);
        cluster.totals.sequence_errors += entry->error != NONE;
    }
    if (entry->error != NONE) {
        cluster.totals.refused_batches++;
        return -1;
    }
    int64_t base_offset = partition->next_offset;
    partition->next_offset += entry->record_count;
    partition->records += (uint64_t)entry->record_count;
    partition->batches++;
    cluster.totals.records += (uint64_t)entry->record_count;
    cluster.totals.batches++;
    cluster.totals.bytes += entry->bytes;
    return base_offset;
}

/* ---- the answer ---- */

static void write_partition_answer(Writer *writer, int16_t version, ProduceEntry *entry)
{
    bool is_flexible = version >= 9;
    int64_t base_offset = append(entry);
    write_i32(writer, entry->partition);
    write_i16(writer, entry->error);
    write_i64(writer, base_offset);
    write_i64(writer, -1); /* log append time: the topics use the records' timestamps */
    if (version >= 5)
        write_i64(writer, entry->error == NONE ? 0 : -1);
    if (version >= 8) {
        write_count(writer, 0, is_flexible);
        write_text(writer, NULL, is_flexible);
    }
    write_tags(writer, is_flexible);
}

/* Count a complete request, and answer it unless it asked for no answer. */
static void finish_produce(Produce *produce, Writer *writer)
{
    const RequestHeader *header = &produce->header;
    bool is_flexible = header->is_flexible;
    size_t start = begin_answer(writer, header);
    ProduceEntry *entry = produce->entries;
    cluster.totals.requests++;
    write_count(writer, produce->topic_count, is_flexible);
    for (uint32_t index = 0; index < produce->topic_count; index++) {
        const ProduceTopic *topic = &produce->topics[index];
        if (header->version >= 13)
            write_bytes(writer, topic->id, sizeof topic->id);
        else
            write_text(writer, topic->topic->name, is_flexible);
        write_count(writer, topic->partition_count, is_flexible);
        for (int32_t partition = 0; partition < topic->partition_count; partition++)
            write_partition_answer(writer, header->version, entry++);
        write_tags(writer, is_flexible);
    }
    write_i32(writer, 0);
    write_tags(writer, is_flexible);
    end_answer(writer, start);
    if (produce->acks == 0)
        writer->length = start;
}

#endif
