// Loaded before a program's libraries: its wall clock is wrong by SKEW seconds. Monotonic clocks stay right.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    const char *skew = getenv("SKEW");
    if (result == 0 && clock == CLOCK_REALTIME && skew) time->tv_sec += atol(skew);
    return result;
}
