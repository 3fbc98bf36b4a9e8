/* The contestant over libfabric. */
#include "contestant.h"


#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

/* The key of every region. */
enum { KEY = 7 };
/* Distinguishes the contexts of sends from those of receives. */
static const uint64_t SENT = (uint64_t)1 << 32;

/* Memory that a process lets its peer read and write. */
struct remote_memory {
	uint64_t addr, key;
};

struct bench_endpoint {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t peer;
	/* For one-sided operations; NULL without them. */
	struct fid_mr *mr;
	struct remote_memory remote;
	struct fi_cq_tagged_entry entries[1 << 16];
};

static struct bench_endpoint endpoint;

static void fail(const char *call, long errnum)
{
	fail_with(call, errnum ? fi_strerror((int)labs(errnum)) : "unexpected value");
}

static void check(const char *call, long result)
{
	if (result)
		fail(call, result);
}

/* Opening. */

static void open_region(size_t length)
{
	run.region = pages(length);
	run.local = pages(length);
	check("fi_mr_reg", fi_mr_reg(endpoint.domain, run.region, length,
				     FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &endpoint.mr,
				     NULL));
}

/* Orders carry a binary address as hexadecimal digits after this prefix. */
#define BYTES "bytes:"
enum { NAME_MAX = 128 };

static void write_name(const char *name, size_t length, char *text)
{
	if (endpoint.info->addr_format == FI_ADDR_STR) {
		strcpy(text, name);
		return;
	}
	text += sprintf(text, BYTES);
	write_hex(name, length, text);
}

static void read_name(const char *text, char *name)
{
	if (strncmp(text, BYTES, strlen(BYTES))) {
		memcpy(name, text, strnlen(text, NAME_MAX));
		return;
	}
	read_hex(text + strlen(BYTES), name, NAME_MAX);
}

/* Removes the files that libfabric's shm has in /dev/shm. */
static void close_endpoint(void)
{
	fi_close(&endpoint.ep->fid);
}

static void open_endpoint(size_t largest, size_t window, bool remote)
{
	struct bench_endpoint *s = &endpoint;
	struct fi_info *hints = fi_allocinfo();
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_TAGGED | (remote ? FI_RMA | FI_ATOMIC : 0);
	hints->mode = FI_CONTEXT;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &s->info));
	fi_freeinfo(hints);
	check("fi_fabric", fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	check("fi_domain", fi_domain(s->fabric, s->info, &s->domain, NULL));
	struct fi_cq_attr cq_attr = {
		.size = 4 * window < 256 ? 256 : 4 * window,
		.format = FI_CQ_FORMAT_TAGGED,
	};
	struct fi_av_attr av_attr = { .type = FI_AV_UNSPEC };
	check("fi_cq_open", fi_cq_open(s->domain, &cq_attr, &s->cq, NULL));
	check("fi_av_open", fi_av_open(s->domain, &av_attr, &s->av, NULL));
	check("fi_endpoint", fi_endpoint(s->domain, s->info, &s->ep, NULL));
	check("fi_ep_bind", fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_ep_bind", fi_ep_bind(s->ep, &s->av->fid, 0));
	check("fi_enable", fi_enable(s->ep));
	atexit(close_endpoint);
	size_t side = open_buffers(largest, window);
	if (remote)
		open_region(region_length(side));
	char name[NAME_MAX + 1] = { 0 }, text[2 * NAME_MAX + sizeof(BYTES)];
	size_t length = NAME_MAX;
	check("fi_getname", fi_getname(&s->ep->fid, name, &length));
	write_name(name, length, text);
	reply("{\"done\":{\"provider\":\"%s\",\"address\":\"%s\",\"inject_size\":%zu}}\n",
	      s->info->fabric_attr->prov_name, text, s->info->tx_attr->inject_size);
}

static void set_peer_address(const char *text)
{
	char name[NAME_MAX + 1] = { 0 };
	read_name(text, name);
	if (fi_av_insert(endpoint.av, name, 1, &endpoint.peer, 0, NULL) != 1)
		fail("fi_av_insert", FI_EADDRNOTAVAIL);
}

static size_t inject_limit(void)
{
	return endpoint.info->tx_attr->inject_size;
}

/* Posting and completing. */

static void make_room(const char *call, ssize_t result)
{
	if (result != -FI_EAGAIN)
		fail(call, result);
	rest();
	ssize_t count = fi_cq_read(endpoint.cq, NULL, 0);
	if (count < 0 && count != -FI_EAGAIN)
		fail("fi_cq_read", count);
}

static inline void post_recv(size_t slot, size_t length, uint64_t tag)
{
	struct bench_endpoint *s = &endpoint;
	char *buf = run.rx + slot * run.stride;
	void *context = (void *)(uintptr_t)slot;
	for (;;) {
		ssize_t result = run.order.tagged
			? fi_trecv(s->ep, buf, length, NULL, FI_ADDR_UNSPEC, tag, 0, context)
			: fi_recv(s->ep, buf, length, NULL, FI_ADDR_UNSPEC, context);
		if (!result)
			return;
		make_room("fi_recv", result);
	}
}

static inline void post_send(size_t slot, size_t length, uint64_t tag)
{
	struct bench_endpoint *s = &endpoint;
	char *buf = run.tx + slot * run.stride;
	void *context = (void *)(uintptr_t)(slot | SENT);
	for (;;) {
		ssize_t result = run.order.tagged
			? fi_tsend(s->ep, buf, length, NULL, s->peer, tag, context)
			: fi_send(s->ep, buf, length, NULL, s->peer, context);
		if (!result)
			return;
		make_room("fi_send", result);
	}
}

static inline void inject(size_t slot, size_t length, uint64_t tag)
{
	struct bench_endpoint *s = &endpoint;
	char *buf = run.tx + slot * run.stride;
	for (;;) {
		ssize_t result = run.order.tagged
			? fi_tinject(s->ep, buf, length, s->peer, tag)
			: fi_inject(s->ep, buf, length, s->peer);
		if (!result)
			return;
		make_room("fi_inject", result);
	}
}

/* Reads up to `room` completions and returns their buffers to the free lists. */
static inline void read_completions(size_t room, size_t expected)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t count = fi_cq_read(s->cq, s->entries, room);
	if (count == -FI_EAGAIN) {
		rest();
		return;
	}
	if (count < 0)
		fail("fi_cq_read", count);
	for (ssize_t at = 0; at < count; at++) {
		uint64_t context = (uint64_t)(uintptr_t)s->entries[at].op_context;
		if (context & SENT) {
			run.tx_free[run.tx_count++] = context & ~SENT;
		} else {
			if (s->entries[at].len != expected)
				fail("wrong length of a message", 0);
			run.rx_free[run.rx_count++] = context;
			run.received++;
		}
	}
}

/* One-sided operations. */

/* Reads up to `room` completions and returns their number. */
static inline size_t completions(size_t room)
{
	ssize_t count = fi_cq_read(endpoint.cq, endpoint.entries, room);
	if (count >= 0)
		return (size_t)count;
	if (count != -FI_EAGAIN)
		fail("fi_cq_read", count);
	rest();
	return 0;
}

static inline void complete(size_t count)
{
	while (count)
		count -= completions(count);
}

/* Sends bytes to the peer and receives as many, which also synchronises both processes. */
static void exchange(void *own, void *remote, size_t length)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t result;
	while ((result = fi_trecv(s->ep, remote, length, NULL, FI_ADDR_UNSPEC, TAG_SYNCHRONISE, 0,
				  NULL)))
		make_room("fi_trecv", result);
	while ((result = fi_tsend(s->ep, own, length, NULL, s->peer, TAG_SYNCHRONISE, NULL)))
		make_room("fi_tsend", result);
	complete(2);
}

/* Exchanges the keys of both processes' memory once. */
static void exchange_memory(void)
{
	struct bench_endpoint *s = &endpoint;
	if (s->remote.key || s->remote.addr)
		return;
	bool virtual = s->info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC);
	struct remote_memory own = {
		.addr = virtual ? (uint64_t)(uintptr_t)run.region : 0,
		.key = fi_mr_key(s->mr),
	};
	exchange(&own, &s->remote, sizeof(own));
}

static inline void post_write(size_t at)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t result;
	while ((result = fi_write(s->ep, run.local + at, run.order.size, NULL, s->peer,
				  s->remote.addr + at, s->remote.key, NULL)))
		make_room("fi_write", result);
}

static inline void post_read(size_t at)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t result;
	while ((result = fi_read(s->ep, run.local + at, run.order.size, NULL, s->peer,
				 s->remote.addr + at, s->remote.key, NULL)))
		make_room("fi_read", result);
}

static inline void post_atomic(size_t at, bool fetch)
{
	struct bench_endpoint *s = &endpoint;
	enum fi_datatype type = run.order.size == 4 ? FI_UINT32 : FI_UINT64;
	uint64_t addr = s->remote.addr + at, key = s->remote.key;
	ssize_t result;
	do {
		result = fetch ? fi_fetch_atomic(s->ep, run.local, 1, NULL, run.local + 32, NULL,
						 s->peer, addr, key, type, FI_SUM, NULL)
			       : fi_atomic(s->ep, run.local, 1, NULL, s->peer, addr, key, type,
					   FI_SUM, NULL);
		if (result)
			make_room("fi_atomic", result);
	} while (result);
}

static inline void post_data(void)
{
	struct bench_endpoint *s = &endpoint;
	ssize_t result;
	do {
		result = run.order.inject
			? fi_inject_writedata(s->ep, run.local, run.order.size, turn, s->peer,
					      s->remote.addr, s->remote.key)
			: fi_writedata(s->ep, run.local, run.order.size, NULL, turn, s->peer,
				       s->remote.addr, s->remote.key, NULL);
		if (result)
			make_room("fi_writedata", result);
	} while (result);
}

/* Gives the provider its chance to carry out the peer's operations. */
static inline void poll_target(void)
{
	ssize_t count = fi_cq_read(endpoint.cq, NULL, 0);
	if (count < 0 && count != -FI_EAGAIN)
		fail("fi_cq_read", count);
}

/* Waits for the peer's data, and for the local write's completion unless `is_written`. */
static inline void wait_for_data(bool is_written)
{
	bool is_received = false;
	while (!is_received || !is_written) {
		if (!completions(1))
			continue;
		if (endpoint.entries[0].flags & FI_REMOTE_CQ_DATA) {
			if (endpoint.entries[0].data != turn)
				fail("wrong data of a write", 0);
			is_received = true;
		} else {
			is_written = true;
		}
	}
}

#include "loops.h"
