/* Random posts and queries on an endpoint that sends to itself, many of them wrong. Only the named
 * memory is written, each call returns a status, and all objects can be closed afterwards. */
#include "common.h"

static struct side side;
static struct fid_mr *region;
static struct fid_cntr *counter;
static unsigned char arena[1 << 16];
/* Contexts outlive their operations; zeroed triggers have no counter. */
static struct fi_triggered_context2 contexts[64];
static uint64_t state;

/* Random numbers from a seed (xorshift64*). */
static uint64_t roll(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}

static uint64_t below(uint64_t end)
{
	return roll() % end;
}

/* A length within the arena, or an impossible one. */
static size_t some_len(void)
{
	static const size_t wild[] = {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 64};
	switch (below(8)) {
	case 0: return 0;
	case 1: return wild[below(4)];
	case 2: return below(1 << 14);
	default: return below(64);
	}
}

/* A count of elements of up to 32 bytes. */
static size_t some_elements(void)
{
	size_t len = some_len();
	return len < SIZE_MAX / 2 ? len % 64 : len;
}

static void *some_buffer(void)
{
	return below(8) ? arena + below(1 << 15) : NULL;
}

static void *some_context(void)
{
	return below(8) ? &contexts[below(64)] : NULL;
}

static fi_addr_t some_peer(void)
{
	switch (below(6)) {
	case 0: return FI_ADDR_UNSPEC;
	case 1: return roll();
	case 2: return 99;
	default: return side.peer;
	}
}

static uint64_t some_flags(void)
{
	switch (below(4)) {
	case 0: return 1ULL << below(64);
	case 1: return 1ULL << below(64) | 1ULL << below(64);
	default: return below(2) ? FI_COMPLETION : 0;
	}
}

static uint64_t some_tag(void)
{
	return below(8) ? below(4) : roll();
}

static uint64_t some_key(void)
{
	return below(4) ? fi_mr_key(region) : roll();
}

static uint64_t some_addr(void)
{
	return below(4) ? below(1 << 15) : roll();
}

/* Lists of 64 segments; the counts that are passed may be larger. */
struct list {
	struct iovec iov[64];
	struct fi_rma_iov far[64];
	struct fi_ioc ioc[64];
	struct fi_rma_ioc far_ioc[64];
	size_t count, far_count;
};

static size_t some_count(void)
{
	static const size_t wild[] = {5, 65, 1 << 20, SIZE_MAX};
	return below(8) ? 1 + below(4) : wild[below(4)];
}

static struct list some_list(void)
{
	struct list list = {.count = some_count(), .far_count = some_count()};
	for (int i = 0; i < 64; i++) {
		list.iov[i] = (struct iovec){some_buffer(), some_len()};
		list.far[i] = (struct fi_rma_iov){some_addr(), some_len(), some_key()};
		list.ioc[i] = (struct fi_ioc){some_buffer(), below(8) ? below(4) : some_elements()};
		list.far_ioc[i] = (struct fi_rma_ioc){some_addr(), list.ioc[i].count, some_key()};
	}
	return list;
}

#define OR_NULL(pointer) (below(16) ? (pointer) : NULL)

static ssize_t message(void)
{
	struct list list = some_list();
	struct fi_msg msg = {OR_NULL(list.iov), NULL, list.count, some_peer(), some_context(), roll()};
	struct fid_ep *ep = side.ep;
	switch (below(10)) {
	case 0: return fi_send(ep, some_buffer(), some_len(), NULL, some_peer(), some_context());
	case 1: return fi_sendv(ep, OR_NULL(list.iov), NULL, list.count, some_peer(), some_context());
	case 2: return fi_sendmsg(ep, OR_NULL(&msg), some_flags());
	case 3: return fi_senddata(ep, some_buffer(), some_len(), NULL, roll(), some_peer(), some_context());
	case 4: return fi_inject(ep, some_buffer(), some_len(), some_peer());
	case 5: return fi_injectdata(ep, some_buffer(), some_len(), roll(), some_peer());
	case 6: return fi_recv(ep, some_buffer(), some_len(), NULL, some_peer(), some_context());
	case 7: return fi_recvv(ep, OR_NULL(list.iov), NULL, list.count, some_peer(), some_context());
	default: return fi_recvmsg(ep, OR_NULL(&msg), some_flags());
	}
}

static ssize_t tagged(void)
{
	struct list list = some_list();
	struct fi_msg_tagged msg = {OR_NULL(list.iov), NULL, list.count, some_peer(), some_tag(),
				    some_tag(), some_context(), roll()};
	struct fid_ep *ep = side.ep;
	switch (below(9)) {
	case 0: return fi_tsend(ep, some_buffer(), some_len(), NULL, some_peer(), some_tag(), some_context());
	case 1: return fi_tsendv(ep, OR_NULL(list.iov), NULL, list.count, some_peer(), some_tag(), some_context());
	case 2: return fi_tsendmsg(ep, OR_NULL(&msg), some_flags());
	case 3: return fi_tinject(ep, some_buffer(), some_len(), some_peer(), some_tag());
	case 4: return fi_tinjectdata(ep, some_buffer(), some_len(), roll(), some_peer(), some_tag());
	case 5: return fi_trecv(ep, some_buffer(), some_len(), NULL, some_peer(), some_tag(), roll(), some_context());
	case 6: return fi_trecvv(ep, OR_NULL(list.iov), NULL, list.count, some_peer(), some_tag(), 0, some_context());
	default: return fi_trecvmsg(ep, OR_NULL(&msg), some_flags());
	}
}

static ssize_t remote(void)
{
	struct list list = some_list();
	struct fi_msg_rma msg = {OR_NULL(list.iov), NULL, list.count, some_peer(), OR_NULL(list.far),
				 list.far_count, some_context(), roll()};
	struct fid_ep *ep = side.ep;
	switch (below(7)) {
	case 0: return fi_read(ep, some_buffer(), some_len(), NULL, some_peer(), some_addr(), some_key(), some_context());
	case 1: return fi_readv(ep, OR_NULL(list.iov), NULL, list.count, some_peer(), some_addr(), some_key(), some_context());
	case 2: return fi_readmsg(ep, OR_NULL(&msg), some_flags());
	case 3: return fi_write(ep, some_buffer(), some_len(), NULL, some_peer(), some_addr(), some_key(), some_context());
	case 4: return fi_writemsg(ep, OR_NULL(&msg), some_flags());
	case 5: return fi_inject_write(ep, some_buffer(), some_len(), some_peer(), some_addr(), some_key());
	default: return fi_writedata(ep, some_buffer(), some_len(), NULL, roll(), some_peer(), some_addr(), some_key(), some_context());
	}
}

static ssize_t atomic(void)
{
	struct list list = some_list(), results = some_list(), compares = some_list();
	enum fi_datatype type = below(16) ? below(FI_LONG_DOUBLE_COMPLEX + 1) : roll();
	enum fi_op op = below(16) ? below(FI_MSWAP + 1) : roll();
	struct fi_msg_atomic msg = {OR_NULL(list.ioc), NULL, list.count, some_peer(), OR_NULL(list.far_ioc),
				    list.far_count, type, op, some_context(), roll()};
	struct fid_ep *ep = side.ep;
	size_t count = some_elements();
	switch (below(6)) {
	case 0: return fi_atomic(ep, some_buffer(), count, NULL, some_peer(), some_addr(), some_key(), type, op, some_context());
	case 1: return fi_inject_atomic(ep, some_buffer(), count, some_peer(), some_addr(), some_key(), type, op);
	case 2: return fi_atomicmsg(ep, OR_NULL(&msg), some_flags());
	case 3: return fi_fetch_atomicmsg(ep, OR_NULL(&msg), OR_NULL(results.ioc), NULL, results.count, some_flags());
	case 4:
		return fi_compare_atomicmsg(ep, OR_NULL(&msg), OR_NULL(compares.ioc), NULL, compares.count,
					    OR_NULL(results.ioc), NULL, results.count, some_flags());
	default: return fi_fetch_atomic(ep, some_buffer(), count, NULL, some_buffer(), NULL, some_peer(), some_addr(), some_key(), type, op, some_context());
	}
}

static ssize_t question(void)
{
	struct fi_cq_tagged_entry entries[16];
	fi_addr_t from[16], self = side.peer;
	struct fid *fids[] = {&side.ep->fid, &side.cq->fid, &side.av->fid, &region->fid, &counter->fid, &side.domain->fid};
	struct fi_atomic_attr attr;
	char room[256] = {0};
	size_t len = below(sizeof room);
	switch (below(9)) {
	case 0: return fi_cancel(&side.ep->fid, some_context());
	case 1: return fi_cq_readfrom(side.cq, OR_NULL(entries), below(17), OR_NULL(from));
	case 2: return fi_getopt(&side.ep->fid, below(3), below(32), OR_NULL((void *)room), OR_NULL(&len));
	case 3: return fi_control(fids[below(6)], below(32), OR_NULL((void *)room));
	case 4: return fi_av_lookup(side.av, some_peer(), OR_NULL((void *)room), OR_NULL(&len));
	case 5: return fi_query_atomic(side.domain, below(32), below(32), OR_NULL(&attr), some_flags());
	case 6: return fi_getname(&side.ep->fid, OR_NULL((void *)room), OR_NULL(&len));
	case 7:
		fi_av_remove(side.av, &self, 1, some_flags() & 1);
		len = sizeof room;
		OK(fi_getname(&side.ep->fid, room, &len));
		return fi_av_insert(side.av, room, 1, &side.peer, 0, NULL);
	default: return fi_cntr_read(counter) > SIZE_MAX / 2;
	}
}

static void drain(void)
{
	struct fi_cq_tagged_entry entries[16];
	struct fi_cq_err_entry error;
	char data[64];
	ssize_t got;
	while ((got = fi_cq_read(side.cq, entries, 16)) != -FI_EAGAIN) {
		if (got == -FI_EAVAIL) {
			memset(&error, 0, sizeof error);
			if (below(2)) {
				error.err_data = data;
				error.err_data_size = sizeof data;
			}
			IS(fi_cq_readerr(side.cq, &error, 0), 1);
			CHECK(error.err > 0 && fi_strerror(error.err));
		}
		CHECK(got != 0 && got <= 16);
	}
}

int main(int argc, char **argv)
{
	struct fi_cntr_attr cntr_attr = {0};
	char name[256];
	size_t len = sizeof name, well = 0;
	CHECK(argc == 4);
	state = strtoull(argv[2], NULL, 0) | 1;
	alarm(100);
	open_side(&side, hints_for(argv[1], FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC), FI_WAIT_NONE);
	OK(fi_cntr_open(side.domain, &cntr_attr, &counter, NULL));
	OK(fi_ep_bind(side.ep, &counter->fid, FI_SEND | FI_RECV));
	OK(fi_enable(side.ep));
	OK(fi_getname(&side.ep->fid, name, &len));
	IS(fi_av_insert(side.av, name, 1, &side.peer, 0, NULL), 1);
	OK(fi_mr_reg(side.domain, arena, sizeof arena, FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
		     0, 7, 0, &region, NULL));
	for (long calls = strtol(argv[3], NULL, 0), call = 0; call < calls; call++) {
		ssize_t (*kinds[])(void) = {message, tagged, remote, atomic, question};
		ssize_t status = kinds[below(5)]();
		CHECK(status > -1000);
		well += status >= 0;
		if (call % 16 == 0)
			drain();
	}
	/* A run whose calls all fail would test nothing. */
	CHECK(well > 0);
	printf("%zu well\n", well);
	OK(fi_close(&region->fid));
	OK(fi_close(&side.ep->fid));
	side.ep = NULL;
	OK(fi_close(&counter->fid));
	OK(fi_close(&side.av->fid));
	OK(fi_close(&side.cq->fid));
	OK(fi_close(&side.domain->fid));
	OK(fi_close(&side.fabric->fid));
	fi_freeinfo(side.info);
	return 0;
}
