/*
 * gossip: which of the library's messages are heard.
 */
#ifndef GOSSIP_H
#define GOSSIP_H

#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Messages go to the standard error stream, as FI_LOG_LEVEL asks for. There is one log: the other
 * two do the same. */
int gossip_enable_stderr(void);
int gossip_enable_file(const char *filename, const char *mode);
int gossip_enable_syslog(int priority);
/* Which parts' debug messages are heard. */
int gossip_set_debug_mask(int debug_on, uint64_t mask);
int gossip_get_debug_mask(int *debug_on, uint64_t *mask);
int gossip_disable(void);

#ifdef __cplusplus
}
#endif

#define GOSSIP_NO_DEBUG ((uint64_t)0)
#define GOSSIP_BMI_DEBUG_ALL ((uint64_t)0xffffffffffffffff)
#define BMI_DEBUG_ALL GOSSIP_BMI_DEBUG_ALL

/* An application's own messages. */
#define gossip_err(...) fprintf(stderr, __VA_ARGS__)
#define gossip_lerr(...) fprintf(stderr, __VA_ARGS__)
#define gossip_debug(mask, ...)                                                                    \
    do {                                                                                           \
        uint64_t gossip_heard = 0;                                                                 \
        gossip_get_debug_mask(0, &gossip_heard);                                                   \
        if (gossip_heard & (mask))                                                                 \
            fprintf(stderr, __VA_ARGS__);                                                          \
    } while (0)

#endif
