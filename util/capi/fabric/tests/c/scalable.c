/* Scalable endpoints: contexts with queues of their own behind one address. */
#include "common.h"

enum { COUNT = 3, BITS = 4, LEN = 64 };

struct context {
	struct fid_ep *tx, *rx;
	struct fid_cq *tx_cq, *rx_cq;
};

static struct side side;
static struct fid_ep *sep;
static struct context contexts[COUNT];
static char in[COUNT][LEN], out[LEN], target[LEN];

static struct fid_cq *open_cq(void)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fid_cq *cq;
	OK(fi_cq_open(side.domain, &attr, &cq, NULL));
	return cq;
}

static void await(struct fid_cq *cq, void *context, fi_addr_t *from)
{
	struct fi_cq_tagged_entry entry;
	ssize_t got;
	do {
		/* Reading the queue of a context processes its peers' requests. */
		for (int i = 0; i < COUNT; i++)
			if (contexts[i].rx_cq != cq)
				fi_cq_read(contexts[i].rx_cq, NULL, 0);
		got = from ? fi_cq_readfrom(cq, &entry, 1, from) : fi_cq_read(cq, &entry, 1);
	} while (got == -FI_EAGAIN);
	IS(got, 1);
	CHECK(entry.op_context == context);
}

/* As in introduce() of common.h. */
static void exchange(void)
{
	char name[256] = {0}, peer[256];
	size_t len = sizeof name;
	OK(fi_getname(&sep->fid, name, &len));
	send_line(side.channel, name, sizeof name);
	receive_line(side.channel, peer, sizeof peer);
	/* Inserts an address first, so that the index of the vector and of the context differ. */
	IS(fi_av_insert(side.av, name, 1, NULL, 0, NULL), 1);
	IS(fi_av_insert(side.av, peer, 1, &side.peer, 0, NULL), 1);
	CHECK(side.peer == 1);
}

static void open_all(const char *provider)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .rx_ctx_bits = BITS};
	struct fi_info *hints = hints_for(provider,
		FI_MSG | FI_TAGGED | FI_RMA | FI_NAMED_RX_CTX | FI_SOURCE | FI_DIRECTED_RECV);
	struct fid_ep *none;
	hints->ep_attr->tx_ctx_cnt = COUNT;
	hints->ep_attr->rx_ctx_cnt = COUNT;
	open_domain(&side, hints);
	CHECK(side.info->caps & FI_NAMED_RX_CTX);
	CHECK(side.info->ep_attr->rx_ctx_cnt == COUNT && side.info->domain_attr->max_ep_rx_ctx >= COUNT);
	OK(fi_scalable_ep(side.domain, side.info, &sep, NULL));
	CHECK(sep->fid.fclass == FI_CLASS_SEP);
	IS(fi_enable(sep), -FI_ENOAV);
	OK(fi_av_open(side.domain, &av_attr, &side.av, NULL));
	for (int i = 0; i < COUNT; i++) {
		OK(fi_tx_context(sep, i, NULL, &contexts[i].tx, NULL));
		OK(fi_rx_context(sep, i, NULL, &contexts[i].rx, NULL));
		CHECK(contexts[i].tx->fid.fclass == FI_CLASS_TX_CTX);
		CHECK(contexts[i].rx->fid.fclass == FI_CLASS_RX_CTX);
		contexts[i].tx_cq = open_cq();
		contexts[i].rx_cq = open_cq();
	}
	side.cq = contexts[0].rx_cq;
	IS(fi_tx_context(sep, 0, NULL, &none, NULL), -FI_EBUSY);
	IS(fi_rx_context(sep, COUNT, NULL, &none, NULL), -FI_EINVAL);
	IS(fi_tx_context(sep, -1, NULL, &none, NULL), -FI_EINVAL);
	IS(fi_scalable_ep_bind(sep, &contexts[0].tx_cq->fid, 0), -FI_EINVAL);
	OK(fi_scalable_ep_bind(sep, &side.av->fid, 0));
	IS(fi_scalable_ep_bind(sep, &side.av->fid, 0), -FI_EINVAL);
}

static void enable_all(void)
{
	for (int i = 0; i < COUNT; i++) {
		struct context *it = &contexts[i];
		IS(fi_ep_bind(it->tx, &it->tx_cq->fid, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
		OK(fi_ep_bind(it->tx, &it->tx_cq->fid, FI_TRANSMIT));
		IS(fi_send(it->tx, out, LEN, NULL, 0, NULL), -FI_EOPBADSTATE);
		OK(fi_enable(it->tx));
		IS(fi_enable(it->tx), -FI_EOPBADSTATE);
		/* fi_getname does not open the context: the other half may still be enabled. */
		char name[256];
		size_t len = sizeof name;
		OK(fi_getname(&it->tx->fid, name, &len));
	}
	for (int i = 0; i < COUNT; i++) {
		struct context *it = &contexts[i];
		IS(fi_enable(it->rx), -FI_ENOCQ);
		OK(fi_ep_bind(it->rx, &it->rx_cq->fid, FI_RECV));
		OK(fi_enable(it->rx));
		IS(fi_send(it->rx, out, LEN, NULL, 0, NULL), -FI_ENOSYS);
		IS(fi_recv(it->tx, in[0], LEN, NULL, FI_ADDR_UNSPEC, NULL), -FI_ENOSYS);
	}
	OK(fi_enable(sep));
	IS(fi_close(&sep->fid), -FI_EBUSY);
}

/* Sends from context `from` of the first process to context `to` of the second. */
static void one(bool first, int from, int to, bool tagged)
{
	fi_addr_t source = FI_ADDR_UNSPEC;
	fi_addr_t at = fi_rx_addr(side.peer, first ? to : from, BITS);
	uint64_t tag = 100 + from;
	if (first) {
		memset(out, 1 + 10 * from + to, LEN);
		synchronise(&side);
		if (tagged)
			OK(fi_tsend(contexts[from].tx, out, LEN, NULL, at, tag, out));
		else
			OK(fi_send(contexts[from].tx, out, LEN, NULL, at, out));
		await(contexts[from].tx_cq, out, NULL);
		return;
	}
	memset(in[to], 0, LEN);
	if (tagged)
		OK(fi_trecv(contexts[to].rx, in[to], LEN, NULL, at, tag, 0, in[to]));
	else
		OK(fi_recv(contexts[to].rx, in[to], LEN, NULL, at, in[to]));
	synchronise(&side);
	await(contexts[to].rx_cq, in[to], &source);
	CHECK(source == at);
	CHECK(in[to][0] == 1 + 10 * from + to && in[to][LEN - 1] == in[to][0]);
}

static void half(int channel, bool first, const char *provider)
{
	struct fid_mr *mr = NULL;
	side.channel = channel;
	open_all(provider);
	enable_all();
	exchange();
	for (int from = 0; from < COUNT; from++)
		for (int to = 0; to < COUNT; to++)
			one(first, from, to, (from + to) % 2);
	/* A region belongs to the domain, and peers write it through any context. */
	OK(fi_mr_reg(side.domain, target, LEN, FI_REMOTE_WRITE, 0, 77, 0, &mr, NULL));
	synchronise(&side);
	if (first) {
		memset(out, 42, LEN);
		OK(fi_write(contexts[2].tx, out, LEN, NULL, fi_rx_addr(side.peer, 1, BITS), 0, 77, out));
		await(contexts[2].tx_cq, out, NULL);
	} else {
		while (((volatile char *)target)[0] != 42 || ((volatile char *)target)[LEN - 1] != 42)
			for (int i = 0; i < COUNT; i++)
				fi_cq_read(contexts[i].rx_cq, NULL, 0);
	}
	synchronise(&side);
	OK(fi_recv(contexts[1].rx, in[1], LEN, NULL, FI_ADDR_UNSPEC, in[1]));
	OK(fi_cancel(&contexts[1].rx->fid, in[1]));
	synchronise(&side);
	OK(fi_close(&mr->fid));
	/* A context may be opened again when both halves are closed. */
	OK(fi_close(&contexts[1].tx->fid));
	IS(fi_tx_context(sep, 1, NULL, &contexts[1].tx, NULL), -FI_EOPBADSTATE);
	OK(fi_close(&contexts[1].rx->fid));
	OK(fi_rx_context(sep, 1, NULL, &contexts[1].rx, NULL));
	OK(fi_ep_bind(contexts[1].rx, &contexts[1].rx_cq->fid, FI_RECV));
	OK(fi_enable(contexts[1].rx));
	OK(fi_recv(contexts[1].rx, in[1], LEN, NULL, FI_ADDR_UNSPEC, in[1]));
	OK(fi_close(&contexts[1].rx->fid));
	for (int i = 0; i < COUNT; i++) {
		if (i != 1) {
			OK(fi_close(&contexts[i].tx->fid));
			OK(fi_close(&contexts[i].rx->fid));
		}
		OK(fi_close(&contexts[i].tx_cq->fid));
		OK(fi_close(&contexts[i].rx_cq->fid));
	}
	OK(fi_close(&sep->fid));
	OK(fi_close(&side.av->fid));
	OK(fi_close(&side.domain->fid));
	OK(fi_close(&side.fabric->fid));
	fi_freeinfo(side.info);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	return run_two(half, argv[1]);
}
