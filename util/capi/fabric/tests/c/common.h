/* Common code of the programs: an endpoint with all objects that it needs, checks that print their
 * line, and a peer in another process. */
#ifndef COMMON_H
#define COMMON_H

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

/* Checks the result of a call; prints another one as a number and as a text. */
#define IS(call, expected)                                                              \
	do {                                                                            \
		long long is_got = (long long)(call), is_wanted = (long long)(expected);      \
		if (is_got != is_wanted) {                                                    \
			fprintf(stderr, "%s:%d: %s is %lld (%s), not %lld\n", __FILE__, \
				__LINE__, #call, is_got,                                   \
				is_got < 0 ? fi_strerror((int)-is_got) : "", is_wanted);         \
			exit(1);                                                        \
		}                                                                       \
	} while (0)
#define OK(call) IS(call, 0)

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t peer;
	int channel;
};

static inline struct fi_info *hints_for(const char *provider, uint64_t caps)
{
	struct fi_info *hints = fi_allocinfo();
	CHECK(hints);
	hints->caps = caps;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = 0;
	hints->fabric_attr->prov_name = strdup(provider);
	if (!strcmp(provider, "tcp"))
		hints->domain_attr->name = strdup("lo");
	return hints;
}

static inline void open_domain(struct side *side, struct fi_info *hints)
{
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &side->info));
	fi_freeinfo(hints);
	OK(fi_fabric(side->info->fabric_attr, &side->fabric, NULL));
	OK(fi_domain(side->fabric, side->info, &side->domain, NULL));
}

static inline void open_side(struct side *side, struct fi_info *hints, enum fi_wait_obj wait_obj)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait_obj};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	open_domain(side, hints);
	OK(fi_cq_open(side->domain, &cq_attr, &side->cq, side));
	OK(fi_av_open(side->domain, &av_attr, &side->av, NULL));
	OK(fi_endpoint(side->domain, side->info, &side->ep, side));
	OK(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_ep_bind(side->ep, &side->av->fid, 0));
}

static inline void close_side(struct side *side)
{
	OK(fi_close(&side->ep->fid));
	OK(fi_close(&side->av->fid));
	OK(fi_close(&side->cq->fid));
	OK(fi_close(&side->domain->fid));
	OK(fi_close(&side->fabric->fid));
	fi_freeinfo(side->info);
}

/* Sends bytes to the other process over a socket, beside the fabric. */
static inline void send_line(int channel, const void *data, size_t len)
{
	CHECK(write(channel, data, len) == (ssize_t)len);
}

static inline void receive_line(int channel, void *data, size_t len)
{
	CHECK(recv(channel, data, len, MSG_WAITALL) == (ssize_t)len);
}

/* Waits until both processes are here. Reads the queue meanwhile: the peer may need its progress. */
static inline void synchronise(struct side *side)
{
	char word = 1;
	struct pollfd ready = {.fd = side->channel, .events = POLLIN};
	send_line(side->channel, &word, 1);
	while (poll(&ready, 1, 0) == 0)
		fi_cq_read(side->cq, NULL, 0);
	receive_line(side->channel, &word, 1);
}

/* Exchanges the endpoints' names, and inserts the peer's. */
static inline void exchange_names(struct side *side)
{
	char name[256] = {0}, peer[256];
	size_t len = sizeof name, needed = 1;
	char small[1];
	IS(fi_getname(&side->ep->fid, small, &needed), -FI_ETOOSMALL);
	CHECK(needed > 1);
	OK(fi_getname(&side->ep->fid, name, &len));
	CHECK(len == needed);
	send_line(side->channel, name, sizeof name);
	receive_line(side->channel, peer, sizeof peer);
	IS(fi_av_insert(side->av, peer, 1, &side->peer, 0, NULL), 1);
}

static inline void await_entry(struct side *side, struct fi_cq_tagged_entry *entry)
{
	ssize_t got;
	do {
		got = fi_cq_read(side->cq, entry, 1);
	} while (got == -FI_EAGAIN);
	if (got == -FI_EAVAIL) {
		struct fi_cq_err_entry error = {0};
		IS(fi_cq_readerr(side->cq, &error, 0), 1);
		fprintf(stderr, "error: %s: %s\n", fi_strerror(error.err),
			fi_cq_strerror(side->cq, error.prov_errno, error.err_data, NULL, 0));
	}
	IS(got, 1);
}

/* Reads entries until one has the context; the others are those of sends. */
static inline void await_context(struct side *side, void *context, struct fi_cq_tagged_entry *entry)
{
	do {
		await_entry(side, entry);
	} while (entry->op_context != context);
}

/* Runs both halves as processes of their own; the parent is the first. */
static inline int run_two(void (*half)(int channel, bool first, const char *provider),
			  const char *provider)
{
	int pair[2], status = 0;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* A process that waits for a failed peer ends, too. */
	alarm(60);
	close(pair[child == 0 ? 1 : 0]);
	half(pair[child == 0 ? 0 : 1], child != 0, provider);
	if (child == 0)
		exit(0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}

#endif
