/* A Kafka cluster that counts records and keeps none, so that a benchmark measures only its client.
 *
 * It has one process, one thread and one epoll. N listening ports on loopback are N brokers; broker p % N leads
 * partition p. __init__.py starts it and documents the commands on standard input; usage() lists options and commands.
 *
 * 1. Invalid bytes from a peer end only that peer's connection.
 * 2. The end of standard input ends the process: it cannot outlive its parent.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <getopt.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

#include "connection.h"

enum { SOCKET_BUFFER = 4 << 20, MAX_EVENTS = 128 };

typedef struct {
    Source source;
    int broker;
} Listener;

static int timer_fd;
static int64_t timer_at; /* when it fires; 0: not set */

/* ---- listening ---- */

/* Set a large buffer if the system allows it; otherwise its own tuning is better than a small fixed size. */
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
        int fd = accept4(listener->source.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return; /* no more connections, or one closed early; if descriptors run out, the client waits */
        add_connection(fd, listener->broker);
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
        enlarge_buffers(fd); /* accepted sockets inherit this */
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
    for (int64_t place = delayed_count - 1; place >= 0; place--) /* backwards: sending may remove it from the list */
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
        return; /* a timer that is no longer needed wakes us once, which does no harm */
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

/* Convert milliseconds to nanoseconds; return false if the time is not between 0 and an hour. */
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
            length = length < sizeof line - 1 ? length : 0; /* longer than any command: invalid in any case */
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
          "  --certificate PEM file with key, certificate and chain: TLS 1.3 on every port\n"
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
        {"help", no_argument, NULL, 'h'},          {"certificate", required_argument, NULL, 's'},
        {NULL, 0, NULL, 0},
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
        case 's': tls_use(optarg); break;
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
        bool is_due = false; /* handled last: sending may close a connection that also has an event here */
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
