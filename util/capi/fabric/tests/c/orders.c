/* Every order in which endpoints and contexts are opened, bound and enabled, and the operations that
 * each order allows from then on. An order is a word of steps:
 *
 *   T t c e   open a transmit context, bind its queue, bind its counter, enable it
 *   R r f     open a receive context, bind its queue, enable it
 *   s v o     send to the endpoint itself, post a receive, read an option
 *
 *   O a q E   open an endpoint, bind its address vector, bind its queue, enable it
 *   x w n     bind a shared transmit context, bind a counter of writes, ask for its name
 *
 * At the end of a word, the objects that it has not opened are opened. Then a message, and for
 * endpoints a write, go from the endpoint to itself. */
#include "common.h"

enum { BITS = 4, LEN = 64, KEY = 5 };

static struct side side;
static struct fid_ep *sep, *tx, *rx;
static struct fid_cq *tx_cq, *rx_cq;
static struct fid_cntr *cntr;
static struct fid_stx *stx;
static char in[LEN], out[LEN], target[LEN];
static int sent, posted;

/* The orders of known libraries. permute() generates the other words. */
static const char *const context_words[] = {
	"TtceRrf",   /* MPICH, Intel MPI */
	"TRtref",    /* Open MPI's MTL, an RPC engine */
	"RTrtfe",
	"RrfTtce",   /* a server that opens its receive context first */
	"RrfvTtces", /* and receives before it can send */
	"TtcesRrfv", /* a client that sends before it can receive */
	"TtesRrfvc", /* a counter that is bound last */
	"TteoRrfo",
};
static const char *const endpoint_words[] = {
	"OaqE",    /* MPICH without scalable endpoints, Open MPI, Intel MPI, RPC engines */
	"OqaE",    /* fabtests */
	"OaqxwE",  /* a SHMEM library with endpoints for each context */
	"OaqEnxw", /* a SHMEM library with one endpoint */
	"OaqEsnwx",
	"OaxqEvw",
};

static struct fid_cq *open_cq(void)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fid_cq *cq;
	OK(fi_cq_open(side.domain, &attr, &cq, NULL));
	return cq;
}

static void drive(void)
{
	fi_cq_read(tx_cq, NULL, 0);
	fi_cq_read(rx_cq, NULL, 0);
	fi_cntr_read(cntr);
}

static void await(struct fid_cq *cq, void *context)
{
	struct fi_cq_tagged_entry entry;
	ssize_t got;
	do {
		drive();
		got = fi_cq_read(cq, &entry, 1);
	} while (got == -FI_EAGAIN);
	IS(got, 1);
	CHECK(entry.op_context == context);
}

static void post(struct fid_ep *ep, bool sends)
{
	ssize_t status;
	do {
		drive();
		status = sends ? fi_send(ep, out, LEN, NULL, side.peer, out)
			       : fi_recv(ep, in, LEN, NULL, FI_ADDR_UNSPEC, in);
	} while (status == -FI_EAGAIN);
	IS(status, 0);
	*(sends ? &sent : &posted) += 1;
}

static void insert_own_name(struct fid_ep *ep)
{
	char name[256] = {0};
	size_t len = sizeof name;
	OK(fi_getname(&ep->fid, name, &len));
	IS(fi_av_insert(side.av, name, 1, &side.peer, 0, NULL), 1);
}

static void open_common(void)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .rx_ctx_bits = sep ? BITS : 0};
	struct fi_cntr_attr cntr_attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
	OK(fi_av_open(side.domain, &av_attr, &side.av, NULL));
	OK(fi_cntr_open(side.domain, &cntr_attr, &cntr, NULL));
	OK(fi_stx_context(side.domain, NULL, &stx, NULL));
	tx_cq = open_cq();
	rx_cq = open_cq();
	sent = posted = 0;
	memset(in, 0, LEN);
	memset(target, 0, LEN);
	memset(out, 'o', LEN);
}

static void close_common(void)
{
	OK(fi_close(&stx->fid));
	OK(fi_close(&cntr->fid));
	OK(fi_close(&tx_cq->fid));
	OK(fi_close(&rx_cq->fid));
	OK(fi_close(&side.av->fid));
}

/* One message from `from` to `to`, of which either half may have been posted before. */
static void talk(struct fid_ep *from, struct fid_ep *to)
{
	if (!posted)
		post(to, false);
	if (!sent)
		post(from, true);
	await(rx_cq, in);
	await(tx_cq, out);
	CHECK(in[0] == 'o' && in[LEN - 1] == 'o');
}

static void context_step(char step)
{
	size_t least, len = sizeof least;
	switch (step) {
	case 'T':
		OK(fi_tx_context(sep, 0, NULL, &tx, NULL));
		IS(fi_send(tx, out, LEN, NULL, side.peer, out), -FI_EOPBADSTATE);
		break;
	case 't': OK(fi_ep_bind(tx, &tx_cq->fid, FI_TRANSMIT)); break;
	case 'c': OK(fi_ep_bind(tx, &cntr->fid, FI_SEND)); break;
	case 'e': OK(fi_enable(tx)); break;
	case 'R':
		OK(fi_rx_context(sep, 0, NULL, &rx, NULL));
		IS(fi_recv(rx, in, LEN, NULL, FI_ADDR_UNSPEC, in), -FI_EOPBADSTATE);
		break;
	case 'r': OK(fi_ep_bind(rx, &rx_cq->fid, FI_RECV)); break;
	case 'f': OK(fi_enable(rx)); break;
	case 's': post(tx, true); break;
	case 'v': post(rx, false); break;
	case 'o': OK(fi_getopt(&tx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, &len)); break;
	default: CHECK(!"a step");
	}
}

static void context_word(const char *word)
{
	struct fid_ep *opened;
	OK(fi_scalable_ep(side.domain, side.info, &opened, NULL));
	sep = opened;
	open_common();
	OK(fi_scalable_ep_bind(sep, &side.av->fid, 0));
	OK(fi_enable(sep));
	insert_own_name(sep);
	for (const char *step = word; *step; step++)
		context_step(*step);
	IS(fi_enable(tx), -FI_EOPBADSTATE);
	IS(fi_enable(rx), -FI_EOPBADSTATE);
	talk(tx, rx);
	if (strchr(word, 'c') && strchr(word, 'c') < strchr(word, 'e'))
		IS(fi_cntr_read(cntr), 1);
	OK(fi_close(&tx->fid));
	OK(fi_close(&rx->fid));
	OK(fi_close(&sep->fid));
	sep = NULL;
	close_common();
}

static void endpoint_step(char step)
{
	char name[256];
	size_t len = sizeof name;
	switch (step) {
	case 'O': OK(fi_endpoint(side.domain, side.info, &tx, NULL)); break;
	case 'a': OK(fi_ep_bind(tx, &side.av->fid, 0)); break;
	case 'q':
		OK(fi_ep_bind(tx, &tx_cq->fid, FI_TRANSMIT));
		OK(fi_ep_bind(tx, &rx_cq->fid, FI_RECV));
		break;
	case 'E':
		OK(fi_enable(tx));
		insert_own_name(tx);
		break;
	case 'x': OK(fi_ep_bind(tx, &stx->fid, 0)); break;
	case 'w': OK(fi_ep_bind(tx, &cntr->fid, FI_WRITE)); break;
	case 'n': OK(fi_getname(&tx->fid, name, &len)); break;
	case 's': post(tx, true); break;
	case 'v': post(tx, false); break;
	default: CHECK(!"a step");
	}
}

/* Bindings that an enabled endpoint rejects, because it is enabled or has them already. */
static void late(void)
{
	struct fid_av *av;
	struct fid_eq *eq;
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_NONE};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	IS(fi_ep_bind(tx, &cntr->fid, FI_WRITE), -FI_EINVAL);
	IS(fi_ep_bind(tx, &tx_cq->fid, FI_TRANSMIT), -FI_EINVAL);
	OK(fi_av_open(side.domain, &av_attr, &av, NULL));
	IS(fi_ep_bind(tx, &av->fid, 0), -FI_EINVAL);
	OK(fi_close(&av->fid));
	OK(fi_eq_open(side.fabric, &eq_attr, &eq, NULL));
	IS(fi_ep_bind(tx, &eq->fid, 0), -FI_EOPBADSTATE);
	OK(fi_close(&eq->fid));
	IS(fi_close(&cntr->fid), -FI_EBUSY);
}

static void write_to_oneself(void)
{
	struct fid_mr *mr;
	struct fi_msg_rma msg = {.addr = side.peer, .iov_count = 1, .rma_iov_count = 1, .context = out};
	struct iovec iov = {.iov_base = out, .iov_len = LEN};
	struct fi_rma_iov remote_segment = {.addr = 0, .len = LEN, .key = KEY};
	ssize_t status;
	msg.msg_iov = &iov;
	msg.rma_iov = &remote_segment;
	OK(fi_mr_reg(side.domain, target, LEN, FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
	do {
		drive();
		status = fi_writemsg(tx, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
	} while (status == -FI_EAGAIN);
	IS(status, 0);
	await(tx_cq, out);
	IS(fi_cntr_read(cntr), 1);
	CHECK(target[0] == 'o' && target[LEN - 1] == 'o');
	/* A thread that waits for the counter alone wakes, too. */
	do {
		drive();
		status = fi_writemsg(tx, &msg, FI_DELIVERY_COMPLETE);
	} while (status == -FI_EAGAIN);
	IS(status, 0);
	OK(fi_cntr_wait(cntr, 2, -1));
	await(tx_cq, out);
	OK(fi_close(&mr->fid));
}

static void endpoint_word(const char *word)
{
	open_common();
	for (const char *step = word; *step; step++)
		endpoint_step(*step);
	talk(tx, tx);
	if (strchr(word, 'w')) {
		write_to_oneself();
		late();
	}
	OK(fi_close(&tx->fid));
	close_common();
}

/* All words in which the steps of `first` and of `second` each keep their order. */
static void permute(const char *first, const char *second, char *word, int len)
{
	if (!*first && !*second) {
		word[len] = 0;
		context_word(word);
		return;
	}
	if (*first) {
		word[len] = *first;
		permute(first + 1, second, word, len + 1);
	}
	if (*second) {
		word[len] = *second;
		permute(first, second + 1, word, len + 1);
	}
}

static void open_for(const char *provider, bool scalable)
{
	struct fi_info *hints = hints_for(provider, FI_MSG | FI_RMA | (scalable ? FI_NAMED_RX_CTX : 0));
	hints->ep_attr->tx_ctx_cnt = scalable ? 1 : 0;
	hints->ep_attr->rx_ctx_cnt = scalable ? 1 : 0;
	open_domain(&side, hints);
}

static void close_all(void)
{
	OK(fi_close(&side.domain->fid));
	OK(fi_close(&side.fabric->fid));
	fi_freeinfo(side.info);
}

int main(int argc, char **argv)
{
	char word[16];
	CHECK(argc == 2);
	alarm(60);
	open_for(argv[1], true);
	for (size_t at = 0; at < sizeof context_words / sizeof *context_words; at++)
		context_word(context_words[at]);
	permute("Tte", "Rrf", word, 0);
	permute("Ttes", "Rrfv", word, 0);
	close_all();
	open_for(argv[1], false);
	for (size_t at = 0; at < sizeof endpoint_words / sizeof *endpoint_words; at++)
		endpoint_word(endpoint_words[at]);
	close_all();
	return 0;
}
