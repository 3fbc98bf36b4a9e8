/* Compares the texts of fi_tostr with the enumerators of the newest headers: prints a line for each
 * enumerator without its text. */
#include "common.h"

#define E(kind, number, name)                                                     \
	do {                                                                      \
		uint32_t value = (number);                                        \
		const char *text = fi_tostr(&value, (enum fi_type)(kind));        \
		if (!text || strcmp(text, name))                                  \
			printf("%d %d: %s, not %s\n", kind, number, text ? text : "", name); \
	} while (0)

int main(void)
{
#include "enumerators.h"
	return 0;
}
