/* OrangeFS's dialect, with four arguments of BMI_initialize and three of BMI_addr_lookup, and the
 * older dialect without hints. The process sends to itself. */
#include "pvfs2.h"
#include "bmi.h"
#include "common.h"
#include "gossip.h"

int main(int argc, char **argv)
{
    PVFS_BMI_addr_t own;
    bmi_context_id context;
    bmi_op_id_t send, recv;
    bmi_size_t actual;
    bmi_error_code_t error;
    char buffer[16];
    int count = 0, ret;
    CHECK(argc == 2);
    gossip_enable_stderr();
    gossip_set_debug_mask(1, GOSSIP_BMI_DEBUG_ALL);
    EXPECT(BMI_initialize("bmi_shm", argv[1], BMI_INIT_SERVER, NULL), 0);
    EXPECT(BMI_open_context(&context), 0);
    EXPECT(BMI_addr_lookup(&own, argv[1], NULL), 0);
    EXPECT(BMI_post_recv(&recv, own, buffer, sizeof buffer, &actual, BMI_EXT_ALLOC, 3, NULL,
                         context),
           0);
    ret = BMI_post_send(&send, own, "hello", 6, BMI_EXT_ALLOC, 3, NULL, context);
    CHECK(ret >= 0);
    while (!count)
        CHECK(BMI_test(recv, &count, &error, &actual, NULL, 10, context) >= 0);
    EXPECT(actual, 6);
    CHECK(strcmp(buffer, "hello") == 0);
    if (ret == 0) {
        count = 0;
        while (!count)
            CHECK(BMI_test(send, &count, &error, &actual, NULL, 10, context) >= 0);
    }
    EXPECT(BMI_finalize(), 0);
    gossip_disable();
    return 0;
}
