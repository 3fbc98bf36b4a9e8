/* Prints the texts of fi_tostr for the data that all versions of the library print. */
#include "common.h"

#define ENUM(type, most)                                                     \
	for (uint32_t value = 0; value < (most); value++)                    \
	printf("%s %u: %s\n", #type, value, fi_tostr(&value, type))
#define SET(type, ...)                                                            \
	do {                                                                      \
		uint64_t bits[] = {__VA_ARGS__};                                  \
		for (size_t at = 0; at < sizeof bits / sizeof *bits; at++)        \
			printf("%s %zu: %s\n", #type, at, fi_tostr(bits + at, type)); \
	} while (0)

int main(void)
{
	struct fi_info *info = fi_allocinfo();
	ENUM(FI_TYPE_EP_TYPE, 4);
	ENUM(FI_TYPE_THREADING, 6);
	ENUM(FI_TYPE_PROGRESS, 3);
	ENUM(FI_TYPE_AV_TYPE, 3);
	ENUM(FI_TYPE_ATOMIC_TYPE, 14);
	ENUM(FI_TYPE_ATOMIC_OP, 19);
	ENUM(FI_TYPE_EQ_EVENT, 7);
	ENUM(FI_TYPE_COLLECTIVE_OP, 9);
	ENUM(FI_TYPE_CQ_FORMAT, 5);
	SET(FI_TYPE_CAPS, FI_MSG, FI_RMA | FI_ATOMIC, FI_SEND | FI_RECV | FI_REMOTE_WRITE,
	    FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT | FI_MULTI_RECV);
	SET(FI_TYPE_MODE, FI_CONTEXT, FI_CONTEXT2, FI_RX_CQ_DATA | FI_MSG_PREFIX);
	SET(FI_TYPE_MSG_ORDER, FI_ORDER_NONE, FI_ORDER_SAS, FI_ORDER_RMA_WAW);
	SET(FI_TYPE_OP_FLAGS, FI_COMPLETION, FI_INJECT | FI_DELIVERY_COMPLETE, FI_FENCE | FI_MORE);
	uint32_t mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	printf("%s\n", fi_tostr(&mr_mode, FI_TYPE_MR_MODE));
	info->caps = FI_MSG | FI_TAGGED;
	info->mode = FI_CONTEXT;
	info->addr_format = FI_ADDR_STR;
	info->src_addr = strdup("fi_shm://1");
	info->src_addrlen = 11;
	info->tx_attr->caps = FI_MSG | FI_SEND;
	info->tx_attr->op_flags = FI_COMPLETION;
	info->tx_attr->inject_size = 64;
	info->tx_attr->size = 7;
	info->rx_attr->msg_order = FI_ORDER_SAS;
	info->rx_attr->iov_limit = 3;
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->protocol = FI_PROTO_SHM;
	info->ep_attr->max_msg_size = SIZE_MAX;
	info->domain_attr->name = strdup("d");
	info->domain_attr->threading = FI_THREAD_DOMAIN;
	info->domain_attr->mr_mode = FI_MR_LOCAL;
	info->fabric_attr->name = strdup("f");
	info->fabric_attr->prov_name = strdup("p");
	info->fabric_attr->prov_version = FI_VERSION(117, 2);
	info->fabric_attr->api_version = FI_VERSION(1, 5);
	printf("%s", fi_tostr(info, FI_TYPE_INFO));
	printf("%s", fi_tostr(info->tx_attr, FI_TYPE_TX_ATTR));
	printf("%s", fi_tostr(info->rx_attr, FI_TYPE_RX_ATTR));
	printf("%s", fi_tostr(info->ep_attr, FI_TYPE_EP_ATTR));
	printf("%s", fi_tostr(info->domain_attr, FI_TYPE_DOMAIN_ATTR));
	printf("%s", fi_tostr(info->fabric_attr, FI_TYPE_FABRIC_ATTR));
	for (int number = 1; number < 270; number++)
		if (number < 134 || number > 255)
			printf("%d: %s\n", number, fi_strerror(number));
	fi_freeinfo(info);
	return 0;
}
