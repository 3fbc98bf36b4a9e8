/* Common code of the test programs: a failed check prints its line. */
#ifndef COMMON_H
#define COMMON_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Requires that a call returns exactly this value. */
#define EXPECT(call, expected)                                                                       \
    do {                                                                                           \
        long long got = (call), wanted = (expected);                                                 \
        if (got != wanted) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %llx, not %llx\n", __FILE__, __LINE__, #call, got,       \
                    wanted);                                                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline unsigned char byte_at(long offset, int seed)
{
    return (unsigned char)(offset % 251 + seed);
}

static inline void fill(unsigned char *buffer, long size, int seed)
{
    for (long i = 0; i < size; i++)
        buffer[i] = byte_at(i, seed);
}

static inline int is_filled(const unsigned char *buffer, long size, int seed)
{
    for (long i = 0; i < size; i++)
        if (buffer[i] != byte_at(i, seed))
            return 0;
    return 1;
}

#endif
