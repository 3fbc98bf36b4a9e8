/* Wrong calls return their documented code and do not crash. */
#include <errno.h>
#include <limits.h>

#include "bmi.h"
#include "common.h"

int main(int argc, char **argv)
{
    BMI_addr_t own, other;
    bmi_context_id context, contexts[17];
    bmi_op_id_t id = 5;
    bmi_size_t actual;
    bmi_error_code_t error;
    struct BMI_unexpected_info info;
    char buffer[64], *text;
    int count, number;
    CHECK(argc == 2);

    /* Before BMI_initialize. */
    EXPECT(BMI_finalize(), -BMI_EINVAL);
    EXPECT(BMI_open_context(&context), -BMI_ENETDOWN);
    EXPECT(BMI_test(1, &count, &error, &actual, NULL, 0, 0), -BMI_ENETDOWN);
    EXPECT(BMI_post_send(&id, 1, buffer, 1, BMI_EXT_ALLOC, 0, NULL, 0, NULL), -BMI_ENETDOWN);
    EXPECT(BMI_testunexpected(1, &count, &info, 0), -BMI_ENETDOWN);
    EXPECT(BMI_addr_lookup(&own, argv[1]), -BMI_ENETDOWN);
    CHECK(BMI_memalloc(0, 10, BMI_SEND) == NULL);
    BMI_close_context(3);
    CHECK(BMI_get_info(0, BMI_TRANSPORT_METHODS_STRING, &text) >= 1);
    CHECK(strstr(text, "shm,") != NULL);
    free(text);
    CHECK(BMI_get_info(0, 16, &text) >= 1);
    free(text);
    EXPECT(BMI_get_info(0, BMI_TRANSPORT_METHODS_STRING, NULL), -BMI_EINVAL);

    /* A correct BMI_initialize succeeds after failed ones. */
    EXPECT(BMI_initialize(NULL, NULL, BMI_INIT_SERVER), -BMI_EINVAL);
    EXPECT(BMI_initialize("bmi_shm", NULL, BMI_INIT_SERVER), -BMI_EINVAL);
    EXPECT(BMI_initialize(NULL, argv[1], 0), -BMI_EINVAL);
    EXPECT(BMI_initialize("bmi_gm", "gm://NULL", BMI_INIT_SERVER), -BMI_ENOPROTOOPT);
    EXPECT(BMI_initialize("bmi_shm", "nonsense", BMI_INIT_SERVER), -BMI_EINVAL);
    EXPECT(BMI_initialize("bmi_shm", "gm://NULL", BMI_INIT_SERVER), -BMI_EINVAL);
    EXPECT(BMI_open_context(&context), -BMI_ENETDOWN);
    EXPECT(BMI_initialize("bmi_shm", argv[1], BMI_INIT_SERVER), 0);
    EXPECT(BMI_initialize("bmi_shm", argv[1], BMI_INIT_SERVER), 0);
    EXPECT(BMI_finalize(), 0);

    /* Contexts. */
    for (int i = 0; i < 16; i++)
        EXPECT(BMI_open_context(&contexts[i]), 0);
    EXPECT(BMI_open_context(&contexts[16]), -BMI_EBUSY);
    BMI_close_context(contexts[7]);
    EXPECT(BMI_open_context(&context), 0);
    EXPECT(context, contexts[7]);
    EXPECT(BMI_open_context(NULL), -BMI_EINVAL);
    BMI_close_context(-1);
    BMI_close_context(16);

    /* Addresses. */
    EXPECT(BMI_addr_lookup(&own, argv[1]), 0);
    EXPECT(BMI_addr_lookup(NULL, argv[1]), -BMI_EINVAL);
    EXPECT(BMI_addr_lookup(&other, NULL), -BMI_EINVAL);
    EXPECT(BMI_addr_lookup(&other, "gm://x:1"), -BMI_ENOPROTOOPT);
    EXPECT(BMI_addr_lookup(&other, "bogus"), -BMI_ENOPROTOOPT);
    EXPECT(BMI_addr_lookup(&other, "shm:/x:1"), -BMI_ENOPROTOOPT);
    EXPECT(BMI_addr_lookup(&other, "shm://x:70000"), -BMI_ENOPROTOOPT);
    static char longest[5000] = "shm://";
    memset(longest + 6, 'x', 4000);
    EXPECT(BMI_addr_lookup(&other, longest), -BMI_ENAMETOOLONG);
    CHECK(BMI_addr_rev_lookup(4711) == NULL);
    CHECK(strcmp(BMI_addr_rev_lookup_unexpected(4711), "UNKNOWN") == 0);
    EXPECT(BMI_query_addr_range(own, NULL, -1), -BMI_EINVAL);
    EXPECT(BMI_query_addr_range(0, "shm://*", -1), -BMI_EINVAL);
    EXPECT(BMI_query_addr_range(own, "shm://*", -1), 1);
    EXPECT(BMI_query_addr_range(own, "tcp://*", -1), 0);

    /* Posts. */
    const void *segments[] = {buffer, buffer};
    void *rooms[] = {buffer, buffer};
    bmi_size_t sizes[] = {1, 2}, negative[] = {1, -1};
    EXPECT(BMI_post_send(NULL, own, buffer, 1, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EINVAL);
    EXPECT(BMI_post_send(&id, own, buffer, -1, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EINVAL);
    EXPECT(BMI_post_send(&id, own, NULL, 1, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EINVAL);
    EXPECT(BMI_post_send(&id, 0, buffer, 1, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EPROTO);
    EXPECT(BMI_post_send(&id, 4711, buffer, 1, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EPROTO);
    EXPECT(BMI_post_send(&id, -3, buffer, 1, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EPROTO);
    EXPECT(BMI_post_send(&id, own, buffer, 1, BMI_EXT_ALLOC, 0, NULL, 99, NULL), -BMI_EINVAL);
    EXPECT(BMI_post_send(&id, own, buffer, 1, BMI_EXT_ALLOC, 0, NULL, -1, NULL), -BMI_EINVAL);
    EXPECT(BMI_post_sendunexpected(&id, own, longest, 16385, BMI_EXT_ALLOC, 0, NULL, context, NULL),
           -BMI_EMSGSIZE);
    EXPECT(BMI_post_recv(&id, own, buffer, 1, NULL, BMI_EXT_ALLOC, 0, NULL, context, NULL),
           -BMI_EINVAL);
    EXPECT(BMI_post_recv(&id, own, buffer, -1, &actual, BMI_EXT_ALLOC, 0, NULL, context, NULL),
           -BMI_EINVAL);
    EXPECT(BMI_post_send_list(&id, own, segments, sizes, 2, 4, BMI_EXT_ALLOC, 0, NULL, context, NULL),
           -BMI_EINVAL);
    EXPECT(BMI_post_send_list(&id, own, segments, negative, 2, 0, BMI_EXT_ALLOC, 0, NULL, context,
                              NULL),
           -BMI_EINVAL);
    EXPECT(BMI_post_send_list(&id, own, NULL, sizes, 2, 3, BMI_EXT_ALLOC, 0, NULL, context, NULL),
           -BMI_EINVAL);
    EXPECT(BMI_post_recv_list(&id, own, rooms, sizes, -1, 3, &actual, BMI_EXT_ALLOC, 0, NULL,
                              context, NULL),
           -BMI_EINVAL);

    /* Tests. */
    bmi_op_id_t nonsense[] = {0, 1, -1, INT64_MIN, INT64_MAX, 0x7fffffff12345678};
    for (int i = 0; i < 6; i++) {
        EXPECT(BMI_test(nonsense[i], &count, &error, &actual, NULL, 0, context), -BMI_EINVAL);
        EXPECT(BMI_cancel(nonsense[i], context), 0);
        EXPECT(BMI_unpost(nonsense[i], context), -BMI_EINVAL);
    }
    EXPECT(BMI_post_recv(&id, own, buffer, 9, &actual, BMI_EXT_ALLOC, 77, NULL, context, NULL), 0);
    EXPECT(BMI_test(id, &count, &error, &actual, NULL, -1, context), -BMI_EINVAL);
    EXPECT(BMI_test(id, NULL, &error, &actual, NULL, 0, context), -BMI_EINVAL);
    EXPECT(BMI_test(id, &count, NULL, &actual, NULL, 0, context), -BMI_EINVAL);
    EXPECT(BMI_test(id, &count, &error, NULL, NULL, 0, context), 0);
    EXPECT(BMI_test(id, &count, &error, &actual, NULL, 0, contexts[0]), -BMI_EINVAL);
    EXPECT(BMI_testsome(-1, &id, &count, &number, &error, &actual, NULL, 0, context), -BMI_EINVAL);
    EXPECT(BMI_testsome(1, NULL, &count, &number, &error, &actual, NULL, 0, context), -BMI_EINVAL);
    EXPECT(BMI_testcontext(1, NULL, &count, &error, &actual, NULL, 0, context), -BMI_EINVAL);
    EXPECT(BMI_testcontext(1, &id, &count, &error, &actual, NULL, 0, 12345), -BMI_EINVAL);
    EXPECT(BMI_testunexpected(1, &count, NULL, 0), -BMI_EINVAL);
    EXPECT(BMI_testunexpected(1, &count, &info, -1), -BMI_EINVAL);
    EXPECT(BMI_cancel(id, context), 0);
    count = 0;
    while (!count)
        CHECK(BMI_test(id, &count, &error, &actual, NULL, 10, context) >= 0);
    EXPECT(error, -BMI_ECANCEL);

    /* Options. */
    EXPECT(BMI_get_info(0, BMI_CHECK_MAXSIZE, &number), 0);
    EXPECT(number, INT_MAX);
    EXPECT(BMI_get_info(own, BMI_GET_UNEXP_SIZE, &number), 0);
    EXPECT(number, 16384);
    EXPECT(BMI_get_info(4711, BMI_GET_UNEXP_SIZE, &number), -BMI_EINVAL);
    EXPECT(BMI_get_info(own, BMI_GET_UNEXP_SIZE, NULL), -BMI_EINVAL);
    EXPECT(BMI_get_info(own, BMI_GET_METH_ADDR, &text), -BMI_ENOSYS);
    EXPECT(BMI_get_info(own, BMI_DROP_ADDR_QUERY, &number), 0);
    EXPECT(number, 0);
    EXPECT(BMI_get_info(own, 999, &number), -BMI_ENOSYS);
    EXPECT(BMI_set_info(own, 999, &number), -BMI_ENOSYS);
    EXPECT(BMI_set_info(own, BMI_DEC_ADDR_REF, NULL), -BMI_EINVAL);
    EXPECT(BMI_set_info(own, BMI_INC_ADDR_REF, NULL), 0);
    EXPECT(BMI_set_info(own, BMI_DEC_ADDR_REF, NULL), 0);
    EXPECT(BMI_set_info(4711, BMI_INC_ADDR_REF, NULL), -BMI_EINVAL);
    EXPECT(BMI_set_info(0, BMI_FORCEFUL_CANCEL_MODE, NULL), 0);
    number = 4096;
    EXPECT(BMI_set_info(0, BMI_TCP_BUFFER_SEND_SIZE, &number), 0);
    EXPECT(BMI_set_info(0, BMI_TCP_BUFFER_RECEIVE_SIZE, NULL), -BMI_EINVAL);
    number = -1;
    EXPECT(BMI_set_info(0, BMI_TCP_BUFFER_RECEIVE_SIZE, &number), -BMI_EINVAL);
    number = 0;
    EXPECT(BMI_set_info(0, BMI_TCP_CHECK_UNEXPECTED, &number), 0);
    EXPECT(BMI_set_info(own, BMI_OPTIMISTIC_BUFFER_REG, NULL), 0);
    EXPECT(BMI_set_info(own, BMI_DROP_ADDR, NULL), 0);
    EXPECT(BMI_set_info(own, BMI_DROP_ADDR, NULL), -BMI_EINVAL);
    EXPECT(BMI_post_send(&id, own, buffer, 1, BMI_EXT_ALLOC, 0, NULL, context, NULL), -BMI_EPROTO);
    EXPECT(BMI_addr_lookup(&other, argv[1]), 0);
    CHECK(other != own);

    /* Memory. */
    CHECK(BMI_memalloc(4711, 10, BMI_SEND) == NULL);
    CHECK(BMI_memalloc(other, -1, BMI_SEND) == NULL);
    EXPECT(BMI_memfree(other, BMI_memalloc(0, 100000, BMI_SEND), 1, BMI_SEND), 0);
    EXPECT(BMI_memfree(4711, BMI_memalloc(other, 1, BMI_SEND), 128, BMI_SEND), 0);
    EXPECT(BMI_memfree(other, NULL, 0, BMI_SEND), 0);
    /* Three functions free the buffer of an unexpected message. */
    for (int way = 0; way < 3; way++) {
        CHECK(BMI_post_sendunexpected_class(&id, other, "x", 2, BMI_EXT_ALLOC, 0, 5, NULL, context,
                                            NULL) >= 0);
        count = 0;
        while (!count)
            CHECK(BMI_testunexpected_class(1, &count, &info, 5, 10) >= 0);
        if (way == 0)
            free(info.buffer);
        else if (way == 1)
            EXPECT(BMI_memfree(info.addr, info.buffer, 2, BMI_RECV), 0);
        else
            EXPECT(BMI_unexpected_free(4711, info.buffer), 0);
    }

    /* Numbers. */
    EXPECT(BMI_ENOPROTOOPT, 0x400000ac);
    EXPECT(BMI_ECANCEL, 0x60000081);
    EXPECT(bmi_errno_to_pvfs(-ENOPROTOOPT), -BMI_ENOPROTOOPT);
    EXPECT(bmi_errno_to_pvfs(0), 0);
    CHECK(strstr(bmi_status_string(-BMI_ECANCEL), "cancel") != NULL);
    CHECK(strcmp(bmi_status_string(0), "success") == 0);
    CHECK(bmi_status_string(INT_MIN) != NULL);

    /* After BMI_finalize. */
    EXPECT(BMI_finalize(), 0);
    EXPECT(BMI_finalize(), -BMI_EINVAL);
    EXPECT(BMI_test(id, &count, &error, &actual, NULL, 0, context), -BMI_ENETDOWN);
    EXPECT(BMI_cancel(id, context), -BMI_ENETDOWN);

    /* Initializing and finalizing a hundred times. */
    for (int i = 0; i < 100; i++) {
        EXPECT(BMI_initialize("bmi_shm", argv[1], BMI_INIT_SERVER), 0);
        EXPECT(BMI_addr_lookup(&own, argv[1]), 0);
        EXPECT(BMI_finalize(), 0);
    }
    EXPECT(BMI_initialize("bmi_shm", NULL, 0), 0);
    EXPECT(BMI_finalize(), 0);
    return 0;
}
