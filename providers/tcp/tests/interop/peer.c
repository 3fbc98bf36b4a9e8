/* A program of stock libfabric, for either end of a conversation: it says where it is, reads where
 * the other end is, and then sends a tagged message with tag 1, receives one with tag 2, and, as
 * "first", writes and reads the other end's memory (key 7) or, as "second", has some (key 9). A second
 * argument is the provider, "net" by default. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define LARGE 300000

static struct fid_cq *cq;
static char sent[LARGE], got[LARGE], window[4096], local[64];

static void check(const char *what, long ret)
{
	if (ret) {
		printf("failed %s: %s\n", what, fi_strerror((int) -ret));
		fflush(stdout);
		exit(1);
	}
}

static void drive(void)
{
	fi_cq_read(cq, NULL, 0);
}

static void await(const char *what)
{
	struct fi_cq_tagged_entry entry;
	time_t end = time(NULL) + 30;
	while (time(NULL) < end) {
		ssize_t ret = fi_cq_read(cq, &entry, 1);
		if (ret == 1)
			return;
		if (ret == -FI_EAVAIL) {
			struct fi_cq_err_entry error = {0};
			fi_cq_readerr(cq, &error, 0);
			check(what, -error.err);
		}
	}
	check(what, -FI_ETIMEDOUT);
}

#define POST(call) do { long r; while ((r = (call)) == -FI_EAGAIN) drive(); check(#call, r); } while (0)

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_av *av;
	struct fid_mr *mr;
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr av_attr = {0};
	struct sockaddr_in addr;
	size_t len = sizeof addr;
	fi_addr_t peer;
	char line[128], *port;
	int first = argc > 1 && !strcmp(argv[1], "first");

	hints->fabric_attr->prov_name = strdup(argc > 2 ? argv[2] : "net");
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA;
	hints->addr_format = FI_SOCKADDR_IN;
	check("getinfo", fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info));
	check("fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	check("domain", fi_domain(fabric, info, &domain, NULL));
	check("cq", fi_cq_open(domain, &cq_attr, &cq, NULL));
	check("av", fi_av_open(domain, &av_attr, &av, NULL));
	check("ep", fi_endpoint(domain, info, &ep, NULL));
	check("bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	check("bind", fi_ep_bind(ep, &av->fid, 0));
	check("enable", fi_enable(ep));
	check("reg", fi_mr_reg(domain, window, sizeof window, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 9,
			       0, &mr, NULL));
	check("name", fi_getname(&ep->fid, &addr, &len));
	printf("at %s:%d\n", inet_ntoa(addr.sin_addr), ntohs(addr.sin_port));
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin) || !(port = strrchr(line, ':')))
		return 1;
	*port++ = 0;
	memset(&addr, 0, sizeof addr);
	addr.sin_family = AF_INET;
	addr.sin_port = htons((unsigned short) atoi(port));
	inet_aton(line, &addr.sin_addr);
	if (fi_av_insert(av, &addr, 1, &peer, 0, NULL) != 1)
		return 1;
	for (int i = 0; i < LARGE; i++)
		sent[i] = (char) (i * 7);
	POST(fi_trecv(ep, got, LARGE, NULL, FI_ADDR_UNSPEC, 2, 0, NULL));
	if (!first)
		await("the message");
	POST(fi_tsend(ep, sent, LARGE, NULL, peer, 1, NULL));
	await("the first of two");
	if (first)
		await("the second of two");
	if (memcmp(sent, got, LARGE)) {
		printf("failed: other bytes\n");
		return 1;
	}
	if (first) {
		POST(fi_write(ep, sent, 64, NULL, peer, 8, 7, NULL));
		await("a write");
		POST(fi_read(ep, local, 64, NULL, peer, 8, 7, NULL));
		await("a read");
		if (memcmp(sent, local, 64)) {
			printf("failed: other memory\n");
			return 1;
		}
	}
	printf("done\n");
	fflush(stdout);
	struct pollfd end = {.fd = 0, .events = POLLIN};
	while (poll(&end, 1, 0) == 0)
		drive();
	return 0;
}
