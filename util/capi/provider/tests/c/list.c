/* Prints the providers of a libfabric, in its order, and its version. */

#include <rdma/fabric.h>
#include <stdio.h>

int main(void)
{
	struct fi_info *info, *next;
	int status;

	status = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info);
	if (status) {
		fprintf(stderr, "fi_getinfo: %d\n", status);
		return 1;
	}
	for (next = info; next; next = next->next)
		printf("provider: %s\n", next->fabric_attr->prov_name);
	printf("library: %s\n", fi_tostr("1", FI_TYPE_VERSION));
	fi_freeinfo(info);
	return 0;
}
