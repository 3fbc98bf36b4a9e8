/* What fi_tostr calls the enumerators of the newest headers: one line for each that it does not know. */
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
