/* Sends a request to the server at a URL. Tests all operations with BMI_testcontext. */
#include "bmi.h"
#include "common.h"
#include "request.h"

#define DATA 300000
#define TAG (-5)

static bmi_context_id context;

/* Waits for an operation that was posted with this word. */
static bmi_size_t finish(int status, bmi_op_id_t id, bmi_size_t now, void *word)
{
    CHECK(status >= 0);
    if (status == 1)
        return now;
    bmi_op_id_t ids[4];
    bmi_error_code_t errors[4];
    bmi_size_t sizes[4];
    void *users[4];
    int count = 0;
    while (!count)
        CHECK(BMI_testcontext(4, ids, &count, errors, sizes, users, 100, context) >= 0);
    EXPECT(count, 1);
    EXPECT(ids[0], id);
    EXPECT(errors[0], 0);
    CHECK(users[0] == word);
    return sizes[0];
}

int main(int argc, char **argv)
{
    BMI_addr_t server, again;
    bmi_op_id_t id, ack_id;
    bmi_size_t actual = 77;
    char ack[64];
    int word, other;
    CHECK(argc == 2);
    EXPECT(BMI_initialize(NULL, NULL, 0), 0);
    EXPECT(BMI_get_info(0, BMI_CHECK_INIT, NULL), -BMI_ENETDOWN);
    EXPECT(BMI_open_context(&context), 0);
    EXPECT(BMI_addr_lookup(&server, argv[1]), 0);
    EXPECT(BMI_addr_lookup(&again, argv[1]), 0);
    EXPECT(again, server);
    EXPECT(BMI_get_info(0, BMI_CHECK_INIT, NULL), 0);
    CHECK(strcmp(BMI_addr_rev_lookup(server), argv[1]) == 0);

    struct request request = {DATA, TAG};
    EXPECT(BMI_post_recv(&ack_id, server, ack, sizeof ack, &actual, BMI_EXT_ALLOC, TAG, &other,
                         context, NULL),
           0);
    EXPECT(actual, 0);
    int ret = BMI_post_sendunexpected(&id, server, &request, sizeof request, BMI_EXT_ALLOC, TAG,
                                      &word, context, NULL);
    EXPECT(finish(ret, id, sizeof request, &word), sizeof request);
    EXPECT(finish(0, ack_id, 0, &other), 4);
    CHECK(strcmp(ack, "ack") == 0);

    unsigned char *data = BMI_memalloc(server, 2 * DATA, BMI_RECV);
    CHECK(data != NULL);
    ret = BMI_post_recv(&id, server, data, 2 * DATA, &actual, BMI_PRE_ALLOC, TAG, &word, context,
                        NULL);
    EXPECT(finish(ret, id, actual, &word), DATA);
    CHECK(is_filled(data, DATA, 1));

    /* A list of segments within memory that BMI has allocated. */
    fill(data, DATA, 2);
    const void *segments[100];
    bmi_size_t sizes[100];
    for (int i = 0; i < 100; i++) {
        segments[i] = data + i * (DATA / 100);
        sizes[i] = DATA / 100;
    }
    ret = BMI_post_send_list(&id, server, segments, sizes, 100, DATA, BMI_PRE_ALLOC, TAG, &word,
                             context, NULL);
    EXPECT(finish(ret, id, DATA, &word), DATA);

    ret = BMI_post_recv(&id, server, NULL, 0, &actual, BMI_EXT_ALLOC, TAG, &word, context, NULL);
    EXPECT(finish(ret, id, actual, &word), 0);
    EXPECT(BMI_memfree(server, data, 1, BMI_RECV), 0);
    BMI_close_context(context);
    EXPECT(BMI_finalize(), 0);
    puts("asked");
    return 0;
}
