/* Wrong calls return their errno and damage nothing. */
#include "common.h"

/* Every slot of a table has a function: the inline functions do not check for NULL. */
static void check_slots(const void *table, const char *name)
{
	const size_t *words = table;
	CHECK(words[0] % sizeof(void *) == 0 && words[0] >= 2 * sizeof(void *));
	for (size_t slot = 1; slot < words[0] / sizeof(void *); slot++) {
		if (!words[slot])
			fprintf(stderr, "slot %zu of %s is empty\n", slot, name);
		CHECK(words[slot]);
	}
}
#define SLOTS(table) check_slots(table, #table)

static void discovery(void)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL, *copy;
	char *long_name = calloc(1, 1 << 20);
	memset(long_name, 'x', (1 << 20) - 1);
	IS(fi_getinfo(FI_VERSION(99, 0), NULL, NULL, 0, NULL, &info), -FI_ENOSYS);
	IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 1, NULL, &info), -FI_EBADFLAGS);
	IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, NULL), -FI_EINVAL);
	OK(fi_getinfo(0, NULL, NULL, 0, NULL, &info));
	fi_freeinfo(info);
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &info));
	CHECK(info->fabric_attr->prov_name);
	fi_freeinfo(info);
	hints->fabric_attr->prov_name = strdup("no-such-provider");
	IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = long_name;
	IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = NULL;
	hints->ep_attr->type = 77;
	IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->size = SIZE_MAX;
	IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
	hints->tx_attr->size = 0;
	hints->ep_attr->auth_key_size = SIZE_MAX;
	IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_EINVAL);
	hints->ep_attr->auth_key_size = 0;
	copy = fi_dupinfo(hints);
	IS(copy->ep_attr->type, FI_EP_RDM);
	fi_freeinfo(copy);
	fi_freeinfo(hints);
	fi_freeinfo(NULL);

	/* Hints whose parts lie in memory of exactly their size, as in some programs. */
	hints = calloc(1, sizeof *hints);
	hints->domain_attr = calloc(1, sizeof *hints->domain_attr);
	hints->ep_attr = calloc(1, sizeof *hints->ep_attr);
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	fi_freeinfo(info);
	free(hints->domain_attr);
	free(hints->ep_attr);
	free(hints);
}

static void objects(const char *provider)
{
	struct side side = {0};
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_eq *eq;
	struct fid_cntr *cntr;
	struct fid_ep *ep, *alias, *bare;
	struct fid_mr *mr;
	struct fid_pep *pep;
	struct fid_wait *wait;
	struct fid_poll *poll_set;
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_eq_attr eq_attr = {0};
	struct fi_fabric_attr none = {0}, unknown = {.name = "shm", .prov_name = "nobody"};
	uint64_t flags = FI_TRANSMIT;
	char buf[64];
	size_t size = 0, len = sizeof size;

	IS(fi_fabric(NULL, &fabric, NULL), -FI_EINVAL);
	IS(fi_fabric(&none, &fabric, NULL), -FI_EINVAL);
	IS(fi_fabric(&unknown, &fabric, NULL), -FI_ENODEV);
	open_side(&side, hints_for(provider, FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC), FI_WAIT_NONE);
	SLOTS(side.fabric->fid.ops);
	SLOTS(side.fabric->ops);
	SLOTS(side.domain->fid.ops);
	SLOTS(side.domain->ops);
	SLOTS(side.domain->mr);
	SLOTS(side.cq->fid.ops);
	SLOTS(side.cq->ops);
	SLOTS(side.av->fid.ops);
	SLOTS(side.av->ops);
	SLOTS(side.ep->fid.ops);
	SLOTS(side.ep->ops);
	SLOTS(side.ep->cm);
	SLOTS(side.ep->msg);
	SLOTS(side.ep->rma);
	SLOTS(side.ep->tagged);
	SLOTS(side.ep->atomic);
	SLOTS(side.ep->collective);

	/* Missing and strange arguments. */
	IS(fi_domain(side.fabric, NULL, &domain, NULL), -FI_EINVAL);
	IS(fi_domain(side.fabric, side.info, NULL, NULL), -FI_EINVAL);
	IS(fi_domain2(side.fabric, side.info, &domain, FI_PEER, NULL), -FI_EBADFLAGS);
	IS(fi_cq_open(side.domain, NULL, &cq, NULL), -FI_EINVAL);
	cq_attr.format = 99;
	IS(fi_cq_open(side.domain, &cq_attr, &cq, NULL), -FI_EINVAL);
	cq_attr.format = FI_CQ_FORMAT_TAGGED;
	cq_attr.wait_obj = FI_WAIT_MUTEX_COND;
	IS(fi_cq_open(side.domain, &cq_attr, &cq, NULL), -FI_ENOSYS);
	cq_attr.wait_obj = FI_WAIT_NONE;
	cq_attr.size = SIZE_MAX;
	IS(fi_cq_open(side.domain, &cq_attr, &cq, NULL), -FI_EINVAL);
	IS(fi_av_open(side.domain, NULL, &av, NULL), -FI_EINVAL);
	av_attr.type = 9;
	IS(fi_av_open(side.domain, &av_attr, &av, NULL), -FI_EINVAL);
	av_attr.type = FI_AV_MAP;
	av_attr.flags = FI_READ;
	IS(fi_av_open(side.domain, &av_attr, &av, NULL), -FI_EINVAL);
	av_attr.name = "nobody has made this one";
	IS(fi_av_open(side.domain, &av_attr, &av, NULL), -FI_ENOENT);
	av_attr.name = "";
	av_attr.flags = 0;
	IS(fi_av_open(side.domain, &av_attr, &av, NULL), -FI_EINVAL);
	av_attr.flags = FI_EVENT;
	IS(fi_av_open(side.domain, &av_attr, &av, NULL), -FI_ENOSYS);
	av_attr.name = NULL;
	IS(fi_endpoint(side.domain, NULL, &ep, NULL), -FI_EINVAL);
	IS(fi_scalable_ep(side.domain, NULL, &ep, NULL), -FI_EINVAL);
	IS(fi_scalable_ep(side.domain, side.info, NULL, NULL), -FI_EINVAL);
	side.info->ep_attr->rx_ctx_cnt = 1 << 20;
	IS(fi_scalable_ep(side.domain, side.info, &ep, NULL), -FI_EINVAL);
	side.info->ep_attr->rx_ctx_cnt = 1;
	struct fi_wait_attr wait_attr = {.wait_obj = FI_WAIT_FD};
	struct fi_poll_attr poll_attr = {.flags = 1};
	IS(fi_wait_open(side.fabric, NULL, &wait), -FI_EINVAL);
	IS(fi_wait_open(side.fabric, &wait_attr, &wait), -FI_ENOSYS);
	wait_attr.wait_obj = FI_WAIT_UNSPEC;
	IS(fi_wait_open(side.fabric, &wait_attr, NULL), -FI_EINVAL);
	wait_attr.flags = 1;
	IS(fi_wait_open(side.fabric, &wait_attr, &wait), -FI_EBADFLAGS);
	IS(fi_poll_open(side.domain, &poll_attr, &poll_set), -FI_EBADFLAGS);
	IS(fi_poll_open(side.domain, NULL, NULL), -FI_EINVAL);
	IS(fi_query_collective(side.domain, FI_BARRIER, NULL, 0), -FI_EINVAL);
	IS(fi_mr_reg(side.domain, NULL, 0, FI_SEND, 0, 0, 1, &mr, NULL), -FI_EBADFLAGS);
	IS(fi_mr_reg(side.domain, buf, 8, 1, 0, 0, 0, &mr, NULL), -FI_EINVAL);
	IS(fi_mr_regattr(side.domain, NULL, 0, &mr), -FI_EINVAL);
	IS(fi_mr_regv(side.domain, NULL, SIZE_MAX, FI_SEND, 0, 0, 0, &mr, NULL), -FI_EINVAL);
	if (!strcmp(provider, "shm")) {
		OK(fi_eq_open(side.fabric, &eq_attr, &eq, NULL));
		SLOTS(eq->ops);
		OK(fi_passive_ep(side.fabric, side.info, &pep, NULL));
		SLOTS(pep->ops);
		SLOTS(pep->cm);
		OK(fi_pep_bind(pep, &eq->fid, 0));
		IS(fi_pep_bind(pep, &eq->fid, 0), -FI_EINVAL);
		IS(fi_close(&eq->fid), -FI_EBUSY);
		IS(fi_listen(pep), -FI_ENOSYS);
		OK(fi_close(&pep->fid));
		OK(fi_close(&eq->fid));
	}

	/* Bindings. */
	IS(fi_ep_bind(side.ep, NULL, 0), -FI_EINVAL);
	IS(fi_ep_bind(side.ep, &side.domain->fid, 0), -FI_EINVAL);
	IS(fi_ep_bind(side.ep, &side.av->fid, 0), -FI_EINVAL);
	IS(fi_ep_bind(side.ep, &side.cq->fid, FI_RECV), -FI_EINVAL);
	IS(fi_ep_bind(side.ep, &side.cq->fid, 1), -FI_EBADFLAGS);
	OK(fi_endpoint(side.domain, side.info, &bare, NULL));
	IS(fi_enable(bare), -FI_ENOAV);
	OK(fi_ep_bind(bare, &side.av->fid, 0));
	IS(fi_enable(bare), -FI_ENOCQ);
	OK(fi_close(&bare->fid));
	OK(fi_enable(side.ep));

	/* Options and commands. */
	OK(fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, &len));
	IS(len, sizeof size);
	len = 1;
	IS(fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, &len), -FI_ETOOSMALL);
	IS(fi_getopt(&side.ep->fid, 7, FI_OPT_MIN_MULTI_RECV, &size, &len), -FI_ENOPROTOOPT);
	IS(fi_getopt(&side.ep->fid, FI_OPT_ENDPOINT, 12345, &size, &len), -FI_ENOPROTOOPT);
	IS(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, 3), -FI_EINVAL);
	IS(fi_setopt(&side.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, NULL, 8), -FI_EINVAL);
	OK(fi_control(&side.ep->fid, FI_GETOPSFLAG, &flags));
	flags = FI_TRANSMIT | FI_RECV;
	IS(fi_control(&side.ep->fid, FI_GETOPSFLAG, &flags), -FI_EINVAL);
	flags = FI_TRANSMIT | (1ULL << 63);
	IS(fi_control(&side.ep->fid, FI_SETOPSFLAG, &flags), -FI_EBADFLAGS);
	IS(fi_control(&side.ep->fid, 1000, NULL), -FI_ENOSYS);
	IS(fi_control(&side.ep->fid, FI_ALIAS, NULL), -FI_EINVAL);
	OK(fi_ep_alias(side.ep, &alias, FI_TRANSMIT | FI_COMPLETION));
	IS(fi_close(&side.ep->fid), -FI_EBUSY);
	OK(fi_close(&alias->fid));
	IS(fi_open_ops(&side.ep->fid, "no such", 0, NULL, NULL), -FI_ENOSYS);

	/* Posts. */
	struct iovec iov = {buf, sizeof buf};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1};
	OK(fi_getname(&side.ep->fid, buf, (len = sizeof buf, &len)));
	IS(fi_av_insert(side.av, buf, 1, &side.peer, 0, NULL), 1);
	IS(fi_av_insert(side.av, NULL, 1, &side.peer, 0, NULL), -FI_EFAULT);
	IS(fi_av_insert(side.av, buf, 1, &side.peer, 1, NULL), -FI_EBADFLAGS);
	int errors[1] = {9};
	IS(fi_av_insert(side.av, buf, 1, NULL, FI_SYNC_ERR, errors), 1);
	IS(errors[0], 0);
	fi_addr_t unknown_peer = 99;
	IS(fi_av_remove(side.av, &unknown_peer, 1, 0), -FI_EINVAL);
	IS(fi_av_lookup(side.av, unknown_peer, buf, &len), -FI_EINVAL);
	CHECK(fi_send(side.ep, buf, 8, NULL, unknown_peer, NULL) < 0);
	IS(fi_sendmsg(side.ep, NULL, 0), -FI_EINVAL);
	IS(fi_sendmsg(side.ep, &msg, 1ULL << 62), -FI_EBADFLAGS);
	IS(fi_sendmsg(side.ep, &msg, 1ULL << 63), -FI_EBADFLAGS);
	IS(fi_sendv(side.ep, NULL, NULL, 1, side.peer, NULL), -FI_EINVAL);
	IS(fi_sendv(side.ep, &iov, NULL, SIZE_MAX, side.peer, NULL), -FI_EINVAL);
	CHECK(fi_send(side.ep, buf, SIZE_MAX, NULL, side.peer, NULL) < 0);
	IS(fi_inject(side.ep, buf, SIZE_MAX, side.peer), -FI_EMSGSIZE);
	IS(fi_inject(side.ep, NULL, 8, side.peer), -FI_EINVAL);
	CHECK(fi_atomic(side.ep, buf, 1, NULL, side.peer, 0, 0, 99, 99, NULL) == -FI_EOPNOTSUPP);
	IS(fi_join(side.ep, buf, 0, NULL, NULL), -FI_EINVAL);
	IS(fi_connect(side.ep, buf, NULL, 0), -FI_ENOSYS);
	OK(fi_inject(side.ep, NULL, 0, side.peer));

	/* Queues. */
	struct fi_cq_tagged_entry entry;
	IS(fi_cq_read(side.cq, NULL, 0), -FI_EAGAIN);
	CHECK(fi_cq_read(side.cq, NULL, 1) == -FI_EINVAL);
	IS(fi_cq_read(side.cq, &entry, SIZE_MAX / sizeof entry), -FI_EAGAIN);
	IS(fi_cq_readerr(side.cq, NULL, 0), -FI_EINVAL);
	IS(fi_cq_sread(side.cq, &entry, 1, NULL, 0), -FI_ENOSYS);
	IS(fi_trywait(side.fabric, NULL, 1), -FI_EINVAL);
	struct fid *fids[] = {&side.cq->fid, &side.ep->fid};
	IS(fi_trywait(side.fabric, fids, 2), -FI_ENOSYS);
	CHECK(fi_cq_strerror(side.cq, FI_ETRUNC, NULL, buf, sizeof buf) == buf);
	IS(fi_cntr_open(side.domain, NULL, &cntr, NULL), 0);
	SLOTS(cntr->ops);
	IS(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
	OK(fi_close(&cntr->fid));

	/* Closing in the wrong order, twice, and using a closed object. */
	IS(fi_close(&side.fabric->fid), -FI_EBUSY);
	IS(fi_close(&side.domain->fid), -FI_EBUSY);
	IS(fi_close(&side.av->fid), -FI_EBUSY);
	IS(fi_close(&side.cq->fid), -FI_EBUSY);
	close_side(&side);
	IS(fi_close(&side.ep->fid), -FI_EBADF);
	IS(fi_close(&side.domain->fid), -FI_EBADF);
	IS(fi_send(side.ep, buf, 8, NULL, side.peer, NULL), -FI_EBADF);
	IS(fi_tsend(side.ep, buf, 8, NULL, side.peer, 0, NULL), -FI_EBADF);
	IS(fi_cq_read(side.cq, &entry, 1), -FI_EBADF);
	IS(fi_cq_open(side.domain, &cq_attr, &cq, NULL), -FI_EBADF);
}

/* A receive at NULL is empty, whatever its length: programs post one where they expect no bytes. */
static void receives_at_null(const char *provider)
{
	struct side side = {0};
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error;
	struct iovec iov[2] = {{NULL, 100}, {NULL, 7}};
	struct fi_msg msg = {.msg_iov = iov, .iov_count = 2, .context = iov};
	char name[256];
	size_t len = sizeof name;
	open_side(&side, hints_for(provider, FI_MSG | FI_TAGGED), FI_WAIT_NONE);
	OK(fi_enable(side.ep));
	OK(fi_getname(&side.ep->fid, name, &len));
	IS(fi_av_insert(side.av, name, 1, &side.peer, 0, NULL), 1);
	for (int variant = 0; variant < 6; variant++) {
		bool has_bytes = variant % 2;
		if (variant / 2 == 0)
			OK(fi_recv(side.ep, NULL, 100, NULL, FI_ADDR_UNSPEC, iov));
		else if (variant / 2 == 1)
			OK(fi_trecv(side.ep, NULL, 100, NULL, FI_ADDR_UNSPEC, 5, 0, iov));
		else
			OK(fi_recvmsg(side.ep, &msg, 0));
		if (variant / 2 == 1)
			OK(fi_tinject(side.ep, name, has_bytes ? 8 : 0, side.peer, 5));
		else
			OK(fi_inject(side.ep, name, has_bytes ? 8 : 0, side.peer));
		ssize_t got;
		while ((got = fi_cq_read(side.cq, &entry, 1)) == -FI_EAGAIN)
			;
		if (!has_bytes) {
			IS(got, 1);
			CHECK(entry.op_context == iov && entry.len == 0);
			continue;
		}
		IS(got, -FI_EAVAIL);
		memset(&error, 0, sizeof error);
		IS(fi_cq_readerr(side.cq, &error, 0), 1);
		CHECK(error.op_context == iov && error.err == FI_ETRUNC && error.olen == 8);
	}
	iov[0] = (struct iovec){name, 1};
	IS(fi_recvmsg(side.ep, &msg, 0), -FI_EINVAL);
	close_side(&side);
}

/* A written value is read back. */
static void notes(const char *provider)
{
	struct fi_info *info;
	struct fi_info *hints = hints_for(provider, FI_MSG);
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fi_eq_attr attr = {.flags = FI_WRITE};
	uint32_t event = 99;
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_eq_open(fabric, &attr, &eq, NULL));
	struct fi_eq_entry note = {.fid = &fabric->fid, .context = info, .data = 7}, read;
	IS(fi_eq_write(eq, FI_NOTIFY, &note, sizeof note, 0), sizeof note);
	for (int peek = 1; peek >= 0; peek--) {
		memset(&read, 0xff, sizeof read);
		IS(fi_eq_read(eq, &event, &read, sizeof read, peek ? FI_PEEK : 0), sizeof read);
		CHECK(event == FI_NOTIFY && !memcmp(&note, &read, sizeof note));
	}
	OK(fi_close(&eq->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* Discovery returns the provider name that a program has asked for, and the fabric opens by it. */
static void other_names(void)
{
	static const char *const names[] = {"tcp;ofi_rxm", "net", "sockets"};
	for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
		struct fi_info *hints = hints_for(names[at], FI_MSG | FI_TAGGED);
		struct side side = {0};
		hints->domain_attr->name = strdup("lo");
		open_side(&side, hints, FI_WAIT_NONE);
		CHECK(!strcmp(side.info->fabric_attr->prov_name, names[at]));
		OK(fi_enable(side.ep));
		close_side(&side);
	}
	struct fi_info *info, *hints = hints_for("udp;ofi_rxd", FI_MSG);
	IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
	fi_freeinfo(hints);
}

/* Without hints, no part has a capability that programs do not expect there. */
static void expected_capabilities(void)
{
	const uint64_t tx = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_MULTICAST | FI_NAMED_RX_CTX |
			    FI_HMEM | FI_SEND | FI_READ | FI_WRITE | FI_TRIGGER | FI_FENCE | FI_RMA_PMEM;
	const uint64_t rx = FI_MSG | FI_RMA | FI_TAGGED | FI_ATOMIC | FI_DIRECTED_RECV |
			    FI_VARIABLE_MSG | FI_HMEM | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE |
			    FI_RMA_PMEM | FI_SOURCE | FI_RMA_EVENT | FI_MULTI_RECV | FI_TRIGGER;
	struct fi_info *info;
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info));
	for (struct fi_info *each = info; each; each = each->next) {
		uint64_t more = (each->tx_attr->caps & ~tx) | (each->rx_attr->caps & ~rx);
		if (more)
			fprintf(stderr, "%s: %s\n", each->fabric_attr->prov_name, fi_tostr(&more, FI_TYPE_CAPS));
		CHECK(!more);
	}
	fi_freeinfo(info);
}

/* Members of newer headers are printed, except where the library cannot know whether the program has
 * them. */
static void newer_fields(const char *provider)
{
	struct fi_info *info, *hints = hints_for(provider, FI_MSG);
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(strstr(fi_tostr(info, FI_TYPE_INFO), " max_cntr_value: 18446744073709551615\n"));
	CHECK(strstr(fi_tostr(info, FI_TYPE_INFO), " max_err_cntr_value: 18446744073709551615\n"));
	CHECK(!strstr(fi_tostr(info->domain_attr, FI_TYPE_DOMAIN_ATTR), "cntr_value"));
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void texts(void)
{
	char small[4], *text;
	uint64_t caps = FI_MSG | FI_TAGGED;
	CHECK(!strcmp(fi_strerror(FI_ENOENT), strerror(ENOENT)));
	CHECK(!strcmp(fi_strerror(-FI_ETRUNC), fi_strerror(FI_ETRUNC)));
	CHECK(fi_strerror(INT32_MIN) && fi_strerror(100000));
	CHECK(!strcmp(fi_tostr(&caps, FI_TYPE_CAPS), "FI_MSG, FI_TAGGED"));
	CHECK(fi_tostr_r(small, sizeof small, &caps, FI_TYPE_CAPS) == small && !strcmp(small, "FI_"));
	CHECK(!fi_tostr_r(small, 0, &caps, FI_TYPE_CAPS) && !fi_tostr_r(NULL, 4, &caps, FI_TYPE_CAPS));
	CHECK(!fi_tostr(NULL, FI_TYPE_CAPS) && !fi_tostr(&caps, 9999));
	text = fi_tostr("1", FI_TYPE_VERSION);
	CHECK(text && strlen(text) > 2);
	struct fi_param *params;
	int count = 0;
	OK(fi_getparams(&params, &count));
	CHECK(count > 5 && !params[count].name && !strncmp(params[0].name, "FI_", 3));
	fi_freeparams(params);
	IS(fi_getparams(NULL, NULL), -FI_EINVAL);
	struct fid *fid;
	IS(fi_open(FI_VERSION(1, 17), "mr_cache", NULL, 0, 0, &fid, NULL), -FI_ENOSYS);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	discovery();
	texts();
	objects(argv[1]);
	receives_at_null(argv[1]);
	notes(argv[1]);
	newer_fields(argv[1]);
	expected_capabilities();
	other_names();
	return 0;
}
