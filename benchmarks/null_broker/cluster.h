/* The state of the null broker: brokers, topics, partitions with their counts, idempotent producers, totals.
 * Changed by requests.h (new topics, producer ids) and produce.h (counts).
 *
 * 1. A topic never moves in memory and keeps its partitions, since an unfinished request may point at it.
 * 2. A topic id is twelve random bytes of this process and the topic's index. It needs no hash to look up, is never
 *    zero, and is unknown to every other process.
 * 3. Totals count only records answered without an error (acks=0: that would have been).
 */
#ifndef NULL_BROKER_CLUSTER_H
#define NULL_BROKER_CLUSTER_H

#include <sys/random.h>

#include "wire.h"

enum {
    MAX_BROKERS = 1000,
    MAX_TOPICS = 200000,       /* bounds our memory if a peer asks for random names */
    MAX_PARTITIONS = 100000,   /* of one topic */
    MAX_ALL_PARTITIONS = 1 << 21,
    MAX_TOPIC_NAME = 249,      /* Kafka's limit */
};

typedef struct {
    uint64_t records, batches;
    int64_t next_offset;
    uint32_t id; /* unique among all partitions; half of the key of a producer's state */
} Partition;

typedef struct {
    char *name;
    uint32_t name_length, hash, index;
    int32_t partition_count;
    Partition *partitions;
} Topic;

/* The idempotence state of one producer in one partition. */
typedef struct {
    int64_t producer_id; /* -1: this slot is free */
    uint32_t partition_id;
    int32_t next_sequence;
    int16_t epoch;
} ProducerState;

typedef struct {
    uint64_t records, batches, requests, bytes, crc_errors, sequence_errors, refused_batches;
} Totals;

static struct {
    int broker_count;
    uint16_t *ports;
    int32_t default_partitions;
    bool verifies;
    Topic **topics;
    uint32_t topic_count;
    Topic **by_name; /* open addressing; a power of two, at most half full */
    uint32_t by_name_size;
    uint32_t partition_count;
    uint8_t id_prefix[12];
    int64_t next_producer_id;
    ProducerState *states; /* open addressing, as by_name */
    uint32_t state_count, states_size;
    Totals totals;
} cluster;

static void initialize_cluster(void)
{
    if (getrandom(cluster.id_prefix, sizeof cluster.id_prefix, 0) != sizeof cluster.id_prefix) {
        perror("null_broker: getrandom");
        exit(1);
    }
    cluster.id_prefix[0] |= 1; /* never the zero id */
    cluster.next_producer_id = 1000;
    cluster.by_name_size = 1024;
    cluster.by_name = reallocate(NULL, cluster.by_name_size * sizeof *cluster.by_name);
    memset(cluster.by_name, 0, cluster.by_name_size * sizeof *cluster.by_name);
    cluster.states_size = 1024;
    cluster.states = reallocate(NULL, cluster.states_size * sizeof *cluster.states);
    for (uint32_t place = 0; place < cluster.states_size; place++)
        cluster.states[place].producer_id = -1;
}

/* ---- topics ---- */

static uint32_t hash_name(const uint8_t *name, uint32_t length)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (uint32_t index = 0; index < length; index++)
        hash = (hash ^ name[index]) * 16777619u;
    return hash ^ hash >> 15;
}

static bool is_topic_name(Slice name)
{
    if (name.length == 0 || name.length > MAX_TOPIC_NAME)
        return false;
    for (uint32_t index = 0; index < name.length; index++) {
        uint8_t c = name.bytes[index];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_plain && c != '.' && c != '_' && c != '-')
            return false;
    }
    return name.bytes[0] != '.' || (name.length > 1 && !(name.length == 2 && name.bytes[1] == '.'));
}

static Topic *find_topic(Slice name, uint32_t hash)
{
    uint32_t place = hash & (cluster.by_name_size - 1);
    for (Topic *topic; (topic = cluster.by_name[place]) != NULL; place = (place + 1) & (cluster.by_name_size - 1))
        if (topic->hash == hash && topic->name_length == name.length && !memcmp(topic->name, name.bytes, name.length))
            return topic;
    return NULL;
}

static void index_topic(Topic *topic)
{
    uint32_t place = topic->hash & (cluster.by_name_size - 1);
    while (cluster.by_name[place] != NULL)
        place = (place + 1) & (cluster.by_name_size - 1);
    cluster.by_name[place] = topic;
}

static void grow_topics(void)
{
    cluster.by_name_size *= 2;
    cluster.by_name = reallocate(cluster.by_name, cluster.by_name_size * sizeof *cluster.by_name);
    memset(cluster.by_name, 0, cluster.by_name_size * sizeof *cluster.by_name);
    for (uint32_t index = 0; index < cluster.topic_count; index++)
        index_topic(cluster.topics[index]);
}

/* Return the topic of that name, made if there is none; NULL if the name is invalid or there are too many topics. */
static Topic *topic_named(Slice name, int32_t partition_count)
{
    if (name.bytes == NULL || !is_topic_name(name))
        return NULL;
    uint32_t hash = hash_name(name.bytes, name.length);
    Topic *topic = find_topic(name, hash);
    if (topic != NULL)
        return topic;
    if (cluster.topic_count >= MAX_TOPICS || cluster.partition_count + (uint32_t)partition_count > MAX_ALL_PARTITIONS)
        return NULL;
    if (cluster.topic_count * 2 >= cluster.by_name_size)
        grow_topics();
    topic = reallocate(NULL, sizeof *topic);
    *topic = (Topic){reallocate(NULL, name.length + 1), name.length, hash, cluster.topic_count, partition_count, NULL};
    memcpy(topic->name, name.bytes, name.length);
    topic->name[name.length] = 0;
    topic->partitions = reallocate(NULL, (size_t)partition_count * sizeof *topic->partitions);
    for (int32_t index = 0; index < partition_count; index++)
        topic->partitions[index] = (Partition){0, 0, 0, cluster.partition_count++};
    if ((cluster.topic_count & (cluster.topic_count - 1)) == 0) /* doubled at every power of two */
        cluster.topics = reallocate(cluster.topics, (cluster.topic_count * 2 + 1) * sizeof *cluster.topics);
    cluster.topics[cluster.topic_count++] = topic;
    index_topic(topic);
    return topic;
}

static Topic *topic_of_id(const uint8_t id[16])
{
    if (memcmp(id, cluster.id_prefix, sizeof cluster.id_prefix) != 0)
        return NULL;
    uint32_t index = (uint32_t)get_i32(id + 12);
    return index < cluster.topic_count ? cluster.topics[index] : NULL;
}

static void write_topic_id(Writer *writer, const Topic *topic)
{
    static const uint8_t zero[16];
    if (topic == NULL) {
        write_bytes(writer, zero, sizeof zero);
        return;
    }
    write_bytes(writer, cluster.id_prefix, sizeof cluster.id_prefix);
    write_i32(writer, (int32_t)topic->index);
}

/* Also valid for partitions beyond a topic's end, so that the answer can report the error. */
static int leader_of(int32_t partition)
{
    return partition < 0 ? -1 : partition % cluster.broker_count;
}

/* ---- idempotent producers ---- */

static uint32_t place_of_state(int64_t producer_id, uint32_t partition_id)
{
    uint64_t hash = ((uint64_t)producer_id * 0x9e3779b97f4a7c15u) ^ ((uint64_t)partition_id * 0xc2b2ae3d27d4eb4fu);
    hash ^= hash >> 29;
    uint32_t place = (uint32_t)hash & (cluster.states_size - 1);
    for (;; place = (place + 1) & (cluster.states_size - 1)) {
        const ProducerState *state = &cluster.states[place];
        if (state->producer_id == -1 || (state->producer_id == producer_id && state->partition_id == partition_id))
            return place;
    }
}

static void grow_states(void)
{
    ProducerState *old = cluster.states;
    uint32_t old_size = cluster.states_size;
    cluster.states_size *= 2;
    cluster.states = reallocate(NULL, cluster.states_size * sizeof *cluster.states);
    for (uint32_t place = 0; place < cluster.states_size; place++)
        cluster.states[place].producer_id = -1;
    for (uint32_t place = 0; place < old_size; place++)
        if (old[place].producer_id != -1)
            cluster.states[place_of_state(old[place].producer_id, old[place].partition_id)] = old[place];
    free(old);
}

/* Return the producer's state in that partition; a new one expects sequence 0. */
static ProducerState *state_of(int64_t producer_id, uint32_t partition_id, int16_t epoch)
{
    ProducerState *state = &cluster.states[place_of_state(producer_id, partition_id)];
    if (state->producer_id != -1)
        return state;
    if (cluster.state_count * 2 >= cluster.states_size) {
        grow_states();
        state = &cluster.states[place_of_state(producer_id, partition_id)];
    }
    cluster.state_count++;
    *state = (ProducerState){producer_id, partition_id, 0, epoch};
    return state;
}

/* ---- totals ---- */

/* Offsets and producer states stay: a client that is sending must not notice. */
static void reset_totals(void)
{
    cluster.totals = (Totals){0};
    for (uint32_t index = 0; index < cluster.topic_count; index++)
        for (int32_t partition = 0; partition < cluster.topics[index]->partition_count; partition++) {
            cluster.topics[index]->partitions[partition].records = 0;
            cluster.topics[index]->partitions[partition].batches = 0;
        }
}

#endif
