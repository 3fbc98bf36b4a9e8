/* Remote memory, atomics and counters between two processes. */
#include "common.h"

enum { WORDS = 32, KEY = 77 };

struct remote_memory {
	uint64_t addr, key;
};

static uint64_t window[WORDS], local[WORDS], result[WORDS], compare[WORDS];
static char op[1];

static void await_write(struct side *side)
{
	struct fi_cq_tagged_entry entry;
	await_context(side, op, &entry);
	CHECK(entry.flags & (FI_WRITE | FI_READ));
}

static void transfers(struct side *side, struct remote_memory to)
{
	struct iovec iov[2] = {{local, 8}, {local + 2, 8}};
	struct fi_rma_iov rma[2] = {{to.addr, 8, to.key}, {to.addr + 8, 8, to.key}};
	struct fi_msg_rma msg = {.msg_iov = iov, .iov_count = 2, .addr = side->peer, .rma_iov = rma,
				 .rma_iov_count = 2, .context = op};
	for (int at = 0; at < WORDS; at++)
		local[at] = 100 + at;
	OK(fi_write(side->ep, local, 64, NULL, side->peer, to.addr, to.key, op));
	await_write(side);
	memset(result, 0, sizeof result);
	OK(fi_read(side->ep, result, 64, NULL, side->peer, to.addr, to.key, op));
	await_write(side);
	CHECK(!memcmp(result, local, 64));

	OK(fi_writemsg(side->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	await_write(side);
	struct iovec into[2] = {{result, 8}, {result + 1, 8}};
	OK(fi_readv(side->ep, into, NULL, 2, side->peer, to.addr, to.key, op));
	await_write(side);
	IS(result[0], 100);
	IS(result[1], 102);
	OK(fi_writev(side->ep, iov, NULL, 2, side->peer, to.addr + 16, to.key, op));
	await_write(side);
	msg.msg_iov = into;
	rma[0].addr = to.addr + 16;
	rma[1].addr = to.addr + 24;
	OK(fi_readmsg(side->ep, &msg, FI_COMPLETION));
	await_write(side);
	IS(result[1], 102);
	OK(fi_writedata(side->ep, local, 8, NULL, 5, side->peer, to.addr + 32, to.key, op));
	await_write(side);
	OK(fi_inject_write(side->ep, local + 9, 8, side->peer, to.addr + 40, to.key));
	OK(fi_inject_writedata(side->ep, local + 8, 8, 6, side->peer, to.addr + 48, to.key));

	/* A key that is not registered. */
	OK(fi_write(side->ep, local, 8, NULL, side->peer, to.addr, to.key + 1, op));
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	ssize_t got;
	while ((got = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		;
	IS(got, -FI_EAVAIL);
	IS(fi_cq_readerr(side->cq, &error, 0), 1);
	CHECK(error.op_context == op && error.err > 0);
}

/* A failed inject has no context, so it has no error entry: its counter reports it. */
static void failed_inject(struct side *side, struct fid_cntr *own, struct remote_memory to)
{
	struct fi_cq_tagged_entry entry;
	OK(fi_inject_write(side->ep, local, 8, side->peer, to.addr, to.key + 1));
	while (fi_cntr_readerr(own) == 1)
		;
	IS(fi_cq_read(side->cq, &entry, 1), -FI_EAGAIN);
	IS(fi_cntr_readerr(own), 2);
}

static void atomics(struct side *side, struct remote_memory to)
{
	uint64_t at = to.addr + 128;
	size_t count = 0;
	struct fi_atomic_attr attr;
	struct fi_ioc ioc = {local, 1}, result_ioc = {result, 1}, compare_ioc = {compare, 1};
	struct fi_rma_ioc rma = {at, 1, to.key};
	struct fi_msg_atomic msg = {.msg_iov = &ioc, .iov_count = 1, .addr = side->peer, .rma_iov = &rma,
				    .rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
				    .context = op};
	OK(fi_atomicvalid(side->ep, FI_UINT64, FI_SUM, &count));
	CHECK(count > 0);
	OK(fi_fetch_atomicvalid(side->ep, FI_DOUBLE, FI_MIN, &count));
	OK(fi_compare_atomicvalid(side->ep, FI_INT32, FI_MSWAP, &count));
	IS(fi_atomicvalid(side->ep, FI_FLOAT, FI_BXOR, &count), -FI_EOPNOTSUPP);
	IS(fi_atomicvalid(side->ep, 99, FI_SUM, &count), -FI_EOPNOTSUPP);
	OK(fi_query_atomic(side->domain, FI_INT32, FI_CSWAP, &attr, FI_COMPARE_ATOMIC));
	IS(attr.size, 4);
	IS(fi_query_atomic(side->domain, FI_INT32, FI_CSWAP, &attr, 1), -FI_EBADFLAGS);

	local[0] = 5;
	OK(fi_atomic(side->ep, local, 1, NULL, side->peer, at, to.key, FI_UINT64, FI_ATOMIC_WRITE, op));
	await_write(side);
	OK(fi_atomicv(side->ep, &ioc, NULL, 1, side->peer, at, to.key, FI_UINT64, FI_SUM, op));
	await_write(side);
	OK(fi_atomicmsg(side->ep, &msg, FI_COMPLETION));
	await_write(side);
	OK(fi_inject_atomic(side->ep, local, 1, side->peer, at, to.key, FI_UINT64, FI_SUM));
	OK(fi_fetch_atomic(side->ep, local, 1, NULL, result, NULL, side->peer, at, to.key, FI_UINT64,
			   FI_SUM, op));
	await_write(side);
	IS(result[0], 20);
	OK(fi_fetch_atomicv(side->ep, &ioc, NULL, 1, &result_ioc, NULL, 1, side->peer, at, to.key,
			    FI_UINT64, FI_SUM, op));
	await_write(side);
	IS(result[0], 25);
	OK(fi_fetch_atomicmsg(side->ep, &msg, &result_ioc, NULL, 1, FI_COMPLETION));
	await_write(side);
	IS(result[0], 30);
	compare[0] = 35;
	local[0] = 1;
	OK(fi_compare_atomic(side->ep, local, 1, NULL, compare, NULL, result, NULL, side->peer, at, to.key,
			     FI_UINT64, FI_CSWAP, op));
	await_write(side);
	IS(result[0], 35);
	OK(fi_compare_atomicv(side->ep, &ioc, NULL, 1, &compare_ioc, NULL, 1, &result_ioc, NULL, 1,
			      side->peer, at, to.key, FI_UINT64, FI_CSWAP, op));
	await_write(side);
	IS(result[0], 1);
	msg.op = FI_CSWAP_NE;
	local[0] = 64;
	OK(fi_compare_atomicmsg(side->ep, &msg, &compare_ioc, NULL, 1, &result_ioc, NULL, 1, FI_COMPLETION));
	await_write(side);
	IS(result[0], 1);
}

static void half(int channel, bool first, const char *provider)
{
	struct side side = {.channel = channel};
	struct fi_info *hints =
		hints_for(provider, FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT);
	struct fi_cntr_attr cntr_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fid_cntr *own, *remote, *touched;
	struct fid_mr *mr, *other;
	struct remote_memory own_memory, peer_memory;
	/* Delivery must be complete before the bytes are read back. */
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	open_side(&side, hints, FI_WAIT_NONE);
	OK(fi_cntr_open(side.domain, &cntr_attr, &own, NULL));
	OK(fi_cntr_open(side.domain, &cntr_attr, &remote, NULL));
	OK(fi_ep_bind(side.ep, &own->fid, FI_WRITE | FI_READ));
	OK(fi_ep_bind(side.ep, &remote->fid, FI_REMOTE_WRITE));
	IS(fi_ep_bind(side.ep, &remote->fid, FI_REMOTE_WRITE), -FI_EINVAL);
	OK(fi_enable(side.ep));
	exchange_names(&side);

	OK(fi_mr_reg(side.domain, window, sizeof window, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr,
		     NULL));
	IS(fi_mr_reg(side.domain, local, sizeof local, FI_REMOTE_READ, 0, KEY, 0, &other, NULL), -FI_ENOKEY);
	IS(fi_mr_key(mr), KEY);
	OK(fi_mr_bind(mr, &side.ep->fid, 0));
	OK(fi_cntr_open(side.domain, &cntr_attr, &touched, NULL));
	IS(fi_mr_bind(mr, &touched->fid, FI_SEND), -FI_EINVAL);
	IS(fi_mr_bind(mr, &touched->fid, 0), -FI_EINVAL);
	IS(fi_mr_bind(mr, &side.cq->fid, FI_REMOTE_WRITE), -FI_EINVAL);
	OK(fi_mr_bind(mr, &touched->fid, FI_REMOTE_WRITE));
	IS(fi_mr_bind(mr, &touched->fid, FI_REMOTE_WRITE), -FI_EINVAL);
	OK(fi_mr_enable(mr));
	struct iovec iov = {local, sizeof local};
	struct fi_mr_attr attr = {.mr_iov = &iov, .iov_count = 1, .access = FI_SEND | FI_RECV};
	OK(fi_mr_regattr(side.domain, &attr, FI_RMA_EVENT, &other));
	OK(fi_close(&other->fid));
	/* Without FI_HMEM the interface is not read. */
	attr.iface = FI_HMEM_CUDA;
	OK(fi_mr_regattr(side.domain, &attr, 0, &other));
	OK(fi_close(&other->fid));
	OK(fi_mr_regv(side.domain, &iov, 1, FI_SEND, 0, 0, 0, &other, NULL));
	OK(fi_close(&other->fid));
	own_memory = (struct remote_memory){.addr = 0, .key = fi_mr_key(mr)};
	if (side.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		own_memory.addr = (uintptr_t)window;
	send_line(channel, &own_memory, sizeof own_memory);
	receive_line(channel, &peer_memory, sizeof peer_memory);
	synchronise(&side);
	if (first) {
		transfers(&side, peer_memory);
		/* Injected writes are counted when they have reached their target. */
		OK(fi_cntr_wait(own, 8, 20000));
		IS(fi_cntr_readerr(own), 1);
		failed_inject(&side, own, peer_memory);
		atomics(&side, peer_memory);
		OK(fi_cntr_set(own, 3));
		OK(fi_cntr_add(own, 4));
		IS(fi_cntr_read(own), 7);
		OK(fi_cntr_seterr(own, 0));
		IS(fi_cntr_wait(own, 8, 10), -FI_ETIMEDOUT);
		OK(fi_cntr_wait(own, 7, 1000));
	} else {
		struct fi_cq_tagged_entry entry;
		await_entry(&side, &entry);
		CHECK(entry.flags & FI_REMOTE_WRITE && entry.flags & FI_REMOTE_CQ_DATA);
		IS(entry.data, 5);
		await_entry(&side, &entry);
		IS(entry.data, 6);
		OK(fi_cntr_wait(remote, 6, 10000));
		OK(fi_cntr_wait(touched, 6, 10000));
	}
	synchronise(&side);
	/* Six writes, four sums and stores, and six operations that fetch and change. */
	IS(fi_cntr_read(touched), first ? 0 : 16);
	if (!first) {
		IS(window[5], 109);
		IS(window[6], 108);
		IS(window[16], 64);
	}
	IS(fi_close(&side.domain->fid), -FI_EBUSY);
	IS(fi_close(&touched->fid), -FI_EBUSY);
	OK(fi_close(&mr->fid));
	OK(fi_close(&touched->fid));
	IS(fi_close(&own->fid), -FI_EBUSY);
	OK(fi_close(&side.ep->fid));
	OK(fi_close(&own->fid));
	OK(fi_close(&remote->fid));
	OK(fi_close(&side.av->fid));
	OK(fi_close(&side.cq->fid));
	OK(fi_close(&side.domain->fid));
	OK(fi_close(&side.fabric->fid));
	fi_freeinfo(side.info);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	return run_two(half, argv[1]);
}
