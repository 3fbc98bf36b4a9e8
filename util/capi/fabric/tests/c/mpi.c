/* Ranks of MPI: ping-pong, collectives, one-sided. Rank 0 prints the library that carried them. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			MPI_Abort(MPI_COMM_WORLD, 1);                                 \
		}                                                                     \
	} while (0)

enum { MOST = 1 << 20, WORDS = 64 };

static int rank, ranks;

static void fill(char *buf, int len, int seed)
{
	for (int at = 0; at < len; at++)
		buf[at] = (char)(at * 7 + seed);
}

static void pingpong(void)
{
	static char out[MOST], in[MOST], expected[MOST];
	int sizes[] = {0, 1, 8, 100, 4096, 4097, 65536, MOST};
	int peer = rank ^ 1;
	if (peer >= ranks)
		return;
	for (int which = 0; which < 8; which++) {
		int len = sizes[which];
		for (int turn = 0; turn < 10; turn++) {
			MPI_Status status;
			fill(out, len, turn + rank);
			fill(expected, len, turn + peer);
			if (rank < peer) {
				MPI_Send(out, len, MPI_BYTE, peer, 5, MPI_COMM_WORLD);
				MPI_Recv(in, len, MPI_BYTE, peer, 6, MPI_COMM_WORLD, &status);
			} else {
				MPI_Probe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
				CHECK(status.MPI_SOURCE == peer);
				MPI_Recv(in, len, MPI_BYTE, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
				MPI_Send(out, len, MPI_BYTE, peer, 6, MPI_COMM_WORLD);
			}
			int got;
			MPI_Get_count(&status, MPI_BYTE, &got);
			CHECK(got == len && !memcmp(in, expected, (size_t)len));
		}
	}
}

static void latency(void)
{
	char byte[8] = {0};
	double best = 1e9;
	if (rank > 1)
		return;
	for (int run = 0; run < 5; run++) {
		double begin = MPI_Wtime();
		for (int turn = 0; turn < 2000; turn++) {
			if (rank == 0)
				MPI_Send(byte, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
			MPI_Recv(byte, 8, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			if (rank == 1)
				MPI_Send(byte, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
		}
		double each = (MPI_Wtime() - begin) / 2000;
		best = each < best ? each : best;
	}
	if (rank == 0)
		printf("8-byte round trip: %.2f us\n", best * 1e6);
}

static void collectives(void)
{
	int64_t mine[WORDS], sum[WORDS], all[WORDS * 16];
	CHECK(ranks <= 16);
	for (int turn = 0; turn < 20; turn++) {
		for (int at = 0; at < WORDS; at++)
			mine[at] = rank * 1000 + at + turn;
		MPI_Allreduce(mine, sum, WORDS, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
		for (int at = 0; at < WORDS; at++)
			CHECK(sum[at] == (int64_t)ranks * (ranks - 1) / 2 * 1000 + (int64_t)ranks * (at + turn));
		MPI_Allgather(mine, WORDS, MPI_INT64_T, all, WORDS, MPI_INT64_T, MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++)
			CHECK(all[from * WORDS + 3] == from * 1000 + 3 + turn);
		MPI_Alltoall(all, WORDS / 16, MPI_INT64_T, sum, WORDS / 16, MPI_INT64_T, MPI_COMM_WORLD);
		if (rank == turn % ranks)
			mine[0] = 4711 + turn;
		MPI_Bcast(mine, 1, MPI_INT64_T, turn % ranks, MPI_COMM_WORLD);
		CHECK(mine[0] == 4711 + turn);
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

static void one_sided(void)
{
	int64_t *window, local[WORDS];
	MPI_Win win;
	int next = (rank + 1) % ranks;
	MPI_Win_allocate(WORDS * sizeof *window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	memset(window, 0, WORDS * sizeof *window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_fence(0, win);
	for (int at = 0; at < 8; at++)
		local[at] = rank * 100 + at;
	MPI_Put(local, 8, MPI_INT64_T, next, 0, 8, MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	CHECK(window[3] == (rank + ranks - 1) % ranks * 100 + 3);
	MPI_Get(local + 8, 8, MPI_INT64_T, next, 0, 8, MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	CHECK(local[11] == rank * 100 + 3);
	int64_t one = 1, before;
	for (int turn = 0; turn < 10; turn++) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 20, MPI_SUM, win);
		MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 21, 1, MPI_INT64_T, MPI_SUM, win);
		MPI_Win_unlock(0, win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
	MPI_Get(local, 2, MPI_INT64_T, 0, 20, 2, MPI_INT64_T, win);
	MPI_Win_unlock(0, win);
	CHECK(local[0] == 10 * ranks && local[1] == 10 * ranks);
	MPI_Win_free(&win);
}

/* The number of arenas of other ranks' shared heaps that this rank has mapped. */
static int mapped_arenas(void)
{
	char line[512];
	int count = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps))
		count += strstr(line, "selvedge-heap") && strstr(line, " r--s ");
	if (maps)
		fclose(maps);
	return count;
}

/* Messages in allocated memory, before and after a fork of each rank. */
static void heap(void)
{
	int peer = rank ^ 1;
	char *out = malloc(MOST), *in = malloc(MOST), *expected = malloc(MOST);
	for (int turn = 0; turn < 8; turn++) {
		MPI_Status status;
		fill(out, MOST, turn + rank);
		fill(expected, MOST, turn + peer);
		memset(in, 0, MOST);
		MPI_Sendrecv(out, MOST, MPI_BYTE, peer, 9, in, MOST, MPI_BYTE, peer, 9, MPI_COMM_WORLD, &status);
		CHECK(!memcmp(in, expected, MOST));
		if (turn == 3) {
			CHECK(mapped_arenas() == 1);
			CHECK(system("exit 5") >> 8 == 5);
			pid_t child = fork();
			if (child == 0) {
				memset(out, 'c', MOST);
				_exit(in[MOST - 1] != expected[MOST - 1]);
			}
			int code;
			CHECK(waitpid(child, &code, 0) == child && code == 0);
		}
		if (turn == 5) {
			free(out);
			out = malloc(MOST);
		}
	}
	CHECK(mapped_arenas() > 0);
	free(out);
	free(in);
	free(expected);
	if (rank == 0)
		printf("the heap was mapped\n");
}

static void carrier(void)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps))
		if (strstr(line, "libfabric") && strchr(line, '/')) {
			printf("carried by %s", strchr(line, '/'));
			break;
		}
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int at = 1; at < argc; at++) {
		if (!strcmp(argv[at], "pingpong"))
			pingpong();
		if (!strcmp(argv[at], "latency"))
			latency();
		if (!strcmp(argv[at], "collectives"))
			collectives();
		if (!strcmp(argv[at], "one-sided"))
			one_sided();
		if (!strcmp(argv[at], "heap"))
			heap();
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		carrier();
		printf("done with %d ranks\n", ranks);
	}
	MPI_Finalize();
	return 0;
}
