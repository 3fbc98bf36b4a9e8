/* Messages of every form between two processes. */
#include "common.h"

enum { TAG = 0x1234 };

static char send_ctx[2], recv_ctx[2];

static void post_receive(struct side *side, void *buf, size_t len, void *ctx, bool tagged)
{
	ssize_t posted = tagged ? fi_trecv(side->ep, buf, len, NULL, FI_ADDR_UNSPEC, TAG, 0, ctx)
				: fi_recv(side->ep, buf, len, NULL, FI_ADDR_UNSPEC, ctx);
	OK(posted);
}

/* The first process sends in each form, and the second returns what it has received. */
static void forms(struct side *side, bool first, bool tagged)
{
	char out[2][8] = {"selved", "ge-c-fa"}, in[64];
	struct iovec iov[2] = {{out[0], 6}, {out[1], 7}}, in_iov[2] = {{in, 5}, {in + 5, 59}};
	struct fi_msg msg = {.msg_iov = iov, .iov_count = 2, .addr = side->peer, .context = send_ctx,
			     .data = 77};
	struct fi_msg_tagged tmsg = {.msg_iov = iov, .iov_count = 2, .addr = side->peer, .tag = TAG,
				     .context = send_ctx, .data = 77};
	struct fi_cq_tagged_entry entry;
	for (int form = 0; form < 6; form++) {
		size_t expected = form < 2 ? 6 : form == 2 || form == 3 ? 13 : 6;
		bool data = form == 3 || form == 4 || form == 5;
		memset(in, 0, sizeof in);
		if (!first) {
			if (form == 2) {
				ssize_t posted = tagged ? fi_trecvv(side->ep, in_iov, NULL, 2, FI_ADDR_UNSPEC,
								    TAG, 0, recv_ctx)
							: fi_recvv(side->ep, in_iov, NULL, 2,
								   FI_ADDR_UNSPEC, recv_ctx);
				OK(posted);
			} else {
				post_receive(side, in, sizeof in, recv_ctx, tagged);
			}
		}
		synchronise(side);
		if (first) {
			ssize_t sent = 0;
			switch (form) {
			case 0:
				sent = tagged ? fi_tsend(side->ep, out[0], 6, NULL, side->peer, TAG, send_ctx)
					      : fi_send(side->ep, out[0], 6, NULL, side->peer, send_ctx);
				break;
			case 1:
				sent = tagged ? fi_tinject(side->ep, out[0], 6, side->peer, TAG)
					      : fi_inject(side->ep, out[0], 6, side->peer);
				break;
			case 2:
				sent = tagged ? fi_tsendv(side->ep, iov, NULL, 2, side->peer, TAG, send_ctx)
					      : fi_sendv(side->ep, iov, NULL, 2, side->peer, send_ctx);
				break;
			case 3:
				sent = tagged ? fi_tsendmsg(side->ep, &tmsg, FI_REMOTE_CQ_DATA | FI_COMPLETION)
					      : fi_sendmsg(side->ep, &msg, FI_REMOTE_CQ_DATA | FI_COMPLETION);
				break;
			case 4:
				sent = tagged ? fi_tsenddata(side->ep, out[0], 6, NULL, 77, side->peer, TAG,
							     send_ctx)
					      : fi_senddata(side->ep, out[0], 6, NULL, 77, side->peer,
							    send_ctx);
				break;
			case 5:
				sent = tagged ? fi_tinjectdata(side->ep, out[0], 6, 77, side->peer, TAG)
					      : fi_injectdata(side->ep, out[0], 6, 77, side->peer);
				break;
			}
			OK(sent);
			if (form != 1 && form != 5) {
				await_context(side, send_ctx, &entry);
				CHECK(entry.flags & FI_SEND);
				CHECK(entry.flags & (tagged ? FI_TAGGED : FI_MSG));
			}
		} else {
			await_context(side, recv_ctx, &entry);
			IS(entry.len, expected);
			CHECK(!memcmp(in, "selvedge-c-fa", expected));
			CHECK(entry.flags & FI_RECV);
			IS(!!(entry.flags & FI_REMOTE_CQ_DATA), data);
			if (data)
				IS(entry.data, 77);
			if (tagged)
				IS(entry.tag, TAG);
		}
		synchronise(side);
	}
}

/* A receive that is too short, a cancelled one, and peeks. */
static void corners(struct side *side, bool first)
{
	char buf[256] = "unexpected", in[8] = {0};
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	struct fi_context context;
	struct fi_msg_tagged peek = {.addr = FI_ADDR_UNSPEC, .tag = 9, .context = &context};
	if (first) {
		OK(fi_tsend(side->ep, buf, 100, NULL, side->peer, TAG, send_ctx));
		await_context(side, send_ctx, &entry);
		OK(fi_tinject(side->ep, buf, 11, side->peer, 9));
		synchronise(side);
		synchronise(side);
		return;
	}
	ssize_t got;
	OK(fi_trecv(side->ep, in, sizeof in, NULL, side->peer, TAG, 0, recv_ctx));
	while ((got = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		;
	IS(got, -FI_EAVAIL);
	IS(fi_cq_readerr(side->cq, &error, 0), 1);
	IS(error.err, FI_ETRUNC);
	IS(error.olen, 92);
	CHECK(error.op_context == recv_ctx);
	CHECK(fi_cq_strerror(side->cq, error.prov_errno, error.err_data, buf, sizeof buf) == buf);
	CHECK(strlen(buf) > 0);
	IS(fi_cq_readerr(side->cq, &error, 0), -FI_EAGAIN);
	synchronise(side);

	OK(fi_trecvmsg(side->ep, &peek, FI_PEEK | FI_CLAIM));
	await_context(side, &context, &entry);
	IS(entry.len, 11);
	struct iovec iov = {buf, sizeof buf};
	peek.msg_iov = &iov;
	peek.iov_count = 1;
	OK(fi_trecvmsg(side->ep, &peek, FI_CLAIM));
	await_context(side, &context, &entry);
	CHECK(!strcmp(buf, "unexpected"));
	peek.iov_count = 0;
	OK(fi_trecvmsg(side->ep, &peek, FI_PEEK));
	while ((got = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		;
	IS(got, -FI_EAVAIL);
	IS(fi_cq_readerr(side->cq, &error, 0), 1);
	IS(error.err, FI_ENOMSG);

	OK(fi_recv(side->ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, recv_ctx));
	OK(fi_cancel(&side->ep->fid, recv_ctx));
	while ((got = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		;
	IS(got, -FI_EAVAIL);
	IS(fi_cq_readerr(side->cq, &error, 0), 1);
	IS(error.err, FI_ECANCELED);
	IS(fi_cancel(&side->ep->fid, recv_ctx), -FI_ENOENT);
	synchronise(side);
}

/* One buffer for many messages. */
static void many(struct side *side, bool first)
{
	enum { MESSAGES = 10 };
	static char room[256];
	struct fi_cq_tagged_entry entry;
	size_t least = 64;
	synchronise(side);
	if (first) {
		for (int at = 0; at < MESSAGES; at++)
			OK(fi_inject(side->ep, "0123456789abcdef0123456789abcdef", 32, side->peer));
		synchronise(side);
		return;
	}
	OK(fi_setopt(&side->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
	struct iovec iov = {room, sizeof room};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
			     .context = recv_ctx};
	int taken = 0, buffers = 0;
	while (taken < MESSAGES) {
		bool released = false;
		OK(fi_recvmsg(side->ep, &msg, FI_MULTI_RECV | FI_COMPLETION));
		buffers++;
		while (!released && taken < MESSAGES) {
			await_context(side, recv_ctx, &entry);
			released = entry.flags & FI_MULTI_RECV;
			if (!(entry.flags & FI_RECV))
				continue;
			taken++;
			IS(entry.len, 32);
			CHECK((char *)entry.buf >= room && (char *)entry.buf + 32 <= room + sizeof room);
			CHECK(!memcmp(entry.buf, "0123456789abcdef0123456789abcdef", 32));
		}
	}
	CHECK(buffers > 1);
	synchronise(side);
}

static void half(int channel, bool first, const char *provider)
{
	struct side side = {.channel = channel};
	open_side(&side, hints_for(provider, FI_MSG | FI_TAGGED | FI_DIRECTED_RECV), FI_WAIT_NONE);
	char byte;
	IS(fi_recv(side.ep, &byte, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPBADSTATE);
	OK(fi_enable(side.ep));
	IS(fi_enable(side.ep), -FI_EOPBADSTATE);
	exchange_names(&side);
	forms(&side, first, false);
	forms(&side, first, true);
	forms(&side, !first, true);
	corners(&side, first);
	many(&side, first);
	char address[256];
	size_t len = sizeof address;
	OK(fi_av_lookup(side.av, side.peer, address, &len));
	char words[256];
	size_t words_len = sizeof words;
	CHECK(fi_av_straddr(side.av, address, words, &words_len) == words);
	CHECK(!strncmp(words, "fi_", 3) && words_len == strlen(words) + 1);
	OK(fi_av_remove(side.av, &side.peer, 1, 0));
	close_side(&side);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	return run_two(half, argv[1]);
}
