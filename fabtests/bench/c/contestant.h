/*
 * The parts that every contestant in C shares: buffers, counts and clock, which are those of
 * src/fabric. A contestant includes this file first. Then it defines the functions of its message
 * API and includes loops.h, which has the loops of src/fabric/messages and of src/fabric/remote,
 * step by step; or it defines loops of its own and includes orders.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, ACK = 4, GROUP_NS = 3000, GROUP_MAX = 32, STREAM_GROUP_NS = 200000 };
enum { TAG_PAYLOAD = 1, TAG_ACK = 2, TAG_SYNCHRONISE = 3 };
/* As LINES and STRIDE of src/fabric/remote. */
enum { LINES = 256, TURN_STRIDE = 83 };
/* Bytes of receive buffers, unless a single message is larger. */
static const size_t ARENA = (size_t)64 << 20;

struct order {
	bool tagged, pingpong, inject;
	size_t size, warmup, batch, singles, window;
};

struct timing {
	double mean, p50, p99, min;
};

/* The buffers of the process and the state of the present run. */
struct run {
	struct order order;
	char *rx, *tx;
	/* For one-sided operations: memory of this process that the peer reads and writes; NULL
	 * without them. */
	char *region;
	/* For one-sided operations: the other buffer of an operation that this process posts. */
	char *local;
	size_t stride, to_post;
	uint64_t received;
	/* Indexes of the free buffers. */
	size_t rx_free[1 << 16], rx_count;
	size_t tx_free[1 << 16], tx_count;
};

static struct run run;
static bool active, yielding;
static double ns_per_tick;
/* The number of the present round trip of one-sided operations. */
static uint64_t turn;

static void reply(const char *format, ...)
{
	va_list args;
	char line[8192];
	va_start(args, format);
	int length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (length >= (int)sizeof(line) || write(STDIN_FILENO, line, (size_t)length) != length)
		exit(1);
}

static void fail_with(const char *call, const char *reason)
{
	reply("{\"failed\":\"%s: %s\"}\n", call, reason);
	exit(1);
}

/* The clock. */

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
#endif
}

static double now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void calibrate(void)
{
	double start = now_ns();
	uint64_t first = ticks();
	while (now_ns() - start < 20e6)
		;
	ns_per_tick = (now_ns() - start) / (double)(ticks() - first);
}

static int by_value(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return (a > b) - (a < b);
}

static double quantile(double *values, size_t count, double q)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), by_value);
	size_t rank = (size_t)(q * (double)count + 0.999999);
	return values[rank ? rank - 1 : 0];
}

/* As src/stats.rs: the mean of the middle two of an even number. */
static double median(double *values, size_t count)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), by_value);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static struct timing percentiles(const uint64_t *stamps, size_t count)
{
	double *values = calloc(count + 1, sizeof(*values));
	for (size_t at = 0; at < count; at++)
		values[at] = (double)(stamps[at + 1] - stamps[at]) * ns_per_tick;
	struct timing timing = {
		.p50 = quantile(values, count, 0.5),
		.p99 = quantile(values, count, 0.99),
		.min = count ? values[0] : 0,
	};
	free(values);
	return timing;
}

static size_t group_size(double trip_ns)
{
	size_t size = (size_t)(GROUP_NS / (trip_ns < 1 ? 1 : trip_ns));
	return size < 1 ? 1 : size > GROUP_MAX ? GROUP_MAX : size;
}

static double stream_mean(const uint64_t *stamps, size_t windows, double window_ns)
{
	size_t size = (size_t)(STREAM_GROUP_NS / (window_ns < 1 ? 1 : window_ns));
	size = size < 1 ? 1 : size > windows ? windows : size;
	size_t groups = windows / size;
	double *means = calloc(groups + 1, sizeof(*means));
	for (size_t at = 0; at < groups; at++)
		means[at] = (double)(stamps[at * size + size] - stamps[at * size]) * ns_per_tick /
			    (double)size;
	double mean = median(means, groups);
	free(means);
	return mean;
}

/* Runs. */

static inline __attribute__((always_inline)) double batch_mean(size_t batch, size_t size,
								void (*trip)(void))
{
	size_t groups = 0;
	double *means = calloc(batch / size + 1, sizeof(*means));
	for (size_t left = batch; left;) {
		size_t group = left < size ? left : size;
		uint64_t start = ticks();
		for (size_t at = 0; at < group; at++)
			trip();
		means[groups++] = (double)(ticks() - start) * ns_per_tick / (double)group;
		left -= group;
	}
	double mean = median(means, groups);
	free(means);
	return mean;
}

/* Always inlined, so that no trip is called by its address. */
static inline __attribute__((always_inline)) struct timing round_trips(void (*trip)(void))
{
	struct order *order = &run.order;
	uint64_t start = ticks();
	for (size_t at = 0; at < order->warmup; at++)
		trip();
	double warmup_ns = (double)(ticks() - start) * ns_per_tick;
	size_t warmups = order->warmup ? order->warmup : 1;
	double mean = batch_mean(order->batch, group_size(warmup_ns / (double)warmups), trip);
	uint64_t *stamps = calloc(order->singles + 1, sizeof(*stamps));
	stamps[0] = ticks();
	for (size_t at = 0; at < order->singles; at++) {
		trip();
		stamps[at + 1] = ticks();
	}
	struct timing timing = percentiles(stamps, order->singles);
	timing.mean = mean;
	free(stamps);
	return timing;
}

static struct timing per_message(const uint64_t *stamps, size_t messages_per_window)
{
	struct order *order = &run.order;
	const uint64_t *first = stamps + order->warmup;
	struct timing timing = percentiles(first, order->batch);
	timing.mean = stream_mean(first, order->batch, timing.p50);
	double messages = (double)messages_per_window;
	return (struct timing){ timing.mean / messages, timing.p50 / messages,
				timing.p99 / messages, timing.min / messages };
}

/* Buffers. */

static size_t stride_of(size_t size)
{
	size_t stride = (size + LINE - 1) / LINE * LINE;
	return stride ? stride : LINE;
}

static char *pages(size_t length)
{
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		fail_with("mmap", strerror(errno));
	memset(memory, 0x5a, length);
	return memory;
}

/* Bytes of the send buffers of a window. */
static size_t window_bytes(size_t largest, size_t window)
{
	size_t stride = stride_of(largest), side = window * stride;
	if (side > ARENA / 2)
		side = ARENA / 2;
	return side < stride ? stride : side;
}

/* Allocates the buffers of messages, and returns the bytes of a window's send buffers. */
static size_t open_buffers(size_t largest, size_t window)
{
	size_t side = window_bytes(largest, window);
	run.rx = pages(2 * side);
	run.tx = pages(side);
	return side;
}

/* Bytes of the memory for one-sided operations beside a window of `side` bytes. */
static size_t region_length(size_t side)
{
	return side < LINES * LINE ? LINES * LINE : side;
}

/* Writes bytes as hexadecimal digits. */
static void write_hex(const void *bytes, size_t length, char *text)
{
	for (size_t at = 0; at < length; at++)
		text += sprintf(text, "%02x", ((const unsigned char *)bytes)[at]);
}

/* Reads up to `room` bytes from hexadecimal digits, and returns their number. */
static size_t read_hex(const char *text, void *bytes, size_t room)
{
	size_t at = 0;
	unsigned byte;
	for (; at < room && sscanf(text + 2 * at, "%2x", &byte) == 1; at++)
		((unsigned char *)bytes)[at] = (unsigned char)byte;
	return at;
}

static inline void rest(void)
{
	if (yielding)
		sched_yield();
}
