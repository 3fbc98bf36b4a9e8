/* Functions that libfabric's providers call: parameters and log messages, with arguments behind a
 * format. */
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "common.h"

int main(void)
{
	struct fi_provider demo = {.name = "demo"};
	struct fi_param *params;
	int count, found = 0, number = 0;
	size_t size = 0;
	char *text = NULL;
	IS(fi_param_get(&demo, "size", &size), -FI_ENOENT);
	OK(fi_param_define(&demo, "size", FI_PARAM_SIZE_T, "a size of %d to %s, %.1f in all", 3, "many",
			   2.5));
	OK(fi_param_define(&demo, "unset", FI_PARAM_INT, "never set"));
	OK(fi_param_define(&demo, "name", FI_PARAM_STRING, "a name"));
	OK(fi_param_define(&demo, "wrong", FI_PARAM_BOOL, "a word that is none"));
	OK(fi_param_get(&demo, "size", &size));
	IS(size, 4096);
	OK(fi_param_get(&demo, "name", &text));
	CHECK(!strcmp(text, "somebody"));
	IS(fi_param_get(&demo, "unset", &number), -FI_ENODATA);
	IS(fi_param_get(&demo, "wrong", &number), -FI_EINVAL);
	OK(fi_getparams(&params, &count));
	for (int at = 0; at < count; at++)
		if (!strcmp(params[at].name, "FI_DEMO_SIZE")) {
			found++;
			CHECK(!strcmp(params[at].help_string, "a size of 3 to many, 2.5 in all"));
			CHECK(!strcmp(params[at].value, "4k"));
			IS(params[at].type, FI_PARAM_SIZE_T);
		}
	IS(found, 1);
	fi_freeparams(params);
	CHECK(fi_log_enabled(&demo, FI_LOG_WARN, FI_LOG_EP_CTRL));
	CHECK(!fi_log_enabled(&demo, FI_LOG_DEBUG, FI_LOG_EP_CTRL));
	FI_WARN(&demo, FI_LOG_EP_CTRL, "%s %d %lld %c %.2f %s\n", "six", 1, 2LL, 'c', 0.25, "words");
	uint64_t when = 0;
	IS(fi_log_ready(&demo, FI_LOG_WARN, FI_LOG_CQ, &when), 1);
	IS(fi_log_ready(&demo, FI_LOG_WARN, FI_LOG_CQ, &when), 0);
	return 0;
}
