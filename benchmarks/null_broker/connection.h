/* One connection: it reads bytes, parses requests from them, and sends answers. null_broker.c calls add_connection()
 * for a new socket, on_connection() for an event of epoll, and answer() when delayed answers are due.
 *
 * 1. Answers leave in the order of their requests, also when they are delayed. Reading continues meanwhile.
 * 2. The memory of a connection is its buffer (READ_BUFFER, unless one piece of a request is larger) and the answers
 *    that the peer has not read. When these reach MAX_UNSENT, the connection stops reading.
 * 3. on_connection() and answer() may free the connection: do not use it after them.
 */
#ifndef NULL_BROKER_CONNECTION_H
#define NULL_BROKER_CONNECTION_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "produce.h"
#include "tls.h"

enum {
    READ_BUFFER = 256 << 10,     /* fits into a core's level 2 cache */
    MAX_REQUEST = 16 << 20,      /* for all requests but Produce, and for one piece of a Produce */
    MAX_PRODUCE = 1 << 30,
    MAX_UNSENT = 64 << 20,
    READS_PER_TURN = 16,         /* then other connections have their turn */
    WORTH_SKIPPING = 8 << 10,    /* the least bytes of a batch to drop in the kernel */
    HEADERS_ONLY = 1 << 10,      /* a read between large batches: their headers, and little of what follows */
};

typedef enum { LISTENER, CONNECTION, COMMANDS, TIMER } SourceKind;

typedef struct {
    SourceKind kind;
    int fd;
} Source;

/* Answers up to byte `end` of the connection's stream may leave at `at`. */
typedef struct {
    uint64_t end;
    int64_t at;
} Release;

typedef struct {
    Source source; /* first: events point at it */
    int broker;
    SSL *tls;        /* NULL: plaintext */
    uint8_t *buffer; /* bytes read and not yet parsed are [start, end) */
    size_t start, end, capacity;
    bool is_producing; /* within a Produce request, after its size field */
    Produce produce;
    Writer answers;
    size_t sent;            /* of `answers` */
    uint64_t answers_start; /* where `answers` begins in the stream */
    uint64_t released;      /* the stream may be sent up to here */
    Release *releases;      /* a queue, [first, last) */
    size_t first, last, releases_capacity;
    int64_t delayed_place; /* in `delayed`, or -1 */
    uint32_t interest;     /* the events that epoll watches */
    bool is_blocked;       /* the socket accepts no more bytes for now */
    bool is_full;          /* parsing stopped at MAX_UNSENT; the buffer may still hold requests */
} Connection;

static int epoll_fd;
static int64_t now, delay; /* nanoseconds, monotonic */
static Connection **delayed;         /* every connection with a release in its queue */
static int64_t delayed_count, delayed_capacity;
static uint64_t open_connections, accepted_connections;

static int64_t read_clock(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "null_broker: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(Source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, source->fd, &event) != 0)
        fail("epoll_ctl");
}

/* ---- answers ---- */

static void remove_delayed(Connection *connection)
{
    if (connection->delayed_place < 0)
        return;
    Connection *moved = delayed[--delayed_count];
    delayed[connection->delayed_place] = moved;
    moved->delayed_place = connection->delayed_place;
    connection->delayed_place = -1;
}

/* Let the answers written so far leave at `at`, but never before earlier ones. */
static void release_answers(Connection *connection, int64_t at)
{
    uint64_t end = connection->answers_start + connection->answers.length;
    if (connection->first == connection->last) {
        if (at <= now) {
            connection->released = end;
            return;
        }
        connection->first = connection->last = 0;
    } else if (at < connection->releases[connection->last - 1].at)
        at = connection->releases[connection->last - 1].at;
    if (connection->last == connection->releases_capacity) {
        size_t count = connection->last - connection->first;
        if (connection->first <= count) { /* else the move to the front frees enough room */
            connection->releases_capacity = connection->releases_capacity * 2 + 16;
            connection->releases =
                reallocate(connection->releases, connection->releases_capacity * sizeof *connection->releases);
        }
        memmove(connection->releases, connection->releases + connection->first, count * sizeof *connection->releases);
        connection->first = 0;
        connection->last = count;
    }
    connection->releases[connection->last++] = (Release){end, at};
    if (connection->delayed_place < 0) {
        if (delayed_count == delayed_capacity) {
            delayed_capacity = delayed_capacity * 2 + 16;
            delayed = reallocate(delayed, (size_t)delayed_capacity * sizeof(Connection *));
        }
        connection->delayed_place = delayed_count;
        delayed[delayed_count++] = connection;
    }
}

static void close_connection(Connection *connection)
{
    remove_delayed(connection);
    tls_end(connection->tls);
    close(connection->source.fd);
    free_produce(&connection->produce);
    free(connection->buffer);
    free(connection->answers.bytes);
    free(connection->releases);
    free(connection);
    open_connections--;
}

static bool has_room(const Connection *connection)
{
    return connection->answers.length - connection->sent < MAX_UNSENT;
}

static void update_interest(Connection *connection)
{
    uint32_t events = (has_room(connection) ? EPOLLIN : 0) | (connection->is_blocked ? EPOLLOUT : 0);
    if (events == connection->interest)
        return;
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, connection->source.fd, &event) != 0)
        fail("epoll_ctl");
    connection->interest = events;
}

/* Send the released answers; return false if the connection is closed. */
static bool send_answers(Connection *connection)
{
    while (connection->first < connection->last && connection->releases[connection->first].at <= now)
        connection->released = connection->releases[connection->first++].end;
    if (connection->first == connection->last)
        remove_delayed(connection);
    Writer *answers = &connection->answers;
    size_t until = (size_t)(connection->released - connection->answers_start);
    connection->is_blocked = false;
    while (connection->sent < until) {
        const uint8_t *bytes = answers->bytes + connection->sent;
        size_t left = until - connection->sent;
        ssize_t count = connection->tls != NULL ? tls_send(connection->tls, bytes, left)
                                                : send(connection->source.fd, bytes, left, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno != EAGAIN) {
            close_connection(connection);
            return false;
        }
        if (count < 0) {
            connection->is_blocked = true;
            break;
        }
        connection->sent += (size_t)count;
    }
    if (connection->sent > 0 && connection->sent * 2 >= answers->length) {
        answers->length -= connection->sent;
        memmove(answers->bytes, answers->bytes + connection->sent, answers->length);
        connection->answers_start += connection->sent;
        connection->sent = 0;
    }
    update_interest(connection);
    return true;
}

/* ---- requests ---- */

/* Parse the bytes read, while they are complete and answers have room; false if the connection must be closed. */
static bool parse_requests(Connection *connection)
{
    for (;;) {
        connection->is_full = !has_room(connection);
        if (connection->is_full)
            return true;
        const uint8_t *bytes = connection->buffer + connection->start;
        size_t there = connection->end - connection->start;
        if (connection->is_producing) {
            size_t used;
            Step step = parse_produce(&connection->produce, bytes, there, connection->broker, &used);
            connection->start += used;
            if (step != COMPLETE)
                return step == SHORT;
            finish_produce(&connection->produce, &connection->answers);
            release_answers(connection, now + delay);
            connection->is_producing = false;
            continue;
        }
        if (there < 6)
            return true;
        int32_t size = get_i32(bytes);
        bool is_produce = get_i16(bytes + 4) == PRODUCE;
        if (size < 8 || size > (is_produce ? MAX_PRODUCE : MAX_REQUEST - 4))
            return false;
        if (is_produce) {
            connection->start += 4;
            begin_produce(&connection->produce, (uint32_t)size);
            connection->is_producing = true;
            continue;
        }
        if (there < (size_t)size + 4)
            return true;
        Reader reader = {bytes + 4, bytes + 4 + size, false, false};
        if (!answer_request(&reader, &connection->answers))
            return false;
        release_answers(connection, now);
        connection->start += (size_t)size + 4;
    }
}

/* Make room for a read after `end`; return false if the unparsed piece is too long. */
static bool make_room(Connection *connection)
{
    if (connection->start == connection->end)
        connection->start = connection->end = 0;
    /* Read a whole TLS record: epoll would not report bytes that stay inside OpenSSL. */
    if (connection->capacity - connection->end >= (connection->tls == NULL ? 1 : TLS_RECORD))
        return true;
    if (connection->start == 0) {
        if (connection->capacity >= MAX_REQUEST)
            return false;
        connection->capacity *= 2;
        connection->buffer = reallocate(connection->buffer, connection->capacity);
        return true;
    }
    connection->end -= connection->start;
    memmove(connection->buffer, connection->buffer + connection->start, connection->end);
    connection->start = 0;
    return true;
}

/* Return the result of recv(): 0 at the end of the stream, -1 with errno. Set `is_drained` if the socket has no more.
 *
 * With MSG_TRUNC Linux drops bytes of a TCP stream without copying them. Another system would copy them to the
 * buffer, so never ask for more than its size.
 */
static ssize_t read_some(Connection *connection, bool *is_drained)
{
    Produce *produce = &connection->produce;
    size_t wanted = connection->capacity - connection->end;
    if (connection->tls != NULL) {
        ssize_t count = tls_receive(connection->tls, connection->buffer + connection->end, wanted);
        if (count > 0)
            connection->end += (size_t)count;
        *is_drained = count <= 0;
        return count;
    }
    bool is_large = connection->is_producing && !cluster.verifies && produce->last_batch >= WORTH_SKIPPING;
    if (is_large && connection->start == connection->end && produce->batch_left >= HEADERS_ONLY) {
        wanted = produce->batch_left < connection->capacity ? produce->batch_left : connection->capacity;
        ssize_t count = recv(connection->source.fd, connection->buffer, wanted, MSG_TRUNC);
        if (count > 0) {
            produce->batch_left -= (uint32_t)count;
            produce->left -= (uint32_t)count;
        }
        *is_drained = count < (ssize_t)wanted;
        return count;
    }
    if (is_large && wanted > HEADERS_ONLY)
        wanted = HEADERS_ONLY;
    ssize_t count = recv(connection->source.fd, connection->buffer + connection->end, wanted, 0);
    if (count > 0)
        connection->end += (size_t)count;
    *is_drained = count < (ssize_t)wanted;
    return count;
}

/* Send answers, then parse requests that waited because of MAX_UNSENT. This may free the connection. */
static void answer(Connection *connection)
{
    while (send_answers(connection) && connection->is_full && has_room(connection))
        if (!parse_requests(connection)) {
            close_connection(connection);
            return;
        }
}

static void on_connection(Connection *connection, uint32_t events)
{
    bool is_drained = false;
    if (!has_room(connection) && (events & (EPOLLHUP | EPOLLERR))) {
        close_connection(connection); /* it will never read the answers that block our reading */
        return;
    }
    for (int turn = 0; turn < READS_PER_TURN && !is_drained && has_room(connection); turn++) {
        ssize_t count = make_room(connection) ? read_some(connection, &is_drained) : 0;
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (count <= 0 || !parse_requests(connection)) {
            close_connection(connection);
            return;
        }
    }
    answer(connection);
}

static void add_connection(int fd, int broker)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    Connection *connection = reallocate(NULL, sizeof *connection);
    *connection = (Connection){
        .source = {CONNECTION, fd},
        .broker = broker,
        .tls = tls_begin(fd),
        .buffer = reallocate(NULL, READ_BUFFER),
        .capacity = READ_BUFFER,
        .delayed_place = -1,
        .interest = EPOLLIN,
    };
    watch(&connection->source, EPOLLIN);
    open_connections++;
    accepted_connections++;
}

#endif
