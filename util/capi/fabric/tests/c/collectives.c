/* Sets, groups and collectives between two processes. */
#include "common.h"

static char op[1], joined[1];

static void await_collective(struct side *side)
{
	struct fi_cq_tagged_entry entry;
	await_context(side, op, &entry);
	IS(entry.flags & FI_COLLECTIVE, FI_COLLECTIVE);
}

static void sets(struct side *side, fi_addr_t own)
{
	struct fi_av_set_attr all = {.start_addr = 0, .end_addr = 1, .stride = 1, .count = 2};
	struct fi_av_set_attr none = {.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL};
	struct fid_av_set *a, *b;
	fi_addr_t at = 0, other = 0;
	OK(fi_av_set(side->av, &all, &a, NULL));
	OK(fi_av_set(side->av, &none, &b, NULL));
	OK(fi_av_set_addr(a, &at));
	OK(fi_av_set_addr(b, &other));
	CHECK(at != other);
	IS(fi_close(&side->av->fid), -FI_EBUSY);
	OK(fi_av_set_insert(b, own));
	IS(fi_av_set_insert(b, own), -FI_EINVAL);
	OK(fi_av_set_diff(a, b));
	IS(fi_av_set_remove(a, own), -FI_EINVAL);
	OK(fi_av_set_union(a, b));
	OK(fi_av_set_intersect(a, a));
	OK(fi_av_set_remove(a, own));
	IS(fi_av_set_union(a, NULL), -FI_EINVAL);
	all.stride = 0;
	struct fid_av_set *wrong = NULL;
	IS(fi_av_set(side->av, &all, &wrong, NULL), -FI_EINVAL);
	all.flags = 1;
	IS(fi_av_set(side->av, &all, &wrong, NULL), -FI_EBADFLAGS);
	OK(fi_close(&a->fid));
	OK(fi_close(&b->fid));
}

static void queries(struct side *side)
{
	struct fi_collective_attr attr = {.op = FI_SUM, .datatype = FI_UINT64};
	OK(fi_query_collective(side->domain, FI_ALLREDUCE, &attr, 0));
	CHECK(attr.max_members >= 2 && attr.datatype_attr.count > 0);
	IS(attr.datatype_attr.size, 8);
	attr.op = FI_CSWAP;
	IS(fi_query_collective(side->domain, FI_ALLREDUCE, &attr, 0), -FI_EOPNOTSUPP);
	attr.op = FI_NOOP;
	attr.datatype = FI_VOID;
	OK(fi_query_collective(side->domain, FI_BARRIER, &attr, 0));
	IS(fi_query_collective(side->domain, 99, &attr, 0), -FI_EOPNOTSUPP);
}

static void half(int channel, bool first, const char *provider)
{
	struct side side = {.channel = channel};
	struct fi_info *hints = hints_for(provider, FI_MSG | FI_TAGGED | FI_COLLECTIVE);
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fid_eq *eq;
	struct fid_av_set *set;
	struct fid_mc *mc;
	struct fi_eq_entry event;
	uint32_t number = 0;
	char name[256];
	size_t len = sizeof name;
	open_side(&side, hints, FI_WAIT_NONE);
	CHECK(side.info->caps & FI_COLLECTIVE);
	OK(fi_eq_open(side.fabric, &eq_attr, &eq, NULL));
	OK(fi_ep_bind(side.ep, &eq->fid, 0));
	IS(fi_barrier(side.ep, 0, op), -FI_EOPBADSTATE);
	OK(fi_enable(side.ep));
	exchange_names(&side);
	fi_addr_t own;
	OK(fi_getname(&side.ep->fid, name, &len));
	IS(fi_av_insert(side.av, name, 1, &own, 0, NULL), 1);
	sets(&side, own);
	queries(&side);

	struct fi_av_set_attr attr = {.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL};
	fi_addr_t root = first ? own : side.peer, at;
	OK(fi_av_set(side.av, &attr, &set, NULL));
	OK(fi_av_set_insert(set, root));
	OK(fi_av_set_insert(set, first ? side.peer : own));
	OK(fi_av_set_addr(set, &at));
	OK(fi_join_collective(side.ep, at, set, 0, &mc, joined));
	IS(fi_eq_sread(eq, &number, &event, sizeof event, -1, 0), sizeof event);
	IS(number, FI_JOIN_COMPLETE);
	CHECK(event.context == joined);
	fi_addr_t group = fi_mc_addr(mc);

	uint64_t one[2] = {first ? 3 : 4, 5}, two[2] = {0, 0};
	uint64_t rank = first ? 0 : 1;
	OK(fi_barrier(side.ep, group, op));
	await_collective(&side);
	OK(fi_barrier2(side.ep, group, FI_COMPLETION, op));
	await_collective(&side);
	OK(fi_allreduce(side.ep, one, 2, NULL, two, NULL, group, FI_UINT64, FI_SUM, 0, op));
	await_collective(&side);
	IS(two[0], 7);
	IS(two[1], 10);
	OK(fi_allgather(side.ep, &rank, 1, NULL, two, NULL, group, FI_UINT64, 0, op));
	await_collective(&side);
	CHECK(two[0] == 0 && two[1] == 1);
	OK(fi_alltoall(side.ep, one, 1, NULL, two, NULL, group, FI_UINT64, 0, op));
	await_collective(&side);
	CHECK(first ? two[0] == 3 && two[1] == 4 : two[0] == 5 && two[1] == 5);
	two[0] = first ? 9 : 0;
	OK(fi_broadcast(side.ep, two, 1, NULL, group, root, FI_UINT64, 0, op));
	await_collective(&side);
	IS(two[0], 9);
	OK(fi_reduce_scatter(side.ep, one, 1, NULL, two, NULL, group, FI_UINT64, FI_PROD, 0, op));
	await_collective(&side);
	IS(two[0], first ? 12 : 25);
	OK(fi_reduce(side.ep, one, 1, NULL, first ? two : NULL, NULL, group, root, FI_UINT64, FI_MAX,
		     0, op));
	await_collective(&side);
	if (first)
		IS(two[0], 4);
	OK(fi_scatter(side.ep, first ? one : NULL, 1, NULL, two, NULL, group, root, FI_UINT64, 0,
		      op));
	await_collective(&side);
	IS(two[0], first ? 3 : 5);
	OK(fi_gather(side.ep, &rank, 1, NULL, first ? two : NULL, NULL, group, root, FI_UINT64, 0,
		     op));
	await_collective(&side);
	if (first)
		CHECK(two[0] == 0 && two[1] == 1);
	IS(fi_allreduce(side.ep, one, 1, NULL, two, NULL, own, FI_UINT64, FI_SUM, 0, op), -FI_EINVAL);
	IS(fi_allreduce(side.ep, one, 1, NULL, two, NULL, group, 77, FI_SUM, 0, op),
	   -FI_EOPNOTSUPP);

	synchronise(&side);
	IS(fi_close(&side.ep->fid), -FI_EBUSY);
	OK(fi_close(&mc->fid));
	OK(fi_close(&set->fid));
	OK(fi_close(&side.ep->fid));
	OK(fi_close(&eq->fid));
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
