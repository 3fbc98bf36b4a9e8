/* Groups of contexts of scalable endpoints between two processes. */
#include "common.h"

enum { COUNT = 2, BITS = 4 };

struct context {
	struct fid_ep *tx, *rx;
	struct fid_cq *cq;
	struct fid_eq *eq;
	/* Groups of all four contexts, and of the two with this index. */
	struct fid_mc *all, *own;
};

static struct side side;
static struct fid_ep *sep;
static struct context contexts[COUNT];
static char op[1], joined[1];

static void open_all(const char *provider)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .rx_ctx_bits = BITS};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fi_info *hints =
		hints_for(provider, FI_MSG | FI_TAGGED | FI_COLLECTIVE | FI_NAMED_RX_CTX);
	hints->ep_attr->tx_ctx_cnt = COUNT;
	hints->ep_attr->rx_ctx_cnt = COUNT;
	open_domain(&side, hints);
	CHECK(side.info->caps & FI_COLLECTIVE);
	OK(fi_av_open(side.domain, &av_attr, &side.av, NULL));
	OK(fi_scalable_ep(side.domain, side.info, &sep, NULL));
	OK(fi_scalable_ep_bind(sep, &side.av->fid, 0));
	for (int i = 0; i < COUNT; i++) {
		struct context *it = &contexts[i];
		OK(fi_tx_context(sep, i, NULL, &it->tx, NULL));
		OK(fi_rx_context(sep, i, NULL, &it->rx, NULL));
		OK(fi_cq_open(side.domain, &cq_attr, &it->cq, NULL));
		OK(fi_eq_open(side.fabric, &eq_attr, &it->eq, NULL));
		OK(fi_ep_bind(it->tx, &it->cq->fid, FI_TRANSMIT));
		OK(fi_ep_bind(it->tx, &it->eq->fid, 0));
		OK(fi_ep_bind(it->rx, &it->cq->fid, FI_RECV));
		IS(fi_barrier(it->tx, 0, op), -FI_EOPBADSTATE);
		OK(fi_enable(it->tx));
		OK(fi_enable(it->rx));
		IS(fi_barrier(it->rx, 0, op), -FI_ENOSYS);
	}
	side.cq = contexts[0].cq;
}

/* As in introduce() of common.h; gives what this process calls itself. */
static fi_addr_t exchange(void)
{
	char name[256] = {0}, peer[256];
	size_t len = sizeof name;
	fi_addr_t own;
	OK(fi_getname(&sep->fid, name, &len));
	send_line(side.channel, name, sizeof name);
	receive_line(side.channel, peer, sizeof peer);
	IS(fi_av_insert(side.av, peer, 1, &side.peer, 0, NULL), 1);
	IS(fi_av_insert(side.av, name, 1, &own, 0, NULL), 1);
	return own;
}

/* A set of the contexts with a range of indices, those of the first process first. */
static struct fid_av_set *set_of(const fi_addr_t processes[2], int first, int last)
{
	struct fi_av_set_attr none = {.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL};
	struct fid_av_set *set;
	OK(fi_av_set(side.av, &none, &set, NULL));
	for (int process = 0; process < 2; process++)
		for (int i = first; i <= last; i++)
			OK(fi_av_set_insert(set, fi_rx_addr(processes[process], i, BITS)));
	return set;
}

/* Every context joins the group of all contexts if `whole`, or else that of its index; then all wait
 * for each other. */
static void join_all(const fi_addr_t processes[2], bool whole)
{
	bool has_arrived[COUNT] = {false};
	struct fid_av_set *sets[COUNT];
	struct fi_eq_entry event;
	uint32_t number = 0;
	fi_addr_t at;
	for (int i = 0; i < COUNT; i++) {
		struct context *it = &contexts[i];
		struct fid_mc **group = whole ? &it->all : &it->own, *none = NULL;
		sets[i] = whole ? set_of(processes, 0, COUNT - 1) : set_of(processes, i, i);
		OK(fi_av_set_addr(sets[i], &at));
		IS(fi_join_collective(it->rx, at, sets[i], 0, &none, joined), -FI_ENOSYS);
		OK(fi_join_collective(it->tx, at, sets[i], 0, group, joined));
		if (!whole)
			IS(fi_join_collective(contexts[1 - i].tx, at, sets[i], 0, &none, joined),
			   -FI_EINVAL);
	}
	for (int missing = COUNT; missing > 0;)
		for (int i = 0; i < COUNT; i++) {
			ssize_t got = has_arrived[i] ? -FI_EAGAIN :
				fi_eq_read(contexts[i].eq, &number, &event, sizeof event, 0);
			fi_cq_read(contexts[i].cq, NULL, 0);
			if (got == -FI_EAGAIN)
				continue;
			IS(got, sizeof event);
			IS(number, FI_JOIN_COMPLETE);
			CHECK(event.context == joined);
			has_arrived[i] = true;
			missing--;
		}
	for (int i = 0; i < COUNT; i++)
		OK(fi_close(&sets[i]->fid));
}

/* Waits until `each` collectives of every context are complete. */
static void await_all(int each)
{
	int done[COUNT] = {0};
	for (int missing = each * COUNT; missing > 0;)
		for (int i = 0; i < COUNT; i++) {
			struct fi_cq_tagged_entry entry;
			ssize_t got = fi_cq_read(contexts[i].cq, &entry, 1);
			if (got == -FI_EAGAIN)
				continue;
			IS(got, 1);
			CHECK(entry.op_context == op && entry.flags & FI_COLLECTIVE);
			CHECK(++done[i] <= each);
			missing--;
		}
}

static void half(int channel, bool first, const char *provider)
{
	uint64_t in[COUNT], all[COUNT][2 * COUNT], own[COUNT];
	fi_addr_t processes[2];
	side.channel = channel;
	open_all(provider);
	processes[first ? 0 : 1] = exchange();
	processes[first ? 1 : 0] = side.peer;
	join_all(processes, true);
	join_all(processes, false);
	for (int turn = 0; turn < 50; turn++) {
		for (int i = 0; i < COUNT; i++) {
			struct context *it = &contexts[i];
			in[i] = 100 * turn + (first ? 1 : 3) + i;
			OK(fi_allgather(it->tx, &in[i], 1, NULL, all[i], NULL,
					fi_mc_addr(it->all), FI_UINT64, 0, op));
			OK(fi_allreduce(it->tx, &in[i], 1, NULL, &own[i], NULL,
					fi_mc_addr(it->own), FI_UINT64, FI_SUM, 0, op));
			OK(fi_barrier(it->tx, fi_mc_addr(it->all), op));
		}
		await_all(3);
		for (int i = 0; i < COUNT; i++) {
			IS(own[i], 200 * turn + 4 + 2 * i);
			for (int rank = 0; rank < 2 * COUNT; rank++)
				IS(all[i][rank], 100 * turn + 1 + rank);
		}
	}
	/* A root has the index of a member. */
	for (int i = 0; i < COUNT; i++) {
		all[i][0] = first && i == 1 ? 9 : 0;
		OK(fi_broadcast(contexts[i].tx, all[i], 1, NULL, fi_mc_addr(contexts[i].all),
				fi_rx_addr(processes[0], 1, BITS), FI_UINT64, 0, op));
	}
	await_all(1);
	IS(all[0][0] + all[1][0], 18);
	synchronise(&side);
	IS(fi_close(&contexts[0].tx->fid), -FI_EBUSY);
	for (int i = 0; i < COUNT; i++) {
		struct context *it = &contexts[i];
		OK(fi_close(&it->all->fid));
		OK(fi_close(&it->own->fid));
		OK(fi_close(&it->tx->fid));
		OK(fi_close(&it->rx->fid));
		OK(fi_close(&it->eq->fid));
		OK(fi_close(&it->cq->fid));
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
