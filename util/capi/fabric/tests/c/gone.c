/* Injects to a peer whose process has ended: counters report the failure, and queues have no entry. */
#include "common.h"

enum { KEY = 77 };
enum kind { MESSAGE, TAGGED, WRITE, ATOMIC, KINDS };

struct remote_memory {
	uint64_t addr, key;
};

static enum kind kind;
static uint64_t window[8], word = 5;

static ssize_t inject(struct side *side, struct remote_memory to)
{
	switch (kind) {
	case MESSAGE:
		return fi_inject(side->ep, &word, sizeof word, side->peer);
	case TAGGED:
		return fi_tinject(side->ep, &word, sizeof word, side->peer, 9);
	case WRITE:
		return fi_inject_write(side->ep, &word, sizeof word, side->peer, to.addr, to.key);
	default:
		return fi_inject_atomic(side->ep, &word, 1, side->peer, to.addr, to.key, FI_UINT64,
					FI_SUM);
	}
}

/* A failed inject has no context, so it has no error entry. */
static void nothing_is_read(struct side *side)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	IS(fi_cq_read(side->cq, &entry, 1), -FI_EAGAIN);
	IS(fi_cq_readerr(side->cq, &error, 0), -FI_EAGAIN);
}

/* The result of an inject, repeated while the queue is full. */
static ssize_t post(struct side *side, struct remote_memory to)
{
	ssize_t got;
	while ((got = inject(side, to)) == -FI_EAGAIN)
		nothing_is_read(side);
	return got;
}

static void await_errors(struct side *side, struct fid_cntr *own, uint64_t count)
{
	while (fi_cntr_readerr(own) < count)
		nothing_is_read(side);
	for (int again = 0; again < 1000; again++)
		nothing_is_read(side);
	IS(fi_cntr_readerr(own), count);
}

static void half(int channel, bool first, const char *provider)
{
	struct side side = {.channel = channel};
	struct fi_info *hints = hints_for(provider, FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC);
	struct fi_cntr_attr cntr_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fi_cq_tagged_entry entry;
	struct fid_cntr *own;
	struct fid_mr *mr;
	struct remote_memory own_memory, peer_memory;
	char op[1];
	/* A message that completes before it arrives would not fail. */
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	open_side(&side, hints, FI_WAIT_NONE);
	OK(fi_cntr_open(side.domain, &cntr_attr, &own, NULL));
	OK(fi_ep_bind(side.ep, &own->fid, FI_SEND | FI_WRITE));
	OK(fi_enable(side.ep));
	exchange_names(&side);
	OK(fi_mr_reg(side.domain, window, sizeof window, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr,
		     NULL));
	own_memory = (struct remote_memory){.key = fi_mr_key(mr)};
	if (side.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		own_memory.addr = (uintptr_t)window;
	send_line(channel, &own_memory, sizeof own_memory);
	receive_line(channel, &peer_memory, sizeof peer_memory);
	if (!first) {
		OK(fi_recv(side.ep, window, sizeof window, NULL, FI_ADDR_UNSPEC, op));
		await_context(&side, op, &entry);
		synchronise(&side);
		_exit(0);
	}
	OK(fi_send(side.ep, &word, sizeof word, NULL, side.peer, op));
	await_context(&side, op, &entry);
	IS(fi_cntr_read(own), 1);
	synchronise(&side);
	siginfo_t end;
	OK(waitid(P_ALL, 0, &end, WEXITED | WNOWAIT));

	OK(post(&side, peer_memory));
	await_errors(&side, own, 1);
	/* Once the peer's end is detected, a post may fail. */
	ssize_t got = post(&side, peer_memory);
	CHECK(got <= 0);
	await_errors(&side, own, got == 0 ? 2 : 1);
	IS(fi_cntr_read(own), 1);
	OK(fi_close(&mr->fid));
	OK(fi_close(&side.ep->fid));
	OK(fi_close(&own->fid));
	OK(fi_close(&side.av->fid));
	OK(fi_close(&side.cq->fid));
	OK(fi_close(&side.domain->fid));
	OK(fi_close(&side.fabric->fid));
	fi_freeinfo(side.info);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	for (kind = MESSAGE; kind < KINDS; kind++)
		run_two(half, argv[1]);
	return 0;
}
