/* A Kafka cluster that counts records and keeps none, so that a benchmark measures its client and nothing else.
 *
 * One process, one thread, one epoll; N listening ports on loopback are N brokers, and partition p is led by broker
 * p % N. Started by __init__.py, which also says what to type on its standard input; usage() below lists both.
 *
 * 1. Answers leave in the order of their requests, connection by connection, also when they are delayed; what a
 *    client sends meanwhile is read on.
 * 2. The memory of a connection is its buffer, READ_BUFFER unless one piece of a request is larger, and the answers
 *    that the peer has not read: when those reach MAX_UNSENT, nothing more is read from it.
 * 3. Whatever a peer sends, nothing but its own connection ends.
 * 4. The end of standard input ends the process: it cannot outlive its parent.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "produce.h"

enum {
    READ_BUFFER = 256 << 10,     /* stays in a core's second cache */
    SOCKET_BUFFER = 4 << 20,
    MAX_REQUEST = 16 << 20,      /* of any but Produce, and of one piece of a Produce */
    MAX_PRODUCE = 1 << 30,
    MAX_UNSENT = 64 << 20,
    READS_PER_TURN = 16,         /* then other connections have theirs */
    WORTH_SKIPPING = 8 << 10,    /* bytes of a batch that are dropped inside of the kernel */
    HEADERS_ONLY = 1 << 10,      /* a read between large batches: their headers, and little of what follows */
    MAX_EVENTS = 128,
};

typedef enum { LISTENER, CONNECTION, COMMANDS, TIMER } SourceKind;

typedef struct {
    SourceKind kind;
    int fd;
} Source;

typedef struct {
    Source source;
    int broker;
} Listener;

/* Answers up to byte `end` of the connection's stream may leave at `at`. */
typedef struct {
    uint64_t end;
    int64_t at;
} Release;

typedef struct {
    Source source; /* first: events point at it */
    int broker;
    uint8_t *buffer; /* what is read and not yet parsed is [start, end) */
    size_t start, end, capacity;
    bool is_producing; /* in the middle of a Produce request, its size taken off */
    Produce produce;
    Writer answers;
    size_t sent;            /* of `answers` */
    uint64_t answers_start; /* where `answers` begins in the stream */
    uint64_t released;      /* the stream may be sent up to here */
    Release *releases;      /* a queue, [first, last) */
    size_t first, last, releases_capacity;
    int64_t delayed_place; /* in `delayed`, or -1 */
    uint32_t interest;     /* what epoll was told */
    bool is_blocked;       /* the socket takes no more for now */
    bool is_full;          /* parsing stopped because of MAX_UNSENT, with requests perhaps still in the buffer */
} Connection;

static int epoll_fd, timer_fd;
static int64_t now, delay, timer_at; /* nanoseconds, monotonic */
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

/* The answers written so far may leave at `at`, but never before those in front of them. */
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
        if (connection->first <= count) { /* else moving to the front makes room enough */
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

/* Send what may leave; false if the connection is gone. */
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
        ssize_t count =
            send(connection->source.fd, answers->bytes + connection->sent, until - connection->sent, MSG_NOSIGNAL);
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

/* Parse what was read, as far as it goes and as answers find room; false if the connection must be closed. */
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

/* Room for reading behind `end`; false if what is there is too long for one piece. */
static bool make_room(Connection *connection)
{
    if (connection->start == connection->end)
        connection->start = connection->end = 0;
    if (connection->end < connection->capacity)
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

/* What recv() gave, or 0 at the end of the stream and -1 with errno; `is_drained` if the socket has no more.
 *
 * Linux drops bytes of a TCP stream with MSG_TRUNC and does not copy them. Where it is not so, they land in the
 * buffer: so never more than that.
 */
static ssize_t read_some(Connection *connection, bool *is_drained)
{
    Produce *produce = &connection->produce;
    size_t wanted = connection->capacity - connection->end;
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

/* Send, and parse on what MAX_UNSENT had held up. The connection may be gone afterwards. */
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
        close_connection(connection); /* it will never read what keeps us from reading */
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

/* ---- connections ---- */

/* Large, if the system lets us; else its own tuning is better than a small fixed size. */
static void enlarge_buffers(int fd)
{
    int size = SOCKET_BUFFER, got = 0;
    socklen_t length = sizeof got;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) == 0)
        return;
    FILE *file = fopen("/proc/sys/net/core/rmem_max", "r");
    if (file == NULL)
        return;
    if (fscanf(file, "%d", &got) == 1 && got >= size)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, length);
    fclose(file);
}

static void on_listener(const Listener *listener)
{
    for (;;) {
        int fd = accept4(listener->source.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), yes = 1;
        if (fd < 0)
            return; /* none left, or one that went away; a lack of descriptors shows as a client that waits */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        Connection *connection = reallocate(NULL, sizeof *connection);
        *connection = (Connection){
            .source = {CONNECTION, fd},
            .broker = listener->broker,
            .buffer = reallocate(NULL, READ_BUFFER),
            .capacity = READ_BUFFER,
            .delayed_place = -1,
            .interest = EPOLLIN,
        };
        watch(&connection->source, EPOLLIN);
        open_connections++;
        accepted_connections++;
    }
}

static void listen_all(void)
{
    static Listener *listeners; /* epoll points at them */
    listeners = reallocate(NULL, (size_t)cluster.broker_count * sizeof *listeners);
    cluster.ports = reallocate(NULL, (size_t)cluster.broker_count * sizeof *cluster.ports);
    for (int broker = 0; broker < cluster.broker_count; broker++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof address;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            fail("socket");
        enlarge_buffers(fd); /* accepted sockets take this over */
        if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 1024) != 0 ||
            getsockname(fd, (struct sockaddr *)&address, &length) != 0)
            fail("listen");
        cluster.ports[broker] = ntohs(address.sin_port);
        listeners[broker] = (Listener){{LISTENER, fd}, broker};
        watch(&listeners[broker].source, EPOLLIN);
    }
}

/* ---- time ---- */

static void send_due(void)
{
    uint64_t expirations;
    if (read(timer_fd, &expirations, sizeof expirations) < 0 && errno != EAGAIN)
        fail("timer");
    timer_at = 0;
    for (int64_t place = delayed_count - 1; place >= 0; place--) /* backwards: sending may take it off the list */
        if (delayed[place]->releases[delayed[place]->first].at <= now)
            answer(delayed[place]);
}

static void set_timer(void)
{
    int64_t next = 0;
    for (int64_t place = 0; place < delayed_count; place++) {
        int64_t at = delayed[place]->releases[delayed[place]->first].at;
        if (next == 0 || at < next)
            next = at;
    }
    if (next == 0 || next == timer_at)
        return; /* one that is no longer needed wakes us once, for nothing */
    struct itimerspec time = {.it_value = {next / 1000000000, next % 1000000000}};
    if (timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &time, NULL) != 0)
        fail("timer");
    timer_at = next;
}

/* ---- commands ---- */

static void print_stats(void)
{
    const Totals *totals = &cluster.totals;
    printf("{\"records\": %llu, \"batches\": %llu, \"requests\": %llu, \"bytes\": %llu, \"crc_errors\": %llu, "
           "\"sequence_errors\": %llu, \"refused_batches\": %llu, ",
           (unsigned long long)totals->records, (unsigned long long)totals->batches,
           (unsigned long long)totals->requests, (unsigned long long)totals->bytes,
           (unsigned long long)totals->crc_errors, (unsigned long long)totals->sequence_errors,
           (unsigned long long)totals->refused_batches);
    printf("\"connections\": %llu, \"accepted_connections\": %llu, \"cpu_seconds\": %.6f, \"partitions\": {",
           (unsigned long long)open_connections, (unsigned long long)accepted_connections,
           (double)read_clock(CLOCK_PROCESS_CPUTIME_ID) / 1e9);
    const char *separator = "";
    for (uint32_t index = 0; index < cluster.topic_count; index++) {
        const Topic *topic = cluster.topics[index];
        for (int32_t partition = 0; partition < topic->partition_count; partition++) {
            uint64_t records = topic->partitions[partition].records;
            if (records == 0)
                continue;
            printf("%s\"%s-%d\": %llu", separator, topic->name, partition, (unsigned long long)records);
            separator = ", ";
        }
    }
    puts("}}");
}

/* Milliseconds to nanoseconds; false if it is no time between nothing and an hour. */
static bool parse_delay(const char *text, int64_t *result)
{
    char *end;
    double milliseconds = strtod(text, &end);
    if (end == text || *end != 0 || !(milliseconds >= 0 && milliseconds <= 3600000))
        return false;
    *result = (int64_t)(milliseconds * 1e6);
    return true;
}

static void obey(const char *line)
{
    if (!strcmp(line, "quit"))
        exit(0);
    if (!strcmp(line, "stats"))
        print_stats();
    else if (!strcmp(line, "reset")) {
        reset_totals();
        puts("{\"reset\": true}");
    } else if (!strncmp(line, "delay ", 6) && parse_delay(line + 6, &delay))
        printf("{\"delay_ms\": %.3f}\n", (double)delay / 1e6);
    else
        puts("{\"error\": \"commands: stats, reset, delay MS, quit\"}");
    fflush(stdout);
}

static void on_commands(int fd)
{
    static char line[256];
    static size_t length;
    char bytes[1024];
    ssize_t count = read(fd, bytes, sizeof bytes);
    if (count <= 0)
        exit(0);
    for (ssize_t index = 0; index < count; index++) {
        if (bytes[index] != '\n') {
            length = length < sizeof line - 1 ? length : 0; /* no command is so long: whatever it becomes is none */
            line[length++] = bytes[index];
            continue;
        }
        line[length] = 0;
        length = 0;
        obey(line);
    }
}

/* ---- start ---- */

static void usage(int status)
{
    fputs("null_broker [--brokers N] [--partitions P] [--topics NAME[:P],...]... [--delay-ms D] [--verify]\n"
          "  --partitions  of a topic that does not name its own; topics come into being when asked for\n"
          "  --delay-ms    Produce is answered so long after it arrived\n"
          "  --verify      check CRC-32C and the sequences of idempotent producers too\n"
          "  --crc-table   with --verify: without the processor's CRC instruction\n"
          "Prints a line of JSON with bootstrap_servers, then one for each command on standard input:\n"
          "  stats, reset, delay MS, quit. The end of standard input ends it.\n",
          status == 0 ? stdout : stderr);
    exit(status);
}

static int32_t parse_number(const char *text, int32_t maximum)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != 0 || number < 1 || number > maximum) {
        fprintf(stderr, "null_broker: %s is no number from 1 to %d\n", text, maximum);
        exit(2);
    }
    return (int32_t)number;
}

static void add_topics(char *list)
{
    char *rest = NULL;
    for (char *item = strtok_r(list, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
        char *colon = strchr(item, ':');
        int32_t count = colon == NULL ? cluster.default_partitions : parse_number(colon + 1, MAX_PARTITIONS);
        Slice name = {(const uint8_t *)item, (uint32_t)(colon == NULL ? strlen(item) : (size_t)(colon - item))};
        if (topic_named(name, count) == NULL) {
            fprintf(stderr, "null_broker: %s is no name of a topic, or one too many\n", item);
            exit(2);
        }
    }
}

static void parse_arguments(int count, char **arguments)
{
    static const struct option options[] = {
        {"brokers", required_argument, NULL, 'b'}, {"partitions", required_argument, NULL, 'p'},
        {"topics", required_argument, NULL, 't'},  {"delay-ms", required_argument, NULL, 'd'},
        {"verify", no_argument, NULL, 'v'},        {"crc-table", no_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    char **topics = reallocate(NULL, (size_t)count * sizeof *topics);
    int option, topics_count = 0, by_table = 0;
    while ((option = getopt_long(count, arguments, "h", options, NULL)) != -1)
        switch (option) {
        case 'b': cluster.broker_count = parse_number(optarg, MAX_BROKERS); break;
        case 'p': cluster.default_partitions = parse_number(optarg, MAX_PARTITIONS); break;
        case 't': topics[topics_count++] = optarg; break;
        case 'd':
            if (!parse_delay(optarg, &delay))
                usage(2);
            break;
        case 'v': cluster.verifies = true; break;
        case 'c': by_table = 1; break;
        case 'h': usage(0); break;
        default: usage(2);
        }
    if (optind != count)
        usage(2);
    for (int index = 0; index < topics_count; index++) /* now that --partitions is known */
        add_topics(topics[index]);
    free(topics);
    choose_crc32c(by_table);
}

static void print_addresses(void)
{
    fputs("{\"bootstrap_servers\": \"", stdout);
    for (int broker = 0; broker < cluster.broker_count; broker++)
        printf("%s127.0.0.1:%d", broker == 0 ? "" : ",", cluster.ports[broker]);
    puts("\"}");
    fflush(stdout);
}

static void run(void)
{
    struct epoll_event events[MAX_EVENTS];
    for (;;) {
        set_timer();
        int count = epoll_wait(epoll_fd, events, MAX_EVENTS, -1);
        if (count < 0 && errno != EINTR)
            fail("epoll_wait");
        now = read_clock(CLOCK_MONOTONIC);
        bool is_due = false; /* last: sending may close a connection that has an event here too */
        for (int index = 0; index < count; index++) {
            Source *source = events[index].data.ptr;
            switch (source->kind) {
            case LISTENER: on_listener((Listener *)source); break;
            case CONNECTION: on_connection((Connection *)source, events[index].events); break;
            case COMMANDS: on_commands(source->fd); break;
            case TIMER: is_due = true; break;
            }
        }
        if (is_due)
            send_due();
    }
}

int main(int count, char **arguments)
{
    static Source commands = {COMMANDS, STDIN_FILENO}, timer = {TIMER, -1};
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    cluster.broker_count = cluster.default_partitions = 1;
    initialize_cluster();
    parse_arguments(count, arguments);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer.fd = timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (epoll_fd < 0 || timer_fd < 0)
        fail("epoll, timerfd");
    listen_all();
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &commands};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &event) != 0) {
        fputs("null_broker: standard input must be a pipe or a terminal: its end ends the broker\n", stderr);
        return 2;
    }
    watch(&timer, EPOLLIN);
    print_addresses();
    run();
}
