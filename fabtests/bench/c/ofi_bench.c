/*
 * The contestant over libfabric: the loops of src/fabric/{pingpong,bandwidth}.rs and of
 * src/fabric/remote, step by step, with the same buffers, counts and clock. A target of one-sided
 * operations reads its queue continuously, because the provider may need its progress. The program
 * reads the orders of src/pair/order.rs as lines of JSON from its standard input, a socket, and
 * replies there.
 */
#define _GNU_SOURCE
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
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

enum { LINE = 64, ACK = 4, GROUP_NS = 3000, GROUP_MAX = 32, STREAM_GROUP_NS = 200000 };
enum { TAG_PAYLOAD = 1, TAG_ACK = 2, TAG_SYNCHRONISE = 3 };
/* As LINES and STRIDE of src/fabric/remote; the key of every region. */
enum { LINES = 256, TURN_STRIDE = 83, KEY = 7 };
/* Bytes of receive buffers, unless a single message is larger. */
static const size_t ARENA = (size_t)64 << 20;
/* Distinguishes the contexts of sends from those of receives. */
static const uint64_t SENT = (uint64_t)1 << 32;

struct order {
	bool tagged, pingpong, inject;
	size_t size, warmup, batch, singles, window;
};

struct timing {
	double mean, p50, p99, min;
};

/* Memory that a process lets its peer read and write. */
struct remote_memory {
	uint64_t addr, key;
};

struct bench_endpoint {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t peer;
	char *rx, *tx;
	/* For one-sided operations; NULL without them. */
	struct fid_mr *mr;
	char *region, *local;
	struct remote_memory remote;
	/* State of the present run. */
	struct order order;
	size_t stride, to_post;
	uint64_t received;
	/* Indexes of the free buffers. */
	size_t rx_free[1 << 16], rx_count;
	size_t tx_free[1 << 16], tx_count;
	struct fi_cq_tagged_entry entries[1 << 16];
};

static struct bench_endpoint endpoint;
static bool active, yielding;
static double ns_per_tick;

static void reply(const char *format, ...)
{
	va_list args;
	char line[1024];
	va_start(args, format);
	int length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (write(STDIN_FILENO, line, (size_t)length) != length)
		exit(1);
}

static void fail(const char *call, long errnum)
{
	const char *reason = errnum ? fi_strerror((int)labs(errnum)) : "unexpected value";
	reply("{\"failed\":\"%s: %s\"}\n", call, reason);
	exit(1);
}

static void check(const char *call, long result)
{
	if (result)
		fail(call, result);
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

/* Opening. */

static size_t stride_of(size_t size)
{
	size_t stride = (size + LINE - 1) / LINE * LINE;
	return stride ? stride : LINE;
}

static char *pages(size_t length)
{
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		fail("mmap", FI_ENOMEM);
	memset(memory, 0x5a, length);
	return memory;
}

static void open_region(size_t length)
{
	struct bench_endpoint *s = &endpoint;
	length = length < LINES * LINE ? LINES * LINE : length;
	s->region = pages(length);
	s->local = pages(length);
	check("fi_mr_reg", fi_mr_reg(s->domain, s->region, length, FI_REMOTE_READ | FI_REMOTE_WRITE,
				     0, KEY, 0, &s->mr, NULL));
}

static void open_buffers(size_t largest, size_t window, bool remote)
{
	size_t stride = stride_of(largest), side = window * stride;
	if (side > ARENA / 2)
		side = ARENA / 2;
	if (side < stride)
		side = stride;
	endpoint.rx = pages(2 * side);
	endpoint.tx = pages(side);
	if (remote)
		open_region(side);
}

/* Orders carry a binary address as hexadecimal digits after this prefix. */
#define BYTES "bytes:"
enum { NAME_MAX = 128 };

static void write_name(const char *name, size_t length, char *text)
{
	if (endpoint.info->addr_format == FI_ADDR_STR) {
		strcpy(text, name);
		return;
	}
	text += sprintf(text, BYTES);
	for (size_t at = 0; at < length; at++)
		text += sprintf(text, "%02x", (unsigned char)name[at]);
}

static void read_name(const char *text, char *name)
{
	if (strncmp(text, BYTES, strlen(BYTES))) {
		strncpy(name, text, NAME_MAX);
		return;
	}
	text += strlen(BYTES);
	unsigned byte;
	for (size_t at = 0; at < NAME_MAX && sscanf(text + 2 * at, "%2x", &byte) == 1; at++)
		name[at] = (char)byte;
}

static void open_endpoint(size_t largest, size_t window, bool remote)
{
	struct bench_endpoint *s = &endpoint;
	struct fi_info *hints = fi_allocinfo();
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_TAGGED | (remote ? FI_RMA | FI_ATOMIC : 0);
	hints->mode = FI_CONTEXT;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &s->info));
	fi_freeinfo(hints);
	check("fi_fabric", fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	check("fi_domain", fi_domain(s->fabric, s->info, &s->domain, NULL));
	struct fi_cq_attr cq_attr = {
		.size = 4 * window < 256 ? 256 : 4 * window,
		.format = FI_CQ_FORMAT_TAGGED,
	};
	struct fi_av_attr av_attr = { .type = FI_AV_UNSPEC };
	check("fi_cq_open", fi_cq_open(s->domain, &cq_attr, &s->cq, NULL));
	check("fi_av_open", fi_av_open(s->domain, &av_attr, &s->av, NULL));
	check("fi_endpoint", fi_endpoint(s->domain, s->info, &s->ep, NULL));
	check("fi_ep_bind", fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_ep_bind", fi_ep_bind(s->ep, &s->av->fid, 0));
	check("fi_enable", fi_enable(s->ep));
	open_buffers(largest, window, remote);
	char name[NAME_MAX + 1] = { 0 }, text[2 * NAME_MAX + sizeof(BYTES)];
	size_t length = NAME_MAX;
	check("fi_getname", fi_getname(&s->ep->fid, name, &length));
	write_name(name, length, text);
	reply("{\"done\":{\"provider\":\"%s\",\"address\":\"%s\",\"inject_size\":%zu}}\n",
	      s->info->fabric_attr->prov_name, text, s->info->tx_attr->inject_size);
}

/* Posting and completing. */

static inline void rest(void)
{
	if (yielding)
		sched_yield();
}

static void make_room(const char *call, ssize_t result)
{
	if (result != -FI_EAGAIN)
		fail(call, result);
	rest();
	ssize_t count = fi_cq_read(endpoint.cq, NULL, 0);
	if (count < 0 && count != -FI_EAGAIN)
		fail("fi_cq_read", count);
}

static inline void post_recv(size_t slot, size_t length, uint64_t tag)
{
	struct bench_endpoint *s = &endpoint;
	char *buf = s->rx + slot * s->stride;
	void *context = (void *)(uintptr_t)slot;
	for (;;) {
		ssize_t result = s->order.tagged
			? fi_trecv(s->ep, buf, length, NULL, FI_ADDR_UNSPEC, tag, 0, context)
			: fi_recv(s->ep, buf, length, NULL, FI_ADDR_UNSPEC, context);
		if (!result)
			return;
		make_room("fi_recv", result);
	}
}

static inline void post_send(size_t slot, size_t length, uint64_t tag)
{
	struct bench_endpoint *s = &endpoint;
	char *buf = s->tx + slot * s->stride;
	void *context = (void *)(uintptr_t)(slot | SENT);
	for (;;) {
		ssize_t result = s->order.tagged
			? fi_tsend(s->ep, buf, length, NULL, s->peer, tag, context)
			: fi_send(s->ep, buf, length, NULL, s->peer, context);
		if (!result)
			return;
		make_room("fi_send", result);
	}
}

static inline void inject(size_t slot, size_t length, uint64_t tag)
{
	struct bench_endpoint *s = &endpoint;
	char *buf = s->tx + slot * s->stride;
	for (;;) {
		ssize_t result = s->order.tagged
			? fi_tinject(s->ep, buf, length, s->peer, tag)
			: fi_inject(s->ep, buf, length, s->peer);
		if (!result)
			return;
		make_room("fi_inject", result);
	}
}

/* Reads up to `room` completions and returns their buffers to the free lists. */
static inline void read_completions(size_t room, size_t expected)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t count = fi_cq_read(s->cq, s->entries, room);
	if (count == -FI_EAGAIN) {
		rest();
		return;
	}
	if (count < 0)
		fail("fi_cq_read", count);
	for (ssize_t at = 0; at < count; at++) {
		uint64_t context = (uint64_t)(uintptr_t)s->entries[at].op_context;
		if (context & SENT) {
			s->tx_free[s->tx_count++] = context & ~SENT;
		} else {
			if (s->entries[at].len != expected)
				fail("wrong length of a message", 0);
			s->rx_free[s->rx_count++] = context;
			s->received++;
		}
	}
}

static void begin(size_t size, size_t window, size_t to_post)
{
	struct bench_endpoint *s = &endpoint;
	s->stride = stride_of(size);
	s->to_post = to_post;
	s->received = 0;
	s->rx_count = 2 * window;
	s->tx_count = window;
	for (size_t slot = 0; slot < 2 * window; slot++)
		s->rx_free[slot] = slot;
	for (size_t slot = 0; slot < window; slot++)
		s->tx_free[slot] = slot;
}

static inline void post_free(size_t count, size_t length, uint64_t tag)
{
	struct bench_endpoint *s = &endpoint;
	if (count > s->to_post)
		count = s->to_post;
	s->to_post -= count;
	while (count--)
		post_recv(s->rx_free[--s->rx_count], length, tag);
}

/* Round trips. */

static inline void pingpong_send(void)
{
	struct bench_endpoint *s = &endpoint;
	if (s->order.inject)
		inject(s->tx_free[0], s->order.size, TAG_PAYLOAD);
	else
		post_send(s->tx_free[--s->tx_count], s->order.size, TAG_PAYLOAD);
}

static inline void pingpong_receive(void)
{
	struct bench_endpoint *s = &endpoint;
	uint64_t wanted = s->received + 1;
	while (s->received != wanted || !s->tx_count)
		read_completions(1, s->order.size);
}

static inline void post_free_receive(void)
{
	if (endpoint.rx_count)
		post_free(1, endpoint.order.size, TAG_PAYLOAD);
}

static inline void trip(void)
{
	if (active) {
		pingpong_send();
		post_free_receive();
		pingpong_receive();
	} else {
		pingpong_receive();
		pingpong_send();
		post_free_receive();
	}
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

/* As src/stats.rs: the mean of the middle two of an even number. */
static double median(double *values, size_t count)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), by_value);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static size_t group_size(double trip_ns)
{
	size_t size = (size_t)(GROUP_NS / (trip_ns < 1 ? 1 : trip_ns));
	return size < 1 ? 1 : size > GROUP_MAX ? GROUP_MAX : size;
}

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
	struct order *order = &endpoint.order;
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

static struct timing pingpong(void)
{
	struct order *order = &endpoint.order;
	begin(order->size, 1, order->warmup + order->batch + order->singles);
	/* One of the two receives is posted now, the other by the first `post_free_receive`. */
	post_free(1, order->size, TAG_PAYLOAD);
	struct timing timing = round_trips(trip);
	while (!endpoint.tx_count)
		read_completions(1, order->size);
	return timing;
}

/* Streams. */

static inline void wait_for(uint64_t wanted, size_t expected)
{
	struct bench_endpoint *s = &endpoint;
	while (s->received < wanted || s->tx_count < s->order.window)
		read_completions(s->order.window, expected);
}

static inline void send_window(uint64_t *wanted)
{
	struct bench_endpoint *s = &endpoint;
	if (s->order.inject)
		for (size_t at = 0; at < s->order.window; at++)
			inject(s->tx_free[at], s->order.size, TAG_PAYLOAD);
	else
		while (s->tx_count)
			post_send(s->tx_free[--s->tx_count], s->order.size, TAG_PAYLOAD);
	*wanted += 1;
	wait_for(*wanted, ACK);
	post_free(1, ACK, TAG_ACK);
}

static inline void receive_window(uint64_t *wanted, bool inject_ack)
{
	struct bench_endpoint *s = &endpoint;
	*wanted += s->order.window;
	wait_for(*wanted, s->order.size);
	if (inject_ack)
		inject(s->tx_free[0], ACK, TAG_ACK);
	else
		post_send(s->tx_free[--s->tx_count], ACK, TAG_ACK);
	post_free(s->order.window, s->order.size, TAG_PAYLOAD);
	wait_for(*wanted, s->order.size);
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

static struct timing per_message(const uint64_t *stamps)
{
	struct order *order = &endpoint.order;
	const uint64_t *first = stamps + order->warmup;
	struct timing timing = percentiles(first, order->batch);
	timing.mean = stream_mean(first, order->batch, timing.p50);
	double messages = (double)order->window;
	return (struct timing){ timing.mean / messages, timing.p50 / messages,
				timing.p99 / messages, timing.min / messages };
}

static struct timing bandwidth(bool inject_ack)
{
	struct order *order = &endpoint.order;
	size_t windows = order->warmup + order->batch;
	size_t size = order->size < ACK ? ACK : order->size;
	uint64_t wanted = 0;
	begin(size, order->window, active ? windows : windows * order->window);
	post_free(active ? 2 : 2 * order->window, active ? ACK : order->size,
		  active ? TAG_ACK : TAG_PAYLOAD);
	uint64_t *stamps = calloc(windows + 1, sizeof(*stamps));
	stamps[0] = ticks();
	for (size_t at = 0; at < windows; at++) {
		if (active)
			send_window(&wanted);
		else
			receive_window(&wanted, inject_ack);
		stamps[at + 1] = ticks();
	}
	struct timing timing = per_message(stamps);
	free(stamps);
	return timing;
}

/* One-sided operations. */

/* Reads up to `room` completions and returns their number. */
static inline size_t completions(size_t room)
{
	ssize_t count = fi_cq_read(endpoint.cq, endpoint.entries, room);
	if (count >= 0)
		return (size_t)count;
	if (count != -FI_EAGAIN)
		fail("fi_cq_read", count);
	rest();
	return 0;
}

static inline void complete(size_t count)
{
	while (count)
		count -= completions(count);
}

/* Sends bytes to the peer and receives as many, which also synchronises both processes. */
static void exchange(void *own, void *remote, size_t length)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t result;
	while ((result = fi_trecv(s->ep, remote, length, NULL, FI_ADDR_UNSPEC, TAG_SYNCHRONISE, 0,
				  NULL)))
		make_room("fi_trecv", result);
	while ((result = fi_tsend(s->ep, own, length, NULL, s->peer, TAG_SYNCHRONISE, NULL)))
		make_room("fi_tsend", result);
	complete(2);
}

static void synchronise(void)
{
	uint64_t own = 0, remote;
	exchange(&own, &remote, sizeof(own));
}

static void exchange_memory(void)
{
	struct bench_endpoint *s = &endpoint;
	bool virtual = s->info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC);
	struct remote_memory own = {
		.addr = virtual ? (uint64_t)(uintptr_t)s->region : 0,
		.key = fi_mr_key(s->mr),
	};
	exchange(&own, &s->remote, sizeof(own));
}

static inline void post_write(size_t at)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t result;
	while ((result = fi_write(s->ep, s->local + at, s->order.size, NULL, s->peer,
				  s->remote.addr + at, s->remote.key, NULL)))
		make_room("fi_write", result);
}

static inline void post_read(size_t at)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t result;
	while ((result = fi_read(s->ep, s->local + at, s->order.size, NULL, s->peer,
				 s->remote.addr + at, s->remote.key, NULL)))
		make_room("fi_read", result);
}

static inline void post_atomic(size_t at, bool fetch)
{
	struct bench_endpoint *s = &endpoint;
	enum fi_datatype type = s->order.size == 4 ? FI_UINT32 : FI_UINT64;
	uint64_t addr = s->remote.addr + at, key = s->remote.key;
	ssize_t result;
	do {
		result = fetch ? fi_fetch_atomic(s->ep, s->local, 1, NULL, s->local + 32, NULL,
						 s->peer, addr, key, type, FI_SUM, NULL)
			       : fi_atomic(s->ep, s->local, 1, NULL, s->peer, addr, key, type,
					   FI_SUM, NULL);
		if (result)
			make_room("fi_atomic", result);
	} while (result);
}

static uint64_t turn;

static inline void wait_for_put(void)
{
	volatile char *last = endpoint.region + endpoint.order.size - 1;
	while (*last != (char)turn) {
		ssize_t count = fi_cq_read(endpoint.cq, NULL, 0);
		if (count < 0 && count != -FI_EAGAIN)
			fail("fi_cq_read", count);
		rest();
	}
}

static inline void put_trip(void)
{
	turn = turn % 251 + 1;
	if (!active)
		wait_for_put();
	/* The store is as wide as the put's load, as in src/fabric/remote. */
	char *end = endpoint.local + endpoint.order.size;
	uint64_t word = turn * 0x0101010101010101u;
	if (endpoint.order.size >= sizeof(word))
		memcpy(end - sizeof(word), &word, sizeof(word));
	else
		end[-1] = (char)turn;
	post_write(0);
	complete(1);
	if (active)
		wait_for_put();
}

static inline void post_data(void)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t result;
	do {
		result = s->order.inject
			? fi_inject_writedata(s->ep, s->local, s->order.size, turn, s->peer,
					      s->remote.addr, s->remote.key)
			: fi_writedata(s->ep, s->local, s->order.size, NULL, turn, s->peer,
				       s->remote.addr, s->remote.key, NULL);
		if (result)
			make_room("fi_writedata", result);
	} while (result);
}

/* Waits for the peer's data, and for the local write's completion unless `is_written`. */
static inline void wait_for_data(bool is_written)
{
	bool is_received = false;
	while (!is_received || !is_written) {
		if (!completions(1))
			continue;
		if (endpoint.entries[0].flags & FI_REMOTE_CQ_DATA) {
			if (endpoint.entries[0].data != turn)
				fail("wrong data of a write", 0);
			is_received = true;
		} else {
			is_written = true;
		}
	}
}

static inline void data_trip(void)
{
	turn++;
	if (active) {
		post_data();
		wait_for_data(endpoint.order.inject);
	} else {
		wait_for_data(true);
		post_data();
		if (!endpoint.order.inject)
			complete(1);
	}
}

static inline void get_trip(void)
{
	post_read(0);
	complete(1);
}

static struct timing line_turns(const char *bench)
{
	struct order *order = &endpoint.order;
	size_t turns = (order->warmup + order->batch + order->singles) / LINES;
	turns = turns < 8 ? 8 : turns;
	double *taken = calloc(turns, sizeof(*taken));
	bool fetch = strstr(bench, "fetch") != NULL, atomic = !strncmp(bench, "atomic", 6);
	for (size_t at = 0; at < turns; at++) {
		if (!active)
			for (size_t line = 0; line < LINES; line++)
				*(volatile uint64_t *)(endpoint.region + line * LINE) = at;
		synchronise();
		uint64_t start = ticks();
		for (size_t line = 0; active && line < LINES; line++) {
			size_t offset = line * TURN_STRIDE % LINES * LINE;
			if (atomic)
				post_atomic(offset, fetch);
			else
				post_read(offset);
			complete(1);
		}
		taken[at] = (double)(ticks() - start) * ns_per_tick / LINES;
		synchronise();
	}
	double mean = median(taken, turns);
	free(taken);
	return (struct timing){ mean, mean, mean, mean };
}

static struct timing access_windows(bool writes)
{
	struct order *order = &endpoint.order;
	size_t windows = order->warmup + order->batch, stride = stride_of(order->size);
	uint64_t *stamps = calloc(windows + 1, sizeof(*stamps));
	stamps[0] = ticks();
	for (size_t at = 0; active && at < windows; at++) {
		for (size_t slot = 0; slot < order->window; slot++) {
			if (writes)
				post_write(slot * stride);
			else
				post_read(slot * stride);
		}
		complete(order->window);
		stamps[at + 1] = ticks();
	}
	struct timing timing = active ? per_message(stamps) : (struct timing){ 0 };
	free(stamps);
	return timing;
}

static struct timing remote(const char *bench)
{
	struct timing timing = { 0 };
	if (!endpoint.mr)
		fail("the peer's memory was not registered at opening", FI_EINVAL);
	if (!endpoint.remote.key && !endpoint.remote.addr)
		exchange_memory();
	turn = 0;
	endpoint.region[endpoint.order.size - 1] = 0;
	synchronise();
	if (!strcmp(bench, "rma_put"))
		timing = round_trips(put_trip);
	else if (!strcmp(bench, "rma_write_pingpong"))
		timing = round_trips(data_trip);
	else if (!strcmp(bench, "rma_bw"))
		timing = access_windows(true);
	else if (!strcmp(bench, "rma_read_bw"))
		timing = access_windows(false);
	else if (!strncmp(bench, "atomic", 6) || endpoint.order.size <= LINE)
		timing = line_turns(bench);
	else if (active)
		timing = round_trips(get_trip);
	/* Keeps the target progressing until the initiator is done. */
	synchronise();
	return timing;
}

/* Orders. */

static void run_bench(const char *line)
{
	struct order *order = &endpoint.order;
	char bench[32], wants_inject[8];
	int read = sscanf(line,
			  "{\"bench\":{\"bench\":\"%31[^\"]\",\"size\":%zu,\"counts\":{\"warmup\":%zu,"
			  "\"batch\":%zu,\"singles\":%zu},\"window\":%zu,\"inject\":%7[a-z]",
			  bench, &order->size, &order->warmup, &order->batch, &order->singles,
			  &order->window, wants_inject);
	if (read != 7)
		fail("cannot parse a bench order", FI_EINVAL);
	size_t limit = strcmp(wants_inject, "true") ? 0 : endpoint.info->tx_attr->inject_size;
	order->tagged = !strncmp(bench, "tagged", 6);
	order->pingpong = strstr(bench, "pingpong") != NULL;
	order->inject = order->size <= limit;
	bool one_sided = !strncmp(bench, "rma", 3) || !strncmp(bench, "atomic", 6);
	struct timing timing = one_sided	 ? remote(bench)
			       : order->pingpong ? pingpong()
						 : bandwidth(ACK <= limit);
	reply("{\"done\":{\"mean\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"min\":%.3f}}\n", timing.mean,
	      timing.p50, timing.p99, timing.min);
}

static void set_peer(const char *line)
{
	char text[512], name[NAME_MAX + 1] = { 0 };
	if (sscanf(line, "{\"peer\":\"%511[^\"]", text) != 1)
		fail("cannot parse a peer order", FI_EINVAL);
	read_name(text, name);
	if (fi_av_insert(endpoint.av, name, 1, &endpoint.peer, 0, NULL) != 1)
		fail("fi_av_insert", FI_EADDRNOTAVAIL);
	reply("{\"done\":null}\n");
}

static void run_order(const char *line)
{
	size_t largest, window;
	const char *numbers = strstr(line, "\"largest\"");
	if (!strncmp(line, "{\"bench\"", 8))
		run_bench(line);
	else if (!strncmp(line, "{\"peer\"", 7))
		set_peer(line);
	else if (!strncmp(line, "{\"open\"", 7) && numbers &&
		 sscanf(numbers, "\"largest\":%zu,\"window\":%zu", &largest, &window) == 2)
		open_endpoint(largest, window, strstr(line, "\"remote\":true") != NULL);
	else if (!strncmp(line, "\"ready\"", 7))
		reply("{\"done\":null}\n");
	else
		fail("cannot parse an order", FI_EINVAL);
}

static void pin(int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity", FI_EINVAL);
}

/* Arguments: side, core or -1, parent, 1 to yield while waiting. */
int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	active = !strcmp(argv[1], "active");
	yielding = atoi(argv[4]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != atoi(argv[3]))
		return 1;
	if (atoi(argv[2]) >= 0)
		pin(atoi(argv[2]));
	calibrate();
	char line[4096];
	FILE *orders = fdopen(dup(STDIN_FILENO), "r");
	while (orders && fgets(line, sizeof(line), orders))
		run_order(line);
	return 0;
}
