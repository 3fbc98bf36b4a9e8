/* Posts and work that wait for a counter, of an endpoint to itself. */
#include "common.h"

enum { LEN = 256, KEY = 5 };

static char out[LEN], in[LEN];
static uint64_t window[LEN / 8], words[4];
static struct side side;
static struct fid_cntr *gate, *done_cntr;
static uint64_t counted;

static void turn(void)
{
	for (int at = 0; at < 100; at++)
		CHECK(fi_cq_read(side.cq, NULL, 0) <= 0);
}

/* Checks that the counter does not change before the triggering counter does, and changes then. */
static void opens(uint64_t more)
{
	turn();
	IS(fi_cntr_read(done_cntr), counted);
	OK(fi_cntr_add(gate, 1));
	counted += more;
	while (fi_cntr_read(done_cntr) < counted)
		turn();
	turn();
	IS(fi_cntr_read(done_cntr), counted);
	IS(fi_cntr_readerr(done_cntr), 0);
}

static struct fi_deferred_work work_of(enum fi_op_type kind, void *op)
{
	struct fi_deferred_work work = {
		.threshold = fi_cntr_read(gate) + 1,
		.triggering_cntr = gate,
		.completion_cntr = kind < FI_OP_CNTR_SET ? done_cntr : NULL,
		.op_type = kind,
	};
	work.op.msg = op;
	return work;
}

static void queue(struct fi_deferred_work *work)
{
	OK(fi_control(&side.domain->fid, FI_QUEUE_WORK, work));
}

static void messages(void)
{
	struct iovec from = {out, LEN}, to = {in, LEN};
	struct fi_op_msg send = {.ep = side.ep, .msg = {.msg_iov = &from, .iov_count = 1, .addr = side.peer}};
	struct fi_op_msg receive = {.ep = side.ep, .msg = {.msg_iov = &to, .iov_count = 1, .addr = FI_ADDR_UNSPEC}};
	struct fi_deferred_work sends = work_of(FI_OP_SEND, &send), receives = work_of(FI_OP_RECV, &receive);
	memset(out, 1, LEN);
	queue(&receives);
	queue(&sends);
	opens(2);
	CHECK(!memcmp(in, out, LEN));

	struct fi_op_tagged tsend = {.ep = side.ep, .msg = {.msg_iov = &from, .iov_count = 1, .addr = side.peer, .tag = 9}};
	struct fi_op_tagged treceive = {.ep = side.ep, .flags = FI_COMPLETION,
		.msg = {.msg_iov = &to, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 8, .ignore = 1, .context = in}};
	struct fi_cq_tagged_entry entry;
	sends = work_of(FI_OP_TSEND, &tsend);
	receives = work_of(FI_OP_TRECV, &treceive);
	memset(out, 2, LEN);
	queue(&receives);
	queue(&sends);
	/* The lists may be overwritten once the work is queued. */
	from.iov_len = to.iov_len = 0;
	turn();
	IS(fi_cntr_read(done_cntr), counted);
	OK(fi_cntr_add(gate, 1));
	await_entry(&side, &entry);
	CHECK(entry.op_context == in && entry.tag == 9 && entry.len == LEN);
	counted += 2;
	while (fi_cntr_read(done_cntr) < counted)
		turn();
	CHECK(!memcmp(in, out, LEN));
}

static void remote(uint64_t at)
{
	struct iovec from = {out, LEN}, to = {in, LEN};
	struct fi_rma_iov segment = {at, LEN, KEY};
	struct fi_op_rma rma = {.ep = side.ep, .msg = {.msg_iov = &from, .iov_count = 1, .addr = side.peer,
		.rma_iov = &segment, .rma_iov_count = 1}};
	struct fi_deferred_work work = work_of(FI_OP_WRITE, &rma);
	rma.flags = FI_DELIVERY_COMPLETE;
	memset(out, 3, LEN);
	queue(&work);
	opens(1);
	CHECK(!memcmp(window, out, LEN));
	rma.flags = 0;
	rma.msg.msg_iov = &to;
	memset(in, 0, LEN);
	work = work_of(FI_OP_READ, &rma);
	queue(&work);
	opens(1);
	CHECK(!memcmp(in, out, LEN));

	struct fi_ioc operand = {words, 1}, comparand = {words + 1, 1}, result = {words + 2, 1};
	struct fi_rma_ioc target = {at, 1, KEY};
	struct fi_msg_atomic msg = {.msg_iov = &operand, .iov_count = 1, .addr = side.peer, .rma_iov = &target,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM};
	window[0] = 10;
	words[0] = 4;
	struct fi_op_atomic atomic = {.ep = side.ep, .msg = msg, .flags = FI_DELIVERY_COMPLETE};
	work = work_of(FI_OP_ATOMIC, &atomic);
	queue(&work);
	opens(1);
	IS(window[0], 14);
	struct fi_op_fetch_atomic fetch = {.ep = side.ep, .msg = msg, .fetch = {&result, NULL, 1}};
	work = work_of(FI_OP_FETCH_ATOMIC, &fetch);
	queue(&work);
	opens(1);
	IS(words[2], 14);
	IS(window[0], 18);
	result.addr = NULL;
	work = work_of(FI_OP_FETCH_ATOMIC, &fetch);
	IS(fi_control(&side.domain->fid, FI_QUEUE_WORK, &work), -FI_EINVAL);
	result.addr = words + 2;
	struct fi_op_compare_atomic swap = {.ep = side.ep, .msg = msg, .fetch = {&result, NULL, 1},
		.compare = {&comparand, NULL, 1}};
	swap.msg.op = FI_CSWAP;
	words[1] = 18;
	work = work_of(FI_OP_COMPARE_ATOMIC, &swap);
	queue(&work);
	opens(1);
	IS(words[2], 18);
	IS(window[0], 4);
}

static void counters(void)
{
	struct fi_op_cntr change = {.cntr = done_cntr, .value = 5};
	struct fi_deferred_work add = work_of(FI_OP_CNTR_ADD, &change), set = work_of(FI_OP_CNTR_SET, &change);
	queue(&add);
	opens(5);
	change.value = counted + 3;
	set = work_of(FI_OP_CNTR_SET, &change);
	queue(&set);
	opens(3);

	add = work_of(FI_OP_CNTR_ADD, &change);
	queue(&add);
	OK(fi_control(&side.domain->fid, FI_CANCEL_WORK, &add));
	IS(fi_control(&side.domain->fid, FI_CANCEL_WORK, &add), -FI_ENOENT);
	opens(0);
	add = work_of(FI_OP_CNTR_ADD, &change);
	queue(&add);
	OK(fi_control(&side.domain->fid, FI_FLUSH_WORK, gate));
	opens(0);
	add = work_of(FI_OP_CNTR_ADD, &change);
	queue(&add);
	OK(fi_control(&side.domain->fid, FI_FLUSH_WORK, NULL));
	opens(0);

	add = work_of(FI_OP_CNTR_ADD, &change);
	add.completion_cntr = done_cntr;
	IS(fi_control(&side.domain->fid, FI_QUEUE_WORK, &add), -FI_EINVAL);
	add = work_of(FI_OP_CNTR_ADD, &change);
	add.triggering_cntr = NULL;
	IS(fi_control(&side.domain->fid, FI_QUEUE_WORK, &add), -FI_EINVAL);
	add = work_of((enum fi_op_type)99, &change);
	IS(fi_control(&side.domain->fid, FI_QUEUE_WORK, &add), -FI_ENOSYS);
	IS(fi_control(&side.domain->fid, FI_QUEUE_WORK, NULL), -FI_EINVAL);
}

/* FI_TRIGGER on single posts, and on an alias whose every post has it. */
static void triggered(void)
{
	struct iovec from = {out, LEN};
	struct fi_triggered_context first = {.event_type = FI_TRIGGER_THRESHOLD}, second;
	struct fi_msg msg = {.msg_iov = &from, .iov_count = 1, .addr = side.peer, .context = &first};
	struct fi_cq_tagged_entry entry;
	struct fid_ep *alias;
	first.trigger.threshold.cntr = gate;
	first.trigger.threshold.threshold = fi_cntr_read(gate) + 1;
	second = first;
	memset(out, 7, LEN);
	OK(fi_recv(side.ep, in, LEN, NULL, FI_ADDR_UNSPEC, in));
	OK(fi_sendmsg(side.ep, &msg, FI_TRIGGER | FI_COMPLETION));
	turn();
	IS(fi_cq_read(side.cq, &entry, 1), -FI_EAGAIN);
	OK(fi_cntr_add(gate, 1));
	bool sent = false, received = false;
	while (!sent || !received) {
		await_entry(&side, &entry);
		sent |= entry.op_context == &first;
		received |= entry.op_context == in;
	}
	OK(fi_ep_alias(side.ep, &alias, FI_TRANSMIT | FI_TRIGGER));
	second.trigger.threshold.threshold = fi_cntr_read(gate) + 1;
	OK(fi_trecv(side.ep, in, LEN, NULL, FI_ADDR_UNSPEC, 3, 0, in));
	OK(fi_tsend(alias, out, LEN, NULL, side.peer, 3, &second));
	turn();
	IS(fi_cq_read(side.cq, &entry, 1), -FI_EAGAIN);
	OK(fi_cntr_add(gate, 1));
	for (sent = received = false; !sent || !received;) {
		await_entry(&side, &entry);
		sent |= entry.op_context == &second;
		received |= entry.op_context == in;
	}
	second.event_type = FI_TRIGGER_XPU;
	IS(fi_tsend(alias, out, LEN, NULL, side.peer, 3, &second), -FI_ENOSYS);
	IS(fi_tsend(alias, out, LEN, NULL, side.peer, 3, NULL), -FI_EINVAL);
	OK(fi_close(&alias->fid));
}

int main(int argc, char **argv)
{
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	struct fid_mr *mr;
	char name[256];
	size_t len = sizeof name;
	CHECK(argc == 2);
	open_side(&side, hints_for(argv[1], FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER), FI_WAIT_NONE);
	CHECK(side.info->caps & FI_TRIGGER);
	OK(fi_cntr_open(side.domain, &attr, &gate, NULL));
	OK(fi_cntr_open(side.domain, &attr, &done_cntr, NULL));
	OK(fi_enable(side.ep));
	OK(fi_getname(&side.ep->fid, name, &len));
	IS(fi_av_insert(side.av, name, 1, &side.peer, 0, NULL), 1);
	OK(fi_mr_reg(side.domain, window, sizeof window, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
	bool by_address = side.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
	messages();
	remote(by_address ? (uint64_t)(uintptr_t)window : 0);
	counters();
	triggered();
	OK(fi_close(&mr->fid));
	OK(fi_close(&side.ep->fid));
	OK(fi_close(&gate->fid));
	OK(fi_close(&done_cntr->fid));
	OK(fi_close(&side.av->fid));
	OK(fi_close(&side.cq->fid));
	OK(fi_close(&side.domain->fid));
	OK(fi_close(&side.fabric->fid));
	fi_freeinfo(side.info);
	return 0;
}
