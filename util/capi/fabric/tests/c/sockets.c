/* Connected endpoints, used like sockets: an address is bound first, and then used to listen or to
 * connect. */
#include "common.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static char ctx[1];

static struct fi_info *describe(uint64_t flags, const char *service, fid_t handle)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_MSG;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_BASIC;
	hints->fabric_attr->prov_name = strdup("tcp");
	hints->handle = handle;
	OK(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", service, flags, hints, &info));
	CHECK(info->handle == handle);
	hints->handle = NULL;
	fi_freeinfo(hints);
	return info;
}

/* The address of an object, which has a port. */
static struct sockaddr_in name_of(fid_t fid)
{
	struct sockaddr_in name;
	size_t len = sizeof name;
	OK(fi_getname(fid, &name, &len));
	IS(len, sizeof name);
	IS(name.sin_family, AF_INET);
	CHECK(name.sin_port != 0);
	return name;
}

static void same(fid_t fid, const struct sockaddr_in *name)
{
	struct sockaddr_in own = name_of(fid);
	IS(ntohs(own.sin_port), ntohs(name->sin_port));
	IS(ntohl(own.sin_addr.s_addr), ntohl(name->sin_addr.s_addr));
}

static struct fid_pep *taken(struct fid_fabric *fabric, struct fi_info *info)
{
	struct fid_pep *pep;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in name;
	size_t len = sizeof name;
	free(info->src_addr);
	free(info->dest_addr);
	info->src_addr = info->dest_addr = NULL;
	info->src_addrlen = info->dest_addrlen = 0;
	OK(fi_passive_ep(fabric, info, &pep, NULL));
	IS(fi_getname(&pep->fid, &name, &len), -FI_EADDRNOTAVAIL);
	OK(fi_setname(&pep->fid, &at, sizeof at));
	IS(fi_setname(&pep->fid, &at, sizeof at), -FI_EOPBADSTATE);
	name = name_of(&pep->fid);
	same(&pep->fid, &name);
	return pep;
}

static struct fid_ep *endpoint(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
			       struct fid_cq **cq)
{
	struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_MSG};
	struct fid_ep *ep;
	OK(fi_domain(fabric, info, domain, NULL));
	OK(fi_cq_open(*domain, &attr, cq, NULL));
	OK(fi_endpoint(*domain, info, &ep, NULL));
	return ep;
}

static void enable(struct fid_ep *ep, struct fid_eq *eq, struct fid_cq *cq)
{
	OK(fi_ep_bind(ep, &eq->fid, 0));
	OK(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV));
	OK(fi_enable(ep));
}

static void event(struct fid_eq *eq, uint32_t wanted, struct fi_eq_cm_entry *entry)
{
	uint32_t number = 99;
	CHECK(fi_eq_sread(eq, &number, entry, sizeof *entry, 20000, 0) >= 0);
	IS(number, wanted);
}

static void talk(struct fid_ep *ep, struct fid_cq *cq, bool first)
{
	struct fi_cq_msg_entry done;
	char buf[8];
	if (first) {
		OK(fi_inject(ep, "hello", 5, 0));
	} else {
		while (fi_recv(ep, buf, sizeof buf, NULL, 0, ctx))
			;
		while (fi_cq_read(cq, &done, 1) != 1)
			;
		CHECK(done.len == 5 && !memcmp(buf, "hello", 5));
	}
}

static void half(int channel, bool first, const char *provider)
{
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_UNSPEC};
	struct fi_eq_cm_entry entry;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_eq *eq;
	struct fid_ep *ep;
	struct fid_fabric *fabric;
	struct sockaddr_in own, peer;
	char word = 1;
	(void)provider;
	struct fi_info *info = describe(FI_SOURCE, NULL, NULL);
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_eq_open(fabric, &eq_attr, &eq, NULL));
	struct fid_pep *pep = taken(fabric, info);
	fi_freeinfo(info);
	own = name_of(&pep->fid);
	if (first) {
		OK(fi_pep_bind(pep, &eq->fid, 0));
		same(&pep->fid, &own);
		OK(fi_listen(pep));
		same(&pep->fid, &own);
		send_line(channel, &own, sizeof own);
		event(eq, FI_CONNREQ, &entry);
		ep = endpoint(fabric, entry.info, &domain, &cq);
		fi_freeinfo(entry.info);
		enable(ep, eq, cq);
		OK(fi_accept(ep, NULL, 0));
		event(eq, FI_CONNECTED, &entry);
		same(&ep->fid, &own);
		receive_line(channel, &own, sizeof own);
		size_t len = sizeof peer;
		OK(fi_getpeer(ep, &peer, &len));
		IS(ntohs(peer.sin_port), ntohs(own.sin_port));
		OK(fi_close(&pep->fid));
	} else {
		receive_line(channel, &peer, sizeof peer);
		send_line(channel, &own, sizeof own);
		char port[8];
		snprintf(port, sizeof port, "%d", ntohs(peer.sin_port));
		struct fi_info *to = describe(0, port, &pep->fid);
		ep = endpoint(fabric, to, &domain, &cq);
		same(&ep->fid, &own);
		OK(fi_close(&pep->fid));
		enable(ep, eq, cq);
		same(&ep->fid, &own);
		OK(fi_connect(ep, to->dest_addr, NULL, 0));
		same(&ep->fid, &own);
		event(eq, FI_CONNECTED, &entry);
		CHECK(entry.fid == &ep->fid);
		same(&ep->fid, &own);
		fi_freeinfo(to);
	}
	talk(ep, cq, first);
	send_line(channel, &word, 1);
	receive_line(channel, &word, 1);
	OK(fi_close(&ep->fid));
	OK(fi_close(&cq->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&eq->fid));
	OK(fi_close(&fabric->fid));
}

int main(void)
{
	return run_two(half, "tcp");
}
