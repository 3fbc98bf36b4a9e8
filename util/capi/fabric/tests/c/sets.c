/* Poll sets and wait sets, and numbers of the application's for peers, over queues and counters of an endpoint that sends to itself. */
#include "common.h"

enum { LEN = 32 };

static struct side side;
static char out[LEN], in[LEN];

static bool is_in(void **contexts, int count, void *wanted)
{
	for (int at = 0; at < count; at++)
		if (contexts[at] == wanted)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	struct fi_cntr_attr cntr_attr = {.events = FI_CNTR_EVENTS_COMP};
	struct fi_wait_attr wait_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fi_poll_attr poll_attr = {0};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_tagged_entry entry;
	struct fid_wait *waits;
	struct fid_poll *polls;
	struct fid_cntr *cntr;
	char name[256];
	size_t len = sizeof name;
	void *contexts[4];
	int count;
	CHECK(argc == 2);
	open_domain(&side, hints_for(argv[1], FI_MSG | FI_SOURCE | FI_AV_USER_ID));
	OK(fi_wait_open(side.fabric, &wait_attr, &waits));
	cq_attr.wait_set = waits;
	OK(fi_cq_open(side.domain, &cq_attr, &side.cq, &side));
	cq_attr.wait_set = NULL;
	struct fid_cq *other;
	IS(fi_cq_open(side.domain, &cq_attr, &other, NULL), -FI_EINVAL);
	OK(fi_cntr_open(side.domain, &cntr_attr, &cntr, &cntr));
	OK(fi_av_open(side.domain, &av_attr, &side.av, NULL));
	OK(fi_endpoint(side.domain, side.info, &side.ep, NULL));
	OK(fi_ep_bind(side.ep, &side.cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(side.ep, &cntr->fid, FI_RECV));
	OK(fi_ep_bind(side.ep, &side.av->fid, 0));
	OK(fi_enable(side.ep));
	OK(fi_getname(&side.ep->fid, name, &len));
	IS(fi_av_insert(side.av, name, 1, &side.peer, 0, NULL), 1);

	OK(fi_poll_open(side.domain, &poll_attr, &polls));
	OK(fi_poll_add(polls, &side.cq->fid, 0));
	OK(fi_poll_add(polls, &cntr->fid, 0));
	IS(fi_poll_add(polls, &cntr->fid, 0), -FI_EINVAL);
	IS(fi_poll_add(polls, &side.av->fid, 0), -FI_EINVAL);
	IS(fi_poll_add(polls, &cntr->fid, 1), -FI_EBADFLAGS);
	IS(fi_poll(polls, contexts, 4), 0);
	IS(fi_wait(waits, 20), -FI_ETIMEDOUT);

	/* Completions name the peer, which is this endpoint itself, by its user id. */
	fi_addr_t id = 0x1234567890;
	IS(fi_av_insert(side.av, name, 1, &id, FI_AV_USER_ID, NULL), 1);
	IS(id, side.peer);
	IS(fi_av_insert(side.av, name, 1, NULL, FI_AV_USER_ID, NULL), -FI_EINVAL);
	memset(out, 5, LEN);
	OK(fi_recv(side.ep, in, LEN, NULL, FI_ADDR_UNSPEC, in));
	OK(fi_send(side.ep, out, LEN, NULL, side.peer, out));
	OK(fi_wait(waits, 10000));
	do
		count = fi_poll(polls, contexts, 4);
	while (count < 2);
	IS(count, 2);
	CHECK(is_in(contexts, count, &side) && is_in(contexts, count, &cntr));
	for (int done = 0; done < 2;) {
		fi_addr_t from = 0;
		ssize_t got = fi_cq_readfrom(side.cq, &entry, 1, &from);
		if (got == -FI_EAGAIN)
			continue;
		IS(got, 1);
		done++;
		if (entry.flags & FI_RECV)
			IS(from, 0x1234567890);
	}
	CHECK(!memcmp(in, out, LEN));
	count = fi_poll(polls, contexts, 4);
	IS(count, 1);
	CHECK(contexts[0] == &cntr);
	IS(fi_cntr_read(cntr), 1);
	IS(fi_poll(polls, contexts, 4), 0);
	OK(fi_poll_del(polls, &cntr->fid, 0));
	IS(fi_poll_del(polls, &cntr->fid, 0), -FI_EINVAL);

	IS(fi_close(&waits->fid), -FI_EBUSY);
	OK(fi_close(&polls->fid));
	OK(fi_close(&side.ep->fid));
	OK(fi_close(&cntr->fid));
	OK(fi_close(&side.av->fid));
	OK(fi_close(&side.cq->fid));
	OK(fi_close(&waits->fid));
	OK(fi_close(&side.domain->fid));
	OK(fi_close(&side.fabric->fid));
	fi_freeinfo(side.info);
	return 0;
}
