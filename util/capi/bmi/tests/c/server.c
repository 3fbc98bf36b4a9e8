/* Serves one client: acknowledges its request, sends data, receives data into a list, sends a last message. */
#include "bmi.h"
#include "common.h"
#include "request.h"

static bmi_context_id context;

static bmi_size_t finish(int status, bmi_op_id_t id, bmi_size_t now, void *word)
{
    CHECK(status >= 0);
    if (status == 1) {
        EXPECT(id, 0);
        return now;
    }
    CHECK(id > 0);
    int count = 0;
    bmi_error_code_t error = -1;
    bmi_size_t size = -1;
    void *user = NULL;
    while (!count)
        CHECK(BMI_test(id, &count, &error, &size, &user, 10, context) >= 0);
    EXPECT(error, 0);
    CHECK(user == word);
    EXPECT(BMI_test(id, &count, &error, &size, &user, 0, context), -BMI_EINVAL);
    return size;
}

int main(int argc, char **argv)
{
    char url[BMI_MAX_ADDR_LEN], method[32];
    int port = 0, word;
    CHECK(argc == 2);
    snprintf(method, sizeof method, "bmi_%s", argv[1]);
    snprintf(url, sizeof url, "%s://localhost", argv[1]);
    EXPECT(BMI_initialize(method, url, BMI_INIT_SERVER), 0);
    EXPECT(BMI_get_info(0, BMI_TCP_GET_PORT, &port), 0);
    printf("%s:%d\n", url, port);
    fflush(stdout);
    EXPECT(BMI_open_context(&context), 0);

    struct BMI_unexpected_info info;
    int count = 0;
    while (!count)
        CHECK(BMI_testunexpected(1, &count, &info, 100) >= 0);
    EXPECT(info.error_code, 0);
    EXPECT(info.size, sizeof(struct request));
    struct request request;
    memcpy(&request, info.buffer, sizeof request);
    EXPECT(BMI_unexpected_free(info.addr, info.buffer), 0);
    CHECK(info.addr >> 32 != 0 || info.addr > 0);
    CHECK(BMI_addr_rev_lookup(info.addr) == NULL);
    CHECK(strcmp(BMI_addr_rev_lookup_unexpected(info.addr), "UNKNOWN") != 0);

    bmi_op_id_t id;
    bmi_size_t actual = -1;
    int ret = BMI_post_send(&id, info.addr, "ack", 4, BMI_EXT_ALLOC, request.tag, &word, context,
                            NULL);
    EXPECT(finish(ret, id, 4, &word), 4);

    unsigned char *data = BMI_memalloc(info.addr, request.size, BMI_SEND);
    CHECK(data != NULL && ((uintptr_t)data & 4095) == 0);
    for (long i = 0; i < request.size; i++)
        CHECK(data[i] == 0);
    fill(data, request.size, 1);
    ret = BMI_post_send(&id, info.addr, data, request.size, BMI_PRE_ALLOC, request.tag, &word,
                        context, NULL);
    EXPECT(finish(ret, id, request.size, &word), request.size);
    EXPECT(BMI_memfree(info.addr, data, request.size, BMI_SEND), 0);

    unsigned char *all = malloc(request.size + 100);
    long third = request.size / 3;
    void *segments[] = {all, all + third, all + third, all + 2 * third};
    bmi_size_t sizes[] = {third, 0, third, request.size + 100 - 2 * third};
    ret = BMI_post_recv_list(&id, info.addr, segments, sizes, 4, request.size + 100, &actual,
                             BMI_EXT_ALLOC, request.tag, &word, context, NULL);
    EXPECT(finish(ret, id, actual, &word), request.size);
    CHECK(is_filled(all, request.size, 2));
    free(all);

    ret = BMI_post_send(&id, info.addr, NULL, 0, BMI_EXT_ALLOC, request.tag, &word, context, NULL);
    EXPECT(finish(ret, id, 0, &word), 0);
    BMI_close_context(context);
    EXPECT(BMI_finalize(), 0);
    puts("served");
    return 0;
}
