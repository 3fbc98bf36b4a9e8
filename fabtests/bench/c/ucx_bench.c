/*
 * The contestant over UCX: tagged messages, puts, gets and atomic operations of its protocol layer
 * (UCP). An operation that is over when its post returns completes at once; the others complete by
 * a call of their callback during `ucp_worker_progress`.
 */
#include "contestant.h"

#include <ucp/api/ucp.h>

struct bench_endpoint {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h ep;
	/* For one-sided operations; NULL without them. */
	ucp_mem_h memory;
	ucp_rkey_h rkey;
	uint64_t remote;
	/* Bytes of the message that the receive of each buffer expects. */
	size_t expected[1 << 16];
	/* Completed operations that no `complete` has counted. */
	size_t completed;
};

static struct bench_endpoint endpoint;

static void check(const char *call, ucs_status_t status)
{
	if (status != UCS_OK)
		fail_with(call, ucs_status_string(status));
}

/* Opening. */

static void open_region(size_t length)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
		.length = length,
		.flags = UCP_MEM_MAP_ALLOCATE,
	};
	ucp_mem_attr_t attr = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
	check("ucp_mem_map", ucp_mem_map(endpoint.context, &params, &endpoint.memory));
	check("ucp_mem_query", ucp_mem_query(endpoint.memory, &attr));
	run.region = attr.address;
	memset(run.region, 0x5a, length);
	run.local = pages(length);
}

static void open_worker(bool remote)
{
	ucp_config_t *config;
	uint64_t one_sided = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | (remote ? one_sided : 0),
	};
	ucp_worker_params_t worker_params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	check("ucp_config_read", ucp_config_read(NULL, NULL, &config));
	check("ucp_init", ucp_init(&params, config, &endpoint.context));
	ucp_config_release(config);
	check("ucp_worker_create",
	      ucp_worker_create(endpoint.context, &worker_params, &endpoint.worker));
}

/* Bytes of a worker's address. */
enum { ADDRESS_MAX = 1024 };

static void open_endpoint(size_t largest, size_t window, bool remote)
{
	open_worker(remote);
	size_t side = open_buffers(largest, window);
	if (remote)
		open_region(region_length(side));
	ucp_address_t *address;
	size_t length;
	char text[2 * ADDRESS_MAX + 1];
	check("ucp_worker_get_address",
	      ucp_worker_get_address(endpoint.worker, &address, &length));
	if (length > ADDRESS_MAX)
		fail_with("ucp_worker_get_address", "the address is too long");
	write_hex(address, length, text);
	ucp_worker_release_address(endpoint.worker, address);
	reply("{\"done\":{\"provider\":\"%s\",\"address\":\"%s\",\"inject_size\":0}}\n",
	      getenv("BENCH_PROVIDER"), text);
}

static void set_peer_address(const char *text)
{
	char address[ADDRESS_MAX];
	read_hex(text, address, sizeof(address));
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
		.address = (const ucp_address_t *)address,
	};
	check("ucp_ep_create", ucp_ep_create(endpoint.worker, &params, &endpoint.ep));
}

/* UCX has no call that injects: a send of few bytes is over when it returns. */
static size_t inject_limit(void)
{
	return 0;
}

/* Posting and completing. */

static inline void record_received(size_t slot, size_t length)
{
	if (length != endpoint.expected[slot])
		fail_with("ucp_tag_recv_nbx", "wrong length of a message");
	run.rx_free[run.rx_count++] = slot;
	run.received++;
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
			void *slot)
{
	check("ucp_tag_recv_nbx", status);
	record_received((size_t)(uintptr_t)slot, info->length);
	ucp_request_free(request);
}

static void on_sent(void *request, ucs_status_t status, void *slot)
{
	check("ucp_tag_send_nbx", status);
	run.tx_free[run.tx_count++] = (size_t)(uintptr_t)slot;
	ucp_request_free(request);
}

/* The status of a post that is over; false for a post that calls its callback later. */
static inline bool is_over(const char *call, ucs_status_ptr_t request)
{
	if (UCS_PTR_IS_ERR(request))
		check(call, UCS_PTR_STATUS(request));
	return !request;
}

static inline void post_recv(size_t slot, size_t length, uint64_t tag)
{
	ucp_tag_recv_info_t info;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_RECV_INFO,
		.cb.recv = on_received,
		.user_data = (void *)(uintptr_t)slot,
		.recv_info.tag_info = &info,
	};
	char *buf = run.rx + slot * run.stride;
	endpoint.expected[slot] = length;
	if (is_over("ucp_tag_recv_nbx", ucp_tag_recv_nbx(endpoint.worker, buf, length, tag,
							  ~(ucp_tag_t)0, &param)))
		record_received(slot, info.length);
}

static inline void post_send(size_t slot, size_t length, uint64_t tag)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = on_sent,
		.user_data = (void *)(uintptr_t)slot,
	};
	char *buf = run.tx + slot * run.stride;
	if (is_over("ucp_tag_send_nbx", ucp_tag_send_nbx(endpoint.ep, buf, length, tag, &param)))
		run.tx_free[run.tx_count++] = slot;
}

static inline void inject(size_t slot, size_t length, uint64_t tag)
{
	(void)slot, (void)length, (void)tag;
	fail_with("inject", "UCX has no such call");
}

/* Moves the worker on. Its callbacks return the buffers, however many there are. */
static inline void read_completions(size_t room, size_t expected)
{
	(void)room, (void)expected;
	if (!ucp_worker_progress(endpoint.worker))
		rest();
}

/* One-sided operations. */

static void on_completed(void *request, ucs_status_t status, void *call)
{
	check(call, status);
	endpoint.completed++;
	ucp_request_free(request);
}

static void on_exchanged(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
			 void *call)
{
	(void)info;
	on_completed(request, status, call);
}

static inline void poll_target(void)
{
	ucp_worker_progress(endpoint.worker);
}

static inline void complete(size_t count)
{
	while (endpoint.completed < count)
		if (!ucp_worker_progress(endpoint.worker))
			rest();
	endpoint.completed -= count;
}

static inline ucp_request_param_t one_sided_param(const char *call)
{
	return (ucp_request_param_t){
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = on_completed,
		.user_data = (void *)(uintptr_t)call,
	};
}

/* Sends bytes to the peer and receives as many, which also synchronises both processes. */
static void exchange(void *own, void *remote, size_t length)
{
	ucp_request_param_t send = one_sided_param("ucp_tag_send_nbx"), receive = send;
	receive.cb.recv = on_exchanged;
	endpoint.completed += is_over("ucp_tag_recv_nbx",
				      ucp_tag_recv_nbx(endpoint.worker, remote, length,
						       TAG_SYNCHRONISE, ~(ucp_tag_t)0, &receive));
	endpoint.completed += is_over("ucp_tag_send_nbx", ucp_tag_send_nbx(endpoint.ep, own, length,
									   TAG_SYNCHRONISE, &send));
	complete(2);
}

/* Memory that a process lets its peer read and write. */
struct remote_memory {
	uint64_t addr, length;
	char rkey[1024];
};

/* Exchanges the keys of both processes' memory once. */
static void exchange_memory(void)
{
	struct remote_memory own = { .addr = (uint64_t)(uintptr_t)run.region }, remote;
	void *rkey;
	size_t length;
	if (endpoint.rkey)
		return;
	check("ucp_rkey_pack", ucp_rkey_pack(endpoint.context, endpoint.memory, &rkey, &length));
	if (length > sizeof(own.rkey))
		fail_with("ucp_rkey_pack", "the key is too long");
	memcpy(own.rkey, rkey, length);
	ucp_rkey_buffer_release(rkey);
	exchange(&own, &remote, sizeof(own));
	endpoint.remote = remote.addr;
	check("ucp_ep_rkey_unpack", ucp_ep_rkey_unpack(endpoint.ep, remote.rkey, &endpoint.rkey));
}

static inline void post_write(size_t at)
{
	ucp_request_param_t param = one_sided_param("ucp_put_nbx");
	endpoint.completed += is_over("ucp_put_nbx",
				      ucp_put_nbx(endpoint.ep, run.local + at, run.order.size,
						  endpoint.remote + at, endpoint.rkey, &param));
}

static inline void post_read(size_t at)
{
	ucp_request_param_t param = one_sided_param("ucp_get_nbx");
	endpoint.completed += is_over("ucp_get_nbx",
				      ucp_get_nbx(endpoint.ep, run.local + at, run.order.size,
						  endpoint.remote + at, endpoint.rkey, &param));
}

static inline void post_atomic(size_t at, bool fetch)
{
	ucp_request_param_t param = one_sided_param("ucp_atomic_op_nbx");
	param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
	param.datatype = ucp_dt_make_contig(run.order.size);
	if (fetch) {
		param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
		param.reply_buffer = run.local + 32;
	}
	endpoint.completed += is_over("ucp_atomic_op_nbx",
				      ucp_atomic_op_nbx(endpoint.ep, UCP_ATOMIC_OP_ADD, run.local, 1,
							endpoint.remote + at, endpoint.rkey, &param));
}

static inline void post_data(void)
{
	fail_with("rma_write_pingpong", "UCX has no write with remote data");
}

static inline void wait_for_data(bool is_written)
{
	(void)is_written;
}

#include "loops.h"
