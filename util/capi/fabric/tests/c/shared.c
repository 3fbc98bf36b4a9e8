/* Endpoints that share a receive context and a transmit context. */
#include "common.h"

enum { COUNT = 4, LEN = 64 };

static struct side side;
static struct fid_ep *ep[COUNT];
static fi_addr_t at[COUNT];
static char in[COUNT][LEN], out[COUNT][LEN];

/* One message for each endpoint, from the next one; the receives are shared. */
static void exchange(struct fid_ep *srx, bool tagged)
{
	bool sent[COUNT] = {false}, received[COUNT] = {false}, had[COUNT] = {false};
	struct fi_cq_tagged_entry entry;
	struct iovec iov = {in[0], LEN};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in[0]};
	for (int number = 0; number < COUNT; number++) {
		if (tagged)
			OK(fi_trecv(srx, in[number], LEN, NULL, FI_ADDR_UNSPEC, 70 + number, 0, in[number]));
		else if (number == 0)
			OK(fi_recvmsg(srx, &msg, FI_COMPLETION));
		else
			OK(fi_recv(srx, in[number], LEN, NULL, FI_ADDR_UNSPEC, in[number]));
		memset(out[number], 1 + number + (tagged ? 10 : 0), LEN);
	}
	for (int number = 0; number < COUNT; number++) {
		fi_addr_t to = at[(number + 1) % COUNT];
		if (tagged)
			OK(fi_tsend(ep[number], out[number], LEN, NULL, to, 70 + number, out[number]));
		else
			OK(fi_send(ep[number], out[number], LEN, NULL, to, out[number]));
	}
	for (int done = 0; done < 2 * COUNT; done++) {
		await_entry(&side, &entry);
		char *buffer = entry.op_context;
		bool is_receive = entry.flags & FI_RECV;
		int number = (buffer - (is_receive ? in[0] : out[0])) / LEN;
		bool *twice = is_receive ? &received[number] : &sent[number];
		CHECK(number >= 0 && number < COUNT && !*twice);
		*twice = true;
		if (!is_receive)
			continue;
		IS(entry.len, LEN);
		int from = in[number][0] - 1 - (tagged ? 10 : 0);
		CHECK(from >= 0 && from < COUNT && !had[from]);
		CHECK(!memcmp(in[number], out[from], LEN));
		CHECK(!tagged || from == number);
		had[from] = true;
	}
}

int main(int argc, char **argv)
{
	struct fid_ep *srx;
	struct fid_stx *stx;
	struct fi_cq_err_entry error = {0};
	struct fi_cq_tagged_entry entry;
	char name[256];
	CHECK(argc == 2);
	struct fi_info *hints = hints_for(argv[1], FI_MSG | FI_TAGGED);
	hints->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	open_side(&side, hints, FI_WAIT_NONE);
	CHECK(side.info->domain_attr->max_ep_srx_ctx > 0 && side.info->domain_attr->max_ep_stx_ctx > 0);
	OK(fi_srx_context(side.domain, side.info->rx_attr, &srx, NULL));
	OK(fi_stx_context(side.domain, side.info->tx_attr, &stx, NULL));
	OK(fi_enable(srx));
	IS(fi_send(srx, out, LEN, NULL, 0, NULL), -FI_ENOSYS);
	OK(fi_close(&side.ep->fid));
	for (int number = 0; number < COUNT; number++) {
		size_t len = sizeof name;
		OK(fi_endpoint(side.domain, side.info, &ep[number], NULL));
		OK(fi_ep_bind(ep[number], &side.cq->fid, FI_TRANSMIT | FI_RECV));
		OK(fi_ep_bind(ep[number], &side.av->fid, 0));
		OK(fi_ep_bind(ep[number], &srx->fid, 0));
		OK(fi_ep_bind(ep[number], &stx->fid, 0));
		IS(fi_ep_bind(ep[number], &srx->fid, 0), -FI_EINVAL);
		OK(fi_enable(ep[number]));
		OK(fi_getname(&ep[number]->fid, name, &len));
		IS(fi_av_insert(side.av, name, 1, &at[number], 0, NULL), 1);
	}
	exchange(srx, false);
	exchange(srx, true);

	OK(fi_recv(srx, in[0], LEN, NULL, FI_ADDR_UNSPEC, in[0]));
	OK(fi_cancel(&srx->fid, in[0]));
	IS(fi_cancel(&srx->fid, in[0]), -FI_ENOENT);
	IS(fi_cq_read(side.cq, &entry, 1), -FI_EAVAIL);
	IS(fi_cq_readerr(side.cq, &error, 0), 1);
	CHECK(error.err == FI_ECANCELED && error.op_context == in[0]);

	IS(fi_close(&srx->fid), -FI_EBUSY);
	for (int number = 0; number < COUNT; number++)
		OK(fi_close(&ep[number]->fid));
	OK(fi_close(&srx->fid));
	OK(fi_close(&stx->fid));
	OK(fi_close(&side.av->fid));
	OK(fi_close(&side.cq->fid));
	OK(fi_close(&side.domain->fid));
	OK(fi_close(&side.fabric->fid));
	fi_freeinfo(side.info);
	return 0;
}
