/* Connected endpoints: listen, connect, accept, reject, shutdown. */
#include "common.h"

static char ctx[1];

static struct fi_info *describe(uint64_t flags, const char *service)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_BASIC;
	hints->fabric_attr->prov_name = strdup("tcp");
	OK(fi_getinfo(FI_VERSION(1, 4), "127.0.0.1", service, flags, hints, &info));
	fi_freeinfo(hints);
	return info;
}

static struct fid_eq *events(struct fid_fabric *fabric)
{
	struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD, .flags = FI_WRITE};
	struct fid_eq *eq;
	OK(fi_eq_open(fabric, &attr, &eq, NULL));
	return eq;
}

static ssize_t event(struct fid_eq *eq, uint32_t wanted, struct fi_eq_cm_entry *entry, size_t room)
{
	uint32_t number = 99;
	ssize_t got = fi_eq_sread(eq, &number, entry, room, 20000, 0);
	if (got < 0)
		fprintf(stderr, "no event: %s\n", fi_strerror((int)-got));
	CHECK(got >= (ssize_t)sizeof *entry);
	IS(number, wanted);
	return got - (ssize_t)sizeof *entry;
}

static struct fid_ep *endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_eq *eq,
			       struct fid_cq *cq)
{
	struct fid_ep *ep;
	OK(fi_endpoint(domain, info, &ep, NULL));
	IS(fi_enable(ep), -FI_ENOEQ);
	OK(fi_ep_bind(ep, &eq->fid, 0));
	IS(fi_enable(ep), -FI_ENOCQ);
	OK(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV));
	return ep;
}

static void await_one(struct fid_cq *cq, struct fi_cq_msg_entry *entry)
{
	while (fi_cq_read(cq, entry, 1) != 1)
		;
}

static void server(int channel)
{
	struct fi_info *info = describe(FI_SOURCE, "0");
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_pep *pep;
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG};
	struct fid_cq *cq;
	char name[64] = {0}, buf[16];
	size_t len = sizeof name, most = 0, most_len = sizeof most;
	struct {
		struct fi_eq_cm_entry cm;
		char data[256];
	} entry;
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	struct fid_eq *eq = events(fabric);
	OK(fi_passive_ep(fabric, info, &pep, NULL));
	IS(fi_listen(pep), -FI_ENOEQ);
	OK(fi_pep_bind(pep, &eq->fid, 0));
	OK(fi_listen(pep));
	OK(fi_getopt(&pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &most_len));
	CHECK(most >= 16);
	OK(fi_getname(&pep->fid, name, &len));
	send_line(channel, &len, sizeof len);
	send_line(channel, name, sizeof name);

	IS(event(eq, FI_CONNREQ, &entry.cm, sizeof entry), 5);
	CHECK(entry.cm.fid == &pep->fid && !memcmp(entry.data, "first", 5));
	fid_t handle = entry.cm.info->handle;
	CHECK(handle->fclass == FI_CLASS_CONNREQ);
	OK(fi_reject(pep, handle, "no", 2));
	IS(fi_reject(pep, handle, "no", 2), -FI_EINVAL);
	fi_freeinfo(entry.cm.info);

	IS(event(eq, FI_CONNREQ, &entry.cm, sizeof entry), 6);
	OK(fi_domain(fabric, entry.cm.info, &domain, NULL));
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));
	struct fid_ep *ep = endpoint(domain, entry.cm.info, eq, cq);
	fi_freeinfo(entry.cm.info);
	OK(fi_enable(ep));
	OK(fi_recv(ep, buf, sizeof buf, NULL, 0, ctx));
	OK(fi_accept(ep, "yes", 3));
	event(eq, FI_CONNECTED, &entry.cm, sizeof entry);
	CHECK(entry.cm.fid == &ep->fid);
	struct fi_cq_msg_entry done;
	await_one(cq, &done);
	CHECK(done.op_context == ctx && done.len == 4 && done.flags & FI_RECV);
	OK(fi_send(ep, "pong", 4, NULL, 0, ctx));
	await_one(cq, &done);
	event(eq, FI_SHUTDOWN, &entry.cm, sizeof entry);
	CHECK(entry.cm.fid == &ep->fid);
	OK(fi_close(&ep->fid));
	OK(fi_close(&pep->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&eq->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
}

static void client(int channel)
{
	char name[64], peer[64], buf[16];
	size_t len, peer_len = sizeof peer;
	receive_line(channel, &len, sizeof len);
	receive_line(channel, name, sizeof name);
	struct fi_info *info = describe(0, "1");
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG};
	struct fid_cq *cq;
	struct {
		struct fi_eq_cm_entry cm;
		char data[256];
	} entry;
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	struct fid_eq *eq = events(fabric);
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_cq_open(domain, &cq_attr, &cq, NULL));

	struct fid_ep *refused = endpoint(domain, info, eq, cq);
	OK(fi_connect(refused, name, "first", 5));
	uint32_t number;
	IS(fi_eq_sread(eq, &number, &entry, sizeof entry, 20000, 0), -FI_EAVAIL);
	/* Entries of API version 1.4 have no size of error data. */
	struct fi_eq_err_entry error;
	memset(&error, 0x55, sizeof error);
	IS(fi_eq_readerr(eq, &error, 0), 40);
	CHECK(error.fid == &refused->fid);
	IS(error.err, FI_ECONNREFUSED);
	CHECK(!memcmp(error.err_data, "no", 2));
	IS(error.err_data_size, 0x5555555555555555);
	CHECK(strstr(fi_eq_strerror(eq, error.prov_errno, NULL, buf, 0), "reject"));
	OK(fi_close(&refused->fid));

	struct fid_ep *ep = endpoint(domain, info, eq, cq);
	OK(fi_recv(ep, buf, sizeof buf, NULL, 0, ctx) == -FI_EOPBADSTATE ? 0 : 1);
	OK(fi_connect(ep, name, "second", 6));
	IS(event(eq, FI_CONNECTED, &entry.cm, sizeof entry), 3);
	CHECK(!memcmp(entry.data, "yes", 3) && entry.cm.fid == &ep->fid);
	OK(fi_getpeer(ep, peer, &peer_len));
	CHECK(peer_len == len && !memcmp(peer, name, 8));
	OK(fi_recv(ep, buf, sizeof buf, NULL, 0, ctx));
	OK(fi_inject(ep, "ping", 4, 0));
	struct fi_cq_msg_entry done;
	await_one(cq, &done);
	CHECK(done.len == 4 && !memcmp(buf, "pong", 4));
	IS(fi_shutdown(ep, 1), -FI_EBADFLAGS);
	OK(fi_shutdown(ep, 0));
	OK(fi_shutdown(ep, 0));
	event(eq, FI_SHUTDOWN, &entry.cm, sizeof entry);
	CHECK(entry.cm.fid == &ep->fid);

	struct fi_eq_entry own = {.context = ctx, .data = 9}, back;
	IS(fi_eq_write(eq, FI_NOTIFY, &own, sizeof own, 0), sizeof own);
	IS(fi_eq_read(eq, &number, &back, sizeof back, FI_PEEK), sizeof back);
	IS(fi_eq_read(eq, &number, &back, sizeof back, 0), sizeof back);
	CHECK(number == FI_NOTIFY && back.context == ctx && back.data == 9);
	IS(fi_eq_read(eq, &number, &back, sizeof back, 0), -FI_EAGAIN);
	OK(fi_close(&ep->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&eq->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
}

static void half(int channel, bool first, const char *provider)
{
	(void)provider;
	if (first)
		server(channel);
	else
		client(channel);
}

int main(void)
{
	return run_two(half, "tcp");
}
