/*
 * The contestant over MPI: two ranks that mpirun starts. The loops are those of MPI programs:
 * blocking sends and receives for round trips, and windows of non-blocking ones that are waited for
 * together. One-sided operations are not measured.
 */
#include "contestant.h"

#include <mpi.h>

/* Requests of a window in both directions. */
static MPI_Request requests[1 << 17];
static int peer = -1;

static void check(const char *call, int status)
{
	char text[MPI_MAX_ERROR_STRING];
	int length;
	if (status == MPI_SUCCESS)
		return;
	if (MPI_Error_string(status, text, &length))
		snprintf(text, sizeof(text), "error %d", status);
	fail_with(call, text);
}

/* Opening. */

/* Fails unless the process has mapped a file whose path begins with that of `variable`. */
static void require_mapped(const char *variable)
{
	const char *path = getenv(variable);
	char line[8192];
	bool found = !path;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && !found && fgets(line, sizeof(line), maps))
		found = strstr(line, path) != NULL;
	if (maps)
		fclose(maps);
	if (!found)
		fail_with("MPI_Init", "it has not loaded Selvedge's library: see docs/CFACE.md");
}

static void finalize(void)
{
	MPI_Finalize();
}

/* Allocates memory as programs do, so that a preloaded allocator takes effect. */
static char *allocated(size_t length)
{
	char *memory = aligned_alloc(LINE, length);
	if (!memory)
		fail_with("aligned_alloc", strerror(errno));
	memset(memory, 0x5a, length);
	return memory;
}

static void open_endpoint(size_t largest, size_t window, bool remote)
{
	(void)remote;
	if (peer < 0) {
		int rank;
		check("MPI_Init", MPI_Init(NULL, NULL));
		atexit(finalize);
		check("MPI_Comm_set_errhandler",
		      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
		check("MPI_Comm_rank", MPI_Comm_rank(MPI_COMM_WORLD, &rank));
		peer = !rank;
		require_mapped("BENCH_LIBRARY");
		require_mapped("BENCH_HEAP");
	}
	size_t side = window_bytes(largest, window);
	run.rx = allocated(side);
	run.tx = allocated(side);
	reply("{\"done\":{\"provider\":\"%s\",\"address\":\"rank\",\"inject_size\":0}}\n",
	      getenv("BENCH_PROVIDER"));
}

/* MPI knows the other rank. */
static void set_peer_address(const char *text)
{
	(void)text;
}

/* MPI has no call that injects. */
static size_t inject_limit(void)
{
	return 0;
}

/* Messages. */

static inline void send_message(size_t length, int tag)
{
	check("MPI_Send", MPI_Send(run.tx, (int)length, MPI_BYTE, peer, tag, MPI_COMM_WORLD));
}

static inline void receive_message(size_t length, int tag)
{
	check("MPI_Recv", MPI_Recv(run.rx, (int)length, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
				   MPI_STATUS_IGNORE));
}

static inline void trip(void)
{
	if (active)
		send_message(run.order.size, TAG_PAYLOAD);
	receive_message(run.order.size, TAG_PAYLOAD);
	if (!active)
		send_message(run.order.size, TAG_PAYLOAD);
}

static struct timing pingpong(void)
{
	return round_trips(trip);
}

/* Posts a window of sends or of receives, and returns its number of requests. */
static inline size_t post_window(MPI_Request *window, bool sends)
{
	struct order *order = &run.order;
	size_t stride = stride_of(order->size);
	for (size_t slot = 0; slot < order->window; slot++)
		if (sends)
			check("MPI_Isend",
			      MPI_Isend(run.tx + slot * stride, (int)order->size, MPI_BYTE, peer,
					TAG_PAYLOAD, MPI_COMM_WORLD, &window[slot]));
		else
			check("MPI_Irecv",
			      MPI_Irecv(run.rx + slot * stride, (int)order->size, MPI_BYTE, peer,
					TAG_PAYLOAD, MPI_COMM_WORLD, &window[slot]));
	return order->window;
}

static inline void wait_for(size_t count)
{
	check("MPI_Waitall", MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE));
}

/* A window in one direction, and an acknowledgement in the other. */
static inline void stream_window(void)
{
	wait_for(post_window(requests, active));
	if (active)
		receive_message(ACK, TAG_ACK);
	else
		send_message(ACK, TAG_ACK);
}

static inline void exchange_windows(void)
{
	size_t posted = post_window(requests, false);
	wait_for(posted + post_window(requests + posted, true));
}

static struct timing bandwidth(bool inject_ack, bool both_ways)
{
	struct order *order = &run.order;
	size_t windows = order->warmup + order->batch;
	uint64_t *stamps = calloc(windows + 1, sizeof(*stamps));
	(void)inject_ack;
	stamps[0] = ticks();
	for (size_t at = 0; at < windows; at++) {
		if (both_ways)
			exchange_windows();
		else
			stream_window();
		stamps[at + 1] = ticks();
	}
	struct timing timing = per_message(stamps, both_ways ? 2 * order->window : order->window);
	free(stamps);
	return timing;
}

static struct timing remote(const char *bench)
{
	fail_with(bench, "one-sided operations of MPI are not measured");
	return (struct timing){ 0 };
}

#include "orders.h"
