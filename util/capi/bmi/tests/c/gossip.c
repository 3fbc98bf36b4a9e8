/* gossip: to a file, to the standard streams and to the system's log. The arguments are a URL at which
 * no server listens and the name of a file that does not exist. */
#include "bmi.h"
#include "common.h"
#include "gossip.h"

#include <errno.h>
#include <stdarg.h>
#include <syslog.h>

enum { CONTROL = 1 << 9, OWN = 1 << 20, OTHER = 1 << 21 };

/* Replaces the system's log: the library calls this function. */
static char logged[4096];
static int logged_priority;

void syslog(int priority, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(logged, sizeof logged, format, arguments);
    va_end(arguments);
    logged_priority = priority;
}

static const char *content_of(const char *name)
{
    static char content[1 << 16];
    FILE *file = fopen(name, "r");
    CHECK(file);
    content[fread(content, 1, sizeof content - 1, file)] = 0;
    fclose(file);
    return content;
}

/* The content of a file that gossip has just opened. */
static const char *begin(const char *name, enum gossip_logstamp stamp, const char *text)
{
    EXPECT(gossip_enable_file(name, "w"), 0);
    EXPECT(gossip_set_logstamp(stamp), 0);
    EXPECT(gossip_err("%s %d", text, 7), 0);
    return content_of(name);
}

static void prints_to_a_file(const char *name)
{
    BMI_addr_t addr;
    EXPECT(gossip_enable_file(name, "w"), 0);
    EXPECT(gossip_set_logstamp(GOSSIP_LOGSTAMP_NONE), 0);
    /* The library's own errors are among the messages. */
    EXPECT(BMI_addr_lookup(&addr, "bogus-in-file"), -BMI_ENOPROTOOPT);
    CHECK(strstr(content_of(name), "[E] bmi:core: address \"bogus-in-file\": expected scheme"));
    gossip_err("own %s %d\n", "error", 7);
    CHECK(strstr(content_of(name), "\n[E] own error 7\n"));
    gossip_lerr("placed %d\n", 8);
    CHECK(strstr(content_of(name), "gossip.c line "));
    CHECK(strstr(content_of(name), ": placed 8\n[E] \t[bt] "));

    /* Mode "a" keeps a file's content, and mode "w" does not. */
    EXPECT(gossip_enable_file(name, "a"), 0);
    gossip_err("appended\n");
    CHECK(strstr(content_of(name), "own error 7\n") && strstr(content_of(name), "[E] appended\n"));
    EXPECT(gossip_enable_file(name, "w"), 0);
    EXPECT(strlen(content_of(name)), 0);

    /* A file that cannot be opened does not change the facility. */
    EXPECT(gossip_enable_file("/no/such/directory/log", "w"), -ENOENT);
    EXPECT(gossip_enable_file(name, "r"), -EINVAL);
    EXPECT(gossip_enable_file(NULL, "w"), -EINVAL);
    EXPECT(gossip_enable_file(name, NULL), -EINVAL);
    gossip_err("still\n");
    CHECK(strcmp(content_of(name), "[E] still\n") == 0);
}

static void prints_what_the_mask_asks_for(const char *name)
{
    EXPECT(gossip_enable_file(name, "w"), 0);
    gossip_debug(OWN, "silent\n");
    gossip_ldebug(OWN, "silent\n");
    EXPECT(gossip_set_debug_mask(2, OWN), -EINVAL);
    EXPECT(gossip_set_debug_mask(1, OWN), 0);
    CHECK(gossip_debug_enabled(OWN) && !gossip_debug_enabled(OTHER));
    gossip_debug(OTHER, "silent\n");
    gossip_debug(OWN, "heard %d\n", 9);
    gossip_ldebug(OWN, "placed %d\n", 10);
    const char *content = content_of(name);
    CHECK(!strstr(content, "silent") && strncmp(content, "[D] heard 9\n[D] ", 16) == 0);
    CHECK(strstr(content, "gossip.c line ") && strstr(content, ": placed 10\n"));
    EXPECT(gossip_set_debug_mask(0, OWN), 0);
    CHECK(!gossip_debug_enabled(OWN));
}

/* The library logs the failure of an operation as a debug message. */
static void prints_debug_messages_of_the_library(const char *name, const char *url)
{
    BMI_addr_t addr;
    bmi_context_id context;
    bmi_op_id_t id;
    bmi_error_code_t error;
    bmi_size_t size;
    int count = 0;
    EXPECT(gossip_enable_file(name, "w"), 0);
    EXPECT(gossip_set_debug_mask(1, GOSSIP_BMI_DEBUG_ALL), 0);
    EXPECT(BMI_addr_lookup(&addr, url), 0);
    EXPECT(BMI_open_context(&context), 0);
    EXPECT(BMI_post_sendunexpected(&id, addr, "x", 1, BMI_EXT_ALLOC, 1, NULL, context, NULL), 0);
    while (!count)
        CHECK(BMI_test(id, &count, &error, &size, NULL, 10, context) >= 0);
    EXPECT(error, -BMI_ECONNREFUSED);
    CHECK(strstr(content_of(name), "[D] bmi: operation "));
    EXPECT(gossip_set_debug_mask(0, 0), 0);
    BMI_close_context(context);
}

static void stamps_messages(const char *name)
{
    int a, b, c, d, e, end = 0;
    unsigned long thread;
    const char *content = begin(name, GOSSIP_LOGSTAMP_USEC, "usec");
    CHECK(sscanf(content, "[E %2d:%2d:%2d.%6d] usec 7%n", &a, &b, &c, &d, &end) == 4 && end);
    end = 0;
    content = begin(name, GOSSIP_LOGSTAMP_DATETIME, "date");
    CHECK(sscanf(content, "[E %2d/%2d/%4d %2d:%2d:%*d] date 7%n", &a, &b, &c, &d, &e, &end) == 5);
    CHECK(end && 1 <= a && a <= 12 && 1 <= b && b <= 31 && c >= 2020);
    end = 0;
    content = begin(name, GOSSIP_LOGSTAMP_THREAD, "thread");
    CHECK(sscanf(content, "[E %2d:%2d:%2d.%6d (%lu)] thread 7%n", &a, &b, &c, &d, &thread, &end) ==
          5);
    CHECK(end && thread);
    EXPECT(gossip_set_logstamp((enum gossip_logstamp)9), -EINVAL);
    EXPECT(gossip_set_logstamp(GOSSIP_LOGSTAMP_NONE), 0);
}

static void prints_to_the_system_s_log(const char *name)
{
    BMI_addr_t addr;
    EXPECT(gossip_enable_syslog(LOG_INFO), 0);
    EXPECT(BMI_addr_lookup(&addr, "bogus-in-syslog"), -BMI_ENOPROTOOPT);
    CHECK(strstr(logged, "bogus-in-syslog"));
    EXPECT(logged_priority, LOG_DAEMON | LOG_ERR);
    EXPECT(gossip_set_debug_mask(1, OWN), 0);
    gossip_debug(OWN, "100%% debug\n");
    CHECK(strcmp(logged, "[D] 100% debug\n") == 0);
    EXPECT(logged_priority, LOG_DAEMON | LOG_INFO);
    EXPECT(gossip_enable_syslog(LOG_LOCAL3 | LOG_NOTICE), 0);
    gossip_debug(OWN, "notice");
    EXPECT(logged_priority, LOG_LOCAL3 | LOG_NOTICE);
    gossip_err("error");
    EXPECT(logged_priority, LOG_LOCAL3 | LOG_ERR);
    CHECK(!strstr(content_of(name), "error") && !strstr(content_of(name), "debug"));
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    EXPECT(BMI_initialize(NULL, NULL, 0), 0);
    prints_to_a_file(argv[2]);
    prints_what_the_mask_asks_for(argv[2]);
    prints_debug_messages_of_the_library(argv[2], argv[1]);
    stamps_messages(argv[2]);
    prints_to_the_system_s_log(argv[2]);

    /* The parent process checks that the output has the order of the calls. */
    EXPECT(gossip_enable_stdout(), 0);
    printf("before, ");
    gossip_err("stdout, ");
    printf("after\n");
    EXPECT(gossip_enable_stderr(), 0);
    gossip_err("stderr\n");
    EXPECT(gossip_enable_file(argv[2], "w"), 0);
    EXPECT(gossip_set_debug_mask(1, OWN), 0);
    EXPECT(gossip_disable(), 0);
    CHECK(!gossip_debug_enabled(OWN));
    gossip_err("disabled\n");
    EXPECT(strlen(content_of(argv[2])), 0);
    EXPECT(BMI_finalize(), 0);
    return 0;
}
