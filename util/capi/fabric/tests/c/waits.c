/* Threads that sleep: blocking reads, descriptors, signals. */
#include <pthread.h>

#include "common.h"

enum { ROUNDS = 20 };

static void *wake(void *cq)
{
	OK(fi_cq_signal(cq));
	return NULL;
}

static void half(int channel, bool first, const char *provider)
{
	struct side side = {.channel = channel};
	struct fi_cq_tagged_entry entry;
	fi_addr_t src = 5;
	char buf[8] = "ping", ctx[1];
	int fd = -1;
	enum fi_wait_obj object = FI_WAIT_NONE;
	open_side(&side, hints_for(provider, FI_MSG | FI_TAGGED | FI_SOURCE), FI_WAIT_FD);
	OK(fi_enable(side.ep));
	introduce(&side);
	OK(fi_control(&side.cq->fid, FI_GETWAIT, &fd));
	OK(fi_control(&side.cq->fid, FI_GETWAITOBJ, &object));
	CHECK(fd >= 0 && object == FI_WAIT_FD);
	IS(fi_control(&side.cq->fid, 99, NULL), -FI_ENOSYS);
	IS(fi_cq_sread(side.cq, &entry, 1, NULL, 5), -FI_EAGAIN);

	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, wake, side.cq) == 0);
	IS(fi_cq_sread(side.cq, &entry, 1, NULL, 20000), -FI_EAGAIN);
	pthread_join(thread, NULL);

	for (int round = 0; round < ROUNDS; round++) {
		OK(fi_trecv(side.ep, buf, sizeof buf, NULL, FI_ADDR_UNSPEC, 1, 0, ctx));
		if (first)
			OK(fi_tinject(side.ep, "ping", 5, side.peer, 1));
		for (;;) {
			struct fid *fids[] = {&side.cq->fid};
			struct pollfd ready = {.fd = fd, .events = POLLIN};
			ssize_t got = round % 2 ? fi_cq_sreadfrom(side.cq, &entry, 1, &src, NULL, 20000)
						: fi_cq_readfrom(side.cq, &entry, 1, &src);
			if (got == 1)
				break;
			IS(got, -FI_EAGAIN);
			if (fi_trywait(side.fabric, fids, 1) == 0)
				CHECK(poll(&ready, 1, 20000) == 1);
		}
		CHECK(entry.op_context == ctx);
		IS(src, side.peer);
		if (!first)
			OK(fi_tinject(side.ep, "pong", 5, side.peer, 1));
	}
	meet(&side);
	close_side(&side);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	return run_two(half, argv[1]);
}
