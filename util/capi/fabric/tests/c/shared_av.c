/* A named address vector: one process creates it, another reads it at the same indices. */
#include "common.h"

enum { LEN = 64 };

static char buf[LEN];

static void half(int channel, bool first, const char *provider)
{
	struct side side = {.channel = channel};
	struct fi_av_attr attr = {.type = FI_AV_TABLE, .count = 5000};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_cq_tagged_entry entry;
	char name[256] = {0}, peer[256], file[64];
	size_t len = sizeof name;
	struct fid_av *twice;
	fi_addr_t index[2];
	open_domain(&side, hints_for(provider, FI_MSG | FI_SHARED_AV));
	CHECK(side.info->caps & FI_SHARED_AV);
	/* Both processes derive the name from the first one's process id. */
	snprintf(file, sizeof file, "test of %d/%s", first ? getpid() : getppid(), provider);
	attr.name = file;
	attr.flags = first ? 0 : FI_READ;
	if (!first)
		receive_line(channel, buf, 1);
	OK(fi_av_open(side.domain, &attr, &side.av, NULL));
	CHECK(attr.map_addr);
	for (int n = 0; n < 5000; n++)
		CHECK(((fi_addr_t *)attr.map_addr)[n] == (fi_addr_t)n);
	OK(fi_cq_open(side.domain, &cq_attr, &side.cq, NULL));
	OK(fi_endpoint(side.domain, side.info, &side.ep, NULL));
	OK(fi_ep_bind(side.ep, &side.cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(side.ep, &side.av->fid, 0));
	OK(fi_enable(side.ep));
	OK(fi_getname(&side.ep->fid, name, &len));
	if (first) {
		send_line(channel, "o", 1);
		IS(fi_av_open(side.domain, &attr, &twice, NULL), -FI_EADDRINUSE);
		receive_line(channel, peer, sizeof peer);
		IS(fi_av_insert(side.av, peer, 1, &index[0], 0, NULL), 1);
		IS(fi_av_insert(side.av, name, 1, &index[1], 0, NULL), 1);
		CHECK(index[0] == 0 && index[1] == 1);
		OK(fi_recv(side.ep, buf, LEN, NULL, FI_ADDR_UNSPEC, buf));
		send_line(channel, "i", 1);
		await_context(&side, buf, &entry);
		CHECK(buf[0] == 7 && buf[LEN - 1] == 7);
		synchronise(&side);
	} else {
		send_line(channel, name, sizeof name);
		receive_line(channel, buf, 1);
		size_t peer_len = sizeof peer;
		/* The first index is this process's, the second the other's. */
		OK(fi_av_lookup(side.av, 0, peer, &peer_len));
		CHECK(peer_len == len && !memcmp(peer, name, len));
		index[0] = 77;
		IS(fi_av_insert(side.av, name, 1, &index[0], 0, NULL), 0);
		CHECK(index[0] == FI_ADDR_NOTAVAIL);
		index[0] = 0;
		IS(fi_av_remove(side.av, index, 1, 0), -FI_EACCES);
		memset(buf, 7, LEN);
		OK(fi_send(side.ep, buf, LEN, NULL, ((fi_addr_t *)attr.map_addr)[1], buf));
		await_context(&side, buf, &entry);
		synchronise(&side);
	}
	close_side(&side);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	return run_two(half, argv[1]);
}
