/*
 * The loops of the benchmarks. A contestant includes this file after the functions of its API:
 *
 *   post_recv, post_send, inject      post a buffer of `run`, by its index
 *   read_completions                  polls; returns completed buffers to the free lists of `run`
 *   exchange                          sends bytes and receives as many, outside of a measurement
 *   post_write, post_read, post_atomic, post_data, complete, wait_for_data, poll_target
 *                                     one-sided operations
 *   open_endpoint, set_peer_address, inject_limit, exchange_memory
 */

static void begin(size_t size, size_t window, size_t to_post)
{
	struct run *r = &run;
	r->stride = stride_of(size);
	r->to_post = to_post;
	r->received = 0;
	r->rx_count = 2 * window;
	r->tx_count = window;
	for (size_t slot = 0; slot < 2 * window; slot++)
		r->rx_free[slot] = slot;
	for (size_t slot = 0; slot < window; slot++)
		r->tx_free[slot] = slot;
}

static inline void post_free(size_t count, size_t length, uint64_t tag)
{
	struct run *r = &run;
	if (count > r->to_post)
		count = r->to_post;
	r->to_post -= count;
	while (count--)
		post_recv(r->rx_free[--r->rx_count], length, tag);
}

/* Round trips. */

static inline void pingpong_send(void)
{
	struct run *r = &run;
	if (r->order.inject)
		inject(r->tx_free[0], r->order.size, TAG_PAYLOAD);
	else
		post_send(r->tx_free[--r->tx_count], r->order.size, TAG_PAYLOAD);
}

static inline void pingpong_receive(void)
{
	struct run *r = &run;
	uint64_t wanted = r->received + 1;
	while (r->received != wanted || !r->tx_count)
		read_completions(1, r->order.size);
}

static inline void post_free_receive(void)
{
	if (run.rx_count)
		post_free(1, run.order.size, TAG_PAYLOAD);
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

static struct timing pingpong(void)
{
	struct order *order = &run.order;
	begin(order->size, 1, order->warmup + order->batch + order->singles);
	/* One of the two receives is posted now, the other by the first `post_free_receive`. */
	post_free(1, order->size, TAG_PAYLOAD);
	struct timing timing = round_trips(trip);
	while (!run.tx_count)
		read_completions(1, order->size);
	return timing;
}

/* Streams. */

static inline void wait_for(uint64_t wanted, size_t expected)
{
	struct run *r = &run;
	while (r->received < wanted || r->tx_count < r->order.window)
		read_completions(r->order.window, expected);
}

/* Sends a window from all send buffers, which are free. A send may be over at once. */
static inline void post_window(void)
{
	struct run *r = &run;
	if (r->order.inject) {
		for (size_t slot = 0; slot < r->order.window; slot++)
			inject(slot, r->order.size, TAG_PAYLOAD);
		return;
	}
	r->tx_count = 0;
	for (size_t slot = 0; slot < r->order.window; slot++)
		post_send(slot, r->order.size, TAG_PAYLOAD);
}

static inline void send_window(uint64_t *wanted)
{
	post_window();
	*wanted += 1;
	wait_for(*wanted, ACK);
	post_free(1, ACK, TAG_ACK);
}

static inline void receive_window(uint64_t *wanted, bool inject_ack)
{
	struct run *r = &run;
	*wanted += r->order.window;
	wait_for(*wanted, r->order.size);
	if (inject_ack)
		inject(r->tx_free[0], ACK, TAG_ACK);
	else
		post_send(r->tx_free[--r->tx_count], ACK, TAG_ACK);
	post_free(r->order.window, r->order.size, TAG_PAYLOAD);
	wait_for(*wanted, r->order.size);
}

/* Sends a window, and waits for the peer's window, which serves as the acknowledgement. */
static inline void exchange_windows(uint64_t *wanted)
{
	post_window();
	*wanted += run.order.window;
	wait_for(*wanted, run.order.size);
	post_free(run.order.window, run.order.size, TAG_PAYLOAD);
}

/* Polls until the last injected messages have left: the peer waits for them. */
static void flush_injected(void)
{
	for (int polls = 0; polls < 500; polls++) {
		poll_target();
		sched_yield();
	}
}

static struct timing bandwidth(bool inject_ack, bool both_ways)
{
	struct order *order = &run.order;
	size_t windows = order->warmup + order->batch;
	size_t size = order->size < ACK ? ACK : order->size;
	bool receives_acks = active && !both_ways;
	uint64_t wanted = 0;
	begin(size, order->window, receives_acks ? windows : windows * order->window);
	post_free(receives_acks ? 2 : 2 * order->window, receives_acks ? ACK : order->size,
		  receives_acks ? TAG_ACK : TAG_PAYLOAD);
	uint64_t *stamps = calloc(windows + 1, sizeof(*stamps));
	stamps[0] = ticks();
	for (size_t at = 0; at < windows; at++) {
		if (both_ways)
			exchange_windows(&wanted);
		else if (active)
			send_window(&wanted);
		else
			receive_window(&wanted, inject_ack);
		stamps[at + 1] = ticks();
	}
	struct timing timing = per_message(stamps, both_ways ? 2 * order->window : order->window);
	free(stamps);
	if (both_ways)
		flush_injected();
	return timing;
}

/* One-sided operations. */

static void synchronise(void)
{
	uint64_t own = 0, remote;
	exchange(&own, &remote, sizeof(own));
}

static inline void wait_for_put(void)
{
	volatile char *last = run.region + run.order.size - 1;
	while (*last != (char)turn) {
		poll_target();
		rest();
	}
}

static inline void put_trip(void)
{
	turn = turn % 251 + 1;
	if (!active)
		wait_for_put();
	/* The store is as wide as the put's load, as in src/fabric/remote. */
	char *end = run.local + run.order.size;
	uint64_t word = turn * 0x0101010101010101u;
	if (run.order.size >= sizeof(word))
		memcpy(end - sizeof(word), &word, sizeof(word));
	else
		end[-1] = (char)turn;
	post_write(0);
	complete(1);
	if (active)
		wait_for_put();
}

static inline void data_trip(void)
{
	turn++;
	if (active) {
		post_data();
		wait_for_data(run.order.inject);
	} else {
		wait_for_data(true);
		post_data();
		if (!run.order.inject)
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
	struct order *order = &run.order;
	size_t turns = (order->warmup + order->batch + order->singles) / LINES;
	turns = turns < 8 ? 8 : turns;
	double *taken = calloc(turns, sizeof(*taken));
	bool fetch = strstr(bench, "fetch") != NULL, atomic = !strncmp(bench, "atomic", 6);
	for (size_t at = 0; at < turns; at++) {
		if (!active)
			for (size_t line = 0; line < LINES; line++)
				*(volatile uint64_t *)(run.region + line * LINE) = at;
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
	struct order *order = &run.order;
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
	struct timing timing = active ? per_message(stamps, order->window) : (struct timing){ 0 };
	free(stamps);
	return timing;
}

static struct timing remote(const char *bench)
{
	struct timing timing = { 0 };
	if (!run.region)
		fail_with(bench, "the peer's memory was not registered at opening");
	exchange_memory();
	turn = 0;
	run.region[run.order.size - 1] = 0;
	synchronise();
	if (!strcmp(bench, "rma_put"))
		timing = round_trips(put_trip);
	else if (!strcmp(bench, "rma_write_pingpong"))
		timing = round_trips(data_trip);
	else if (!strcmp(bench, "rma_bw"))
		timing = access_windows(true);
	else if (!strcmp(bench, "rma_read_bw"))
		timing = access_windows(false);
	else if (!strncmp(bench, "atomic", 6) || run.order.size <= LINE)
		timing = line_turns(bench);
	else if (active)
		timing = round_trips(get_trip);
	/* Keeps the target progressing until the initiator is done. */
	synchronise();
	return timing;
}

#include "orders.h"
