// Sets the wall clock of a C program ahead by the seconds in the first 8 bytes of the file WEIR_TEST_CLOCK. libfaketime
// cannot be used: it does not start with jemalloc, which Redis is linked with.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t ahead(void) {
	static volatile int64_t *seconds;
	if (!seconds) {
		int fd = open(getenv("WEIR_TEST_CLOCK"), O_RDONLY);
		void *map = mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED) {
			abort();
		}
		close(fd);
		seconds = map;
	}
	return *seconds;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = syscall(SYS_clock_gettime, id, t);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		t->tv_sec += ahead();
	}
	return failed;
}

int gettimeofday(struct timeval *t, void *zone) {
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t) {
		*t = now.tv_sec;
	}
	return now.tv_sec;
}
