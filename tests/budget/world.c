/* The outside world of a measured process, preloaded (LD_PRELOAD): time and randomness that repeat.
 *
 * Each look at a clock moves it a little, so that "after about a millisecond of sending" comes after the same number of
 * records in every run, also where a compiled module asks the system itself. Also callgrind's switches, for ctypes.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#ifdef HAS_CALLGRIND
#include <valgrind/callgrind.h>
#endif

static const int64_t MONOTONIC_STEP = 20000; /* ns: asked for once in some sends */
static const int64_t REALTIME_STEP = 1000;   /* ns: asked for with every record, for its timestamp */

static int64_t monotonic = 1000000000000LL;
static int64_t realtime = 1700000000000000000LL;
static uint64_t seed = 1;

int clock_gettime(clockid_t clock, struct timespec *answer)
{
    int64_t now;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now = realtime += REALTIME_STEP;
    else
        now = monotonic += MONOTONIC_STEP;
    answer->tv_sec = now / 1000000000LL;
    answer->tv_nsec = now % 1000000000LL;
    return 0;
}

/* For an event loop that has nothing to do until then: it need not wait. */
void budget_pass(double seconds)
{
    int64_t step = (int64_t)(seconds * 1e9);
    if (step > 0) {
        monotonic += step;
        realtime += step;
    }
}

/* To the next full second but one: what is done at intervals is then as far from its next turn in every process. */
void budget_align(void)
{
    monotonic = (monotonic / 1000000000LL + 2) * 1000000000LL;
}

ssize_t getrandom(void *buffer, size_t size, unsigned int flags)
{
    unsigned char *bytes = buffer;
    (void)flags;
    for (size_t i = 0; i < size; i++) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        bytes[i] = (unsigned char)(seed >> 56);
    }
    return (ssize_t)size;
}

int getentropy(void *buffer, size_t size)
{
    return getrandom(buffer, size, 0) == (ssize_t)size ? 0 : -1;
}

#ifdef HAS_CALLGRIND
int budget_is_counting(void) { return RUNNING_ON_VALGRIND != 0; }
void budget_count_from_here(void)
{
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}
void budget_dump(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
#else
int budget_is_counting(void) { return 0; }
void budget_count_from_here(void) {}
void budget_dump(const char *name) { (void)name; }
#endif
