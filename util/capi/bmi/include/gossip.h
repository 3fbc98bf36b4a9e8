/*
 * gossip: the log of the library and of an application.
 *
 * Functions return 0, or a negative number of <errno.h>.
 */
#ifndef GOSSIP_H
#define GOSSIP_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <syslog.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The size of an application's longest message in bytes, with its terminating zero; longer ones are
 * cut. */
#define GOSSIP_BUF_SIZE 1024

/* The stamp in front of a message: only its kind, the time, the date and the time, or the time and the
 * thread. */
enum gossip_logstamp {
    GOSSIP_LOGSTAMP_NONE = 0,
    GOSSIP_LOGSTAMP_USEC = 1,
    GOSSIP_LOGSTAMP_DATETIME = 2,
    GOSSIP_LOGSTAMP_THREAD = 3
};
#define GOSSIP_LOGSTAMP_DEFAULT GOSSIP_LOGSTAMP_USEC

/* Set the destination of messages from now on: the application's, and the library's at the levels of
 * FI_LOG_LEVEL, which include warnings and errors. A file is opened as fopen(3) does. With syslog(3),
 * debug messages have this priority, and errors LOG_ERR. */
int gossip_enable_stderr(void);
int gossip_enable_stdout(void);
int gossip_enable_file(const char *filename, const char *mode);
int gossip_enable_syslog(int priority);
/* Closes the destination and disables debug messages; errors go to the standard error stream. */
int gossip_disable(void);
/* Sets the parts whose debug messages are printed; `debug_on` is 0 or 1. */
int gossip_set_debug_mask(int debug_on, uint64_t mask);
int gossip_get_debug_mask(int *debug_on, uint64_t *mask);
int gossip_set_logstamp(enum gossip_logstamp stamp);
/* Prints the call stack. */
void gossip_backtrace(void);

/* Prints a text: 'E' for an error, 'D' for a debug message. */
int gossip_print(char prefix, const char *text);

#if defined(__GNUC__)
#define GOSSIP_FORMAT(text, first) __attribute__((format(printf, text, first), unused))
#else
#define GOSSIP_FORMAT(text, first)
#endif

GOSSIP_FORMAT(2, 0)
static inline int gossip_print_va(char prefix, const char *format, va_list arguments)
{
    char text[GOSSIP_BUF_SIZE];
    if (vsnprintf(text, sizeof text, format, arguments) < 0)
        text[0] = 0;
    return gossip_print(prefix, text);
}

GOSSIP_FORMAT(2, 3)
static inline int gossip_print_format(char prefix, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int status = gossip_print_va(prefix, format, arguments);
    va_end(arguments);
    return status;
}

static inline int gossip_debug_enabled(uint64_t mask)
{
    uint64_t enabled = 0;
    gossip_get_debug_mask(0, &enabled);
    return (enabled & mask) != 0;
}

#ifdef __cplusplus
}
#endif

/* Prints an error of the application, whatever the mask is. */
#define gossip_err(...) gossip_print_format('E', __VA_ARGS__)
/* Prints a debug message of the application, if a part in `mask` is enabled. */
#define gossip_debug(mask, ...)                                                                    \
    do {                                                                                           \
        if (gossip_debug_enabled(mask))                                                            \
            gossip_print_format('D', __VA_ARGS__);                                                 \
    } while (0)

/* The same with the file and line of the source; an error also prints the call stack. */
#define gossip_ldebug(mask, ...)                                                                   \
    do {                                                                                           \
        if (gossip_debug_enabled(mask))                                                            \
            GOSSIP_AT('D', __VA_ARGS__);                                                           \
    } while (0)
#define gossip_lerr(...)                                                                           \
    do {                                                                                           \
        GOSSIP_AT('E', __VA_ARGS__);                                                               \
        gossip_backtrace();                                                                        \
    } while (0)
#define GOSSIP_AT(prefix, ...)                                                                     \
    do {                                                                                           \
        char gossip_text[GOSSIP_BUF_SIZE];                                                         \
        snprintf(gossip_text, sizeof gossip_text, __VA_ARGS__);                                    \
        gossip_print_format(prefix, "%s line %d: %s", __FILE__, __LINE__, gossip_text);            \
    } while (0)

#define GOSSIP_NO_DEBUG ((uint64_t)0)
#define GOSSIP_BMI_DEBUG_ALL ((uint64_t)0xffffffffffffffff)
#define BMI_DEBUG_ALL GOSSIP_BMI_DEBUG_ALL

#endif
