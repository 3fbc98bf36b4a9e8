/* Threads that park: blocking reads, descriptors, signals. */
#include <pthread.h>
#include <stdatomic.h>

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
	exchange_names(&side);
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
	synchronise(&side);
	close_side(&side);
}

static atomic_bool is_over;

/* One error is not enough: it may arrive before the wait begins. */
static void *fail(void *cntr)
{
	while (!atomic_load(&is_over))
		OK(fi_cntr_adderr(cntr, 1));
	return NULL;
}

/* Without a wait object, fi_cntr_wait reads the counter, which makes progress, until the timeout. */
static void counters_without_object(const char *provider)
{
	struct side side = {0};
	struct fid_cntr *cntr;
	struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_NONE};
	char name[256], buf[8];
	size_t len = sizeof name;
	pthread_t thread;
	open_side(&side, hints_for(provider, FI_MSG), FI_WAIT_NONE);
	OK(fi_cntr_open(side.domain, &attr, &cntr, NULL));
	OK(fi_ep_bind(side.ep, &cntr->fid, FI_RECV));
	OK(fi_enable(side.ep));
	OK(fi_getname(&side.ep->fid, name, &len));
	IS(fi_av_insert(side.av, name, 1, &side.peer, 0, NULL), 1);
	IS(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
	IS(fi_cntr_wait(cntr, 1, 10), -FI_ETIMEDOUT);

	OK(fi_recv(side.ep, buf, sizeof buf, NULL, FI_ADDR_UNSPEC, buf));
	OK(fi_inject(side.ep, "to me", 6, side.peer));
	OK(fi_cntr_wait(cntr, 1, -1));
	CHECK(!strcmp(buf, "to me"));

	CHECK(pthread_create(&thread, NULL, fail, cntr) == 0);
	IS(fi_cntr_wait(cntr, 2, -1), -FI_EAVAIL);
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
	OK(fi_close(&side.ep->fid));
	OK(fi_close(&cntr->fid));
	OK(fi_close(&side.av->fid));
	OK(fi_close(&side.cq->fid));
	OK(fi_close(&side.domain->fid));
	OK(fi_close(&side.fabric->fid));
	fi_freeinfo(side.info);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	run_two(half, argv[1]);
	counters_without_object(argv[1]);
	return 0;
}
