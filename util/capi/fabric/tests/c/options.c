/* Options of endpoints, with the numbers of libfabric 1.22 and later, before and after they are
 * enabled. The arguments: a provider, and its default of FI_OPT_MIN_MULTI_RECV. */
#include "common.h"

enum {
	CUDA_API_PERMITTED = 10,
	SHARED_MEMORY_PERMITTED = 11,
	MAX_MSG_SIZE = 12,
	MAX_TAGGED_SIZE = 13,
	MAX_RMA_SIZE = 14,
	MAX_ATOMIC_SIZE = 15,
	INJECT_MSG_SIZE = 16,
	INJECT_TAGGED_SIZE = 17,
	INJECT_RMA_SIZE = 18,
	INJECT_ATOMIC_SIZE = 19,
};

static void is_size(struct fid_ep *ep, int option, size_t expected)
{
	size_t size = 0, len = sizeof size;
	OK(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, option, &size, &len));
	IS(len, sizeof size);
	IS(size, expected);
}

static void check_sizes(struct side *side, size_t min_multi_recv)
{
	size_t most = side->info->ep_attr->max_msg_size, inject = side->info->tx_attr->inject_size;
	is_size(side->ep, FI_OPT_MIN_MULTI_RECV, min_multi_recv);
	is_size(side->ep, FI_OPT_TX_SIZE, side->info->tx_attr->size);
	is_size(side->ep, FI_OPT_RX_SIZE, side->info->rx_attr->size);
	for (int option = MAX_MSG_SIZE; option <= INJECT_ATOMIC_SIZE; option++)
		is_size(side->ep, option, option < MAX_ATOMIC_SIZE ? most : inject);
}

int main(int argc, char **argv)
{
	struct side side;
	uint64_t caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV;
	size_t size, len = sizeof size, inject;
	static char buf[1 << 20];

	CHECK(argc == 3);
	open_side(&side, hints_for(argv[1], caps), FI_WAIT_NONE);
	check_sizes(&side, strtoul(argv[2], NULL, 10));

	/* An option takes effect at once, and stays. */
	size = 77;
	OK(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, sizeof size));
	check_sizes(&side, 77);
	OK(fi_enable(side.ep));
	check_sizes(&side, 77);

	/* Programs accept this errno only from a limit that cannot be changed. */
	for (int option = MAX_MSG_SIZE; option <= INJECT_ATOMIC_SIZE; option++)
		IS(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, option, &size, sizeof size), -FI_EOPNOTSUPP);
	bool is_allowed = false;
	OK(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, CUDA_API_PERMITTED, &is_allowed, sizeof is_allowed));
	int p2p = -1;
	OK(fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &p2p, (len = sizeof p2p, &len)));
	IS(p2p, FI_HMEM_P2P_DISABLED);
	IS(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &p2p, sizeof p2p), -FI_EOPNOTSUPP);
	IS(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &size, sizeof size), -FI_EINVAL);
	IS(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, SHARED_MEMORY_PERMITTED, &is_allowed, sizeof is_allowed),
	   -FI_EOPNOTSUPP);
	for (int option = 20; option < 32; option++)
		IS(fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, option, &size, (len = sizeof size, &len)),
		   -FI_ENOPROTOOPT);

	/* The reported inject size is accepted, and one byte more is not. */
	len = sizeof inject;
	OK(fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, INJECT_MSG_SIZE, &inject, &len));
	CHECK(inject < sizeof buf);
	OK(fi_getname(&side.ep->fid, buf, (len = sizeof buf, &len)));
	IS(fi_av_insert(side.av, buf, 1, &side.peer, 0, NULL), 1);
	OK(fi_inject(side.ep, buf, inject, side.peer));
	IS(fi_inject(side.ep, buf, inject + 1, side.peer), -FI_EMSGSIZE);
	close_side(&side);
	return 0;
}
