/* The first BMI's dialect: no contexts, tests without a timeout, waits. The process sends to itself. */
#define BMI_SEED_DIALECT
#include "bmi.h"
#include "common.h"

int main(int argc, char **argv)
{
    bmi_addr_t own;
    bmi_op_id_t ids[3] = {0, 0, 0}, request;
    bmi_size_t actual, sizes[3];
    bmi_error_code_t error, errors[3];
    struct unexpected_info info;
    void *users[3];
    int count = 0, indices[3], word;
    CHECK(argc == 2);
    EXPECT(BMI_initialize("bmi_shm", argv[1], BMI_INIT_SERVER), 0);
    EXPECT(BMI_addr_lookup(&own, argv[1]), 0);
    char *buffer = BMI_memalloc(own, 100, BMI_RECV_BUFFER);
    CHECK(BMI_post_sendunexpected(&request, own, "request", 8, BMI_EXT_ALLOC, 9, NULL) >= 0);
    while (!count)
        CHECK(BMI_waitunexpected(1, &count, &info) >= 0);
    CHECK(strcmp(info.buffer, "request") == 0);
    EXPECT(info.tag, 9);
    free(info.buffer);
    if (request) {
        count = 0;
        while (!count)
            CHECK(BMI_wait(request, &count, &error, &actual, NULL) >= 0);
        EXPECT(error, 0);
    }
    EXPECT(BMI_post_recv(&ids[2], own, buffer, 100, &actual, BMI_PRE_ALLOC, 3, &word), 0);
    EXPECT(BMI_testunexpected(1, &count, &info), 0);
    EXPECT(BMI_test(ids[2], &count, &error, &actual, NULL), 0);
    const void *segments[] = {"he", "llo"};
    bmi_size_t lens[] = {2, 4};
    bmi_op_id_t send;
    CHECK(BMI_post_send_list(&send, own, segments, lens, 2, 6, BMI_EXT_ALLOC, 3, NULL) >= 0);
    count = 0;
    while (!count)
        CHECK(BMI_waitsome(3, ids, &count, indices, errors, sizes, users) >= 0);
    EXPECT(indices[0], 2);
    EXPECT(sizes[0], 6);
    CHECK(users[0] == &word && strcmp(buffer, "hello") == 0);
    EXPECT(BMI_post_recv(&ids[0], own, buffer, 100, &actual, BMI_PRE_ALLOC, 4, NULL), 0);
    EXPECT(BMI_unpost(ids[0]), 0);
    EXPECT(BMI_unpost(ids[0]), -BMI_EINVAL);

    /* A send that waits for its receive has begun: unpost returns BMI_EALREADY, and a wait reports its
     * completion. */
    enum { LARGE = 1 << 20 };
    unsigned char *out = malloc(LARGE), *in = malloc(LARGE);
    CHECK(out && in);
    fill(out, LARGE, 5);
    EXPECT(BMI_post_send(&ids[0], own, out, LARGE, BMI_EXT_ALLOC, 5, NULL), 0);
    EXPECT(BMI_unpost(ids[0]), -BMI_EALREADY);
    CHECK(BMI_post_recv(&ids[1], own, in, LARGE, &actual, BMI_EXT_ALLOC, 5, NULL) >= 0);
    for (int i = 0; i < 2; i++) {
        count = ids[i] == 0;
        while (!count)
            CHECK(BMI_wait(ids[i], &count, &error, &actual, NULL) >= 0);
        EXPECT(error, 0);
    }
    CHECK(is_filled(in, LARGE, 5));
    free(out);
    free(in);
    EXPECT(BMI_memfree(own, buffer, 100, BMI_RECV_BUFFER), 0);
    EXPECT(BMI_finalize(), 0);
    return 0;
}
