/* Prints sizes and offsets in C: one line each, `structure member offset` or `structure = size`. */
#include "common.h"

#define S(type) printf("%s = %zu\n", #type, sizeof(struct type))
#define M(type, member) printf("%s %s %zu\n", #type, #member, offsetof(struct type, member))

int main(void)
{
#include "members.h"
	return 0;
}
