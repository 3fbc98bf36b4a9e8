/* A server is killed while a client sends to it: the client gets an error and no signal. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bmi.h"
#include "common.h"

#define SIZE 100000
#define COUNT 8

/* Prints its port, receives one message, and exits. */
static void serve(const char *scheme, int to)
{
    char url[64], method[64];
    struct BMI_unexpected_info info;
    int port = 0, count = 0;
    snprintf(url, sizeof url, "%s://localhost", scheme);
    snprintf(method, sizeof method, "bmi_%s", scheme);
    EXPECT(BMI_initialize(method, url, BMI_INIT_SERVER), 0);
    EXPECT(BMI_get_info(0, BMI_TCP_GET_PORT, &port), 0);
    EXPECT(write(to, &port, sizeof port), sizeof port);
    while (!count)
        CHECK(BMI_testunexpected(1, &count, &info, 100) >= 0);
    _exit(0);
}

/* The error code of an operation. */
static bmi_error_code_t outcome(bmi_op_id_t id, bmi_context_id context)
{
    bmi_error_code_t error = 0;
    bmi_size_t size;
    int count = 0;
    while (!count)
        CHECK(BMI_test(id, &count, &error, &size, NULL, 100, context) >= 0);
    return error;
}

int main(int argc, char **argv)
{
    static char data[SIZE];
    char url[64];
    int ends[2], port, status, failed = 0;
    bmi_context_id context;
    bmi_op_id_t ids[COUNT];
    BMI_addr_t server;
    CHECK(argc == 2);
    EXPECT(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        serve(argv[1], ends[1]);
    EXPECT(read(ends[0], &port, sizeof port), sizeof port);
    snprintf(url, sizeof url, "%s://localhost:%d", argv[1], port);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    EXPECT(BMI_initialize(NULL, NULL, 0), 0);
    EXPECT(BMI_open_context(&context), 0);
    EXPECT(BMI_addr_lookup(&server, url), 0);
    int ret = BMI_post_sendunexpected(&ids[0], server, data, 1, BMI_EXT_ALLOC, 1, NULL, context,
                                      NULL);
    CHECK(ret >= 0);
    if (ret == 0)
        EXPECT(outcome(ids[0], context), 0);
    EXPECT(waitpid(child, &status, 0), child);
    EXPECT(status, 0);
    for (int i = 0; i < COUNT; i++) {
        bmi_size_t size = i % 2 ? SIZE : 8;
        ret = BMI_post_send(&ids[i], server, data, size, BMI_EXT_ALLOC, 2, NULL, context, NULL);
        failed += ret < 0;
        if (ret != 0)
            ids[i] = 0;
    }
    for (int i = 0; i < COUNT; i++)
        failed += ids[i] && outcome(ids[i], context) < 0;
    /* A short send may have completed when it was posted. */
    CHECK(failed >= COUNT / 2);
    EXPECT(BMI_finalize(), 0);
    return 0;
}
