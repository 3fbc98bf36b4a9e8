/*
 * The Buffered Message Interface of the Parallel Virtual File System.
 *
 * One header for every dialect. The functions are those of the standalone BMI. The number of arguments
 * distinguishes the other dialects:
 *
 *   BMI_initialize   3, or 4 with options (OrangeFS), which are ignored
 *   BMI_addr_lookup  2, or 3 with options (OrangeFS), which are ignored
 *   BMI_post_*       without hints (before 2008), or with
 *
 * With BMI_SEED_DIALECT defined, programs of the first BMI compile: posts and tests without a context,
 * tests without a timeout, and the names of that version.
 *
 * Calls return 0 or 1, or the negative of a BMI_E*. A post returns 1 when it is complete already: then
 * there is no operation to test.
 */
#ifndef BMI_H
#define BMI_H

#include "bmi-types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A message without a posted receive. The program owns the buffer, and frees it with
 * BMI_unexpected_free, BMI_memfree or free. */
struct BMI_unexpected_info {
    bmi_error_code_t error_code;
    BMI_addr_t addr;
    void *buffer;
    bmi_size_t size;
    bmi_msg_tag_t tag;
};

int BMI_initialize(const char *method_list, const char *listen_addr, int flags);
int BMI_finalize(void);
int BMI_open_context(bmi_context_id *context_id);
void BMI_close_context(bmi_context_id context_id);

int BMI_post_send(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                  enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                  bmi_context_id context_id, bmi_hint hints);
int BMI_post_sendunexpected(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                            enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                            bmi_context_id context_id, bmi_hint hints);
int BMI_post_sendunexpected_class(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer,
                                  bmi_size_t size, enum bmi_buffer_type buffer_type,
                                  bmi_msg_tag_t tag, uint8_t class_, void *user_ptr,
                                  bmi_context_id context_id, bmi_hint hints);
int BMI_post_recv(bmi_op_id_t *id, BMI_addr_t src, void *buffer, bmi_size_t expected_size,
                  bmi_size_t *actual_size, enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                  void *user_ptr, bmi_context_id context_id, bmi_hint hints);

/* total_size is the sum of size_list. */
int BMI_post_send_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffer_list,
                       const bmi_size_t *size_list, int list_count, bmi_size_t total_size,
                       enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                       bmi_context_id context_id, bmi_hint hints);
int BMI_post_sendunexpected_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffer_list,
                                 const bmi_size_t *size_list, int list_count,
                                 bmi_size_t total_size, enum bmi_buffer_type buffer_type,
                                 bmi_msg_tag_t tag, void *user_ptr, bmi_context_id context_id,
                                 bmi_hint hints);
int BMI_post_sendunexpected_list_class(bmi_op_id_t *id, BMI_addr_t dest,
                                       const void *const *buffer_list, const bmi_size_t *size_list,
                                       int list_count, bmi_size_t total_size,
                                       enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                                       uint8_t class_, void *user_ptr, bmi_context_id context_id,
                                       bmi_hint hints);
int BMI_post_recv_list(bmi_op_id_t *id, BMI_addr_t src, void *const *buffer_list,
                       const bmi_size_t *size_list, int list_count, bmi_size_t total_expected_size,
                       bmi_size_t *total_actual_size, enum bmi_buffer_type buffer_type,
                       bmi_msg_tag_t tag, void *user_ptr, bmi_context_id context_id,
                       bmi_hint hints);

int BMI_test(bmi_op_id_t id, int *outcount, bmi_error_code_t *error_code, bmi_size_t *actual_size,
             void **user_ptr, int max_idle_time_ms, bmi_context_id context_id);
int BMI_testsome(int incount, bmi_op_id_t *id_array, int *outcount, int *index_array,
                 bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array,
                 void **user_ptr_array, int max_idle_time_ms, bmi_context_id context_id);
int BMI_testcontext(int incount, bmi_op_id_t *out_id_array, int *outcount,
                    bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array,
                    void **user_ptr_array, int max_idle_time_ms, bmi_context_id context_id);
int BMI_testunexpected(int incount, int *outcount, struct BMI_unexpected_info *info_array,
                       int max_idle_time_ms);
int BMI_testunexpected_class(int incount, int *outcount, struct BMI_unexpected_info *info_array,
                             uint8_t class_, int max_idle_time_ms);

/* The first BMI's tests: they block for up to ten milliseconds until an operation completes. */
int BMI_wait(bmi_op_id_t id, int *outcount, bmi_error_code_t *error_code, bmi_size_t *actual_size,
             void **user_ptr);
int BMI_waitsome(int incount, bmi_op_id_t *id_array, int *outcount, int *index_array,
                 bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array,
                 void **user_ptr_array);
int BMI_waitunexpected(int incount, int *outcount, struct BMI_unexpected_info *info_array);

/* Requests that an operation ends; a test reports its outcome. */
int BMI_cancel(bmi_op_id_t id, bmi_context_id context_id);
/* Cancels an operation and collects it, without blocking. Returns 0 if it was cancelled, 1 if it was
 * complete, and its error if it had failed. Returns -BMI_EALREADY if it has begun: then it goes on, its
 * buffer must stay unchanged, and a test reports its completion. */
int BMI_unpost(bmi_op_id_t id, bmi_context_id context_id);

void *BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type send_recv);
int BMI_memfree(BMI_addr_t addr, void *buffer, bmi_size_t size, enum bmi_op_type send_recv);
int BMI_unexpected_free(BMI_addr_t addr, void *buffer);

int BMI_set_info(BMI_addr_t addr, int option, void *inout_parameter);
int BMI_get_info(BMI_addr_t addr, int option, void *inout_parameter);

int BMI_addr_lookup(BMI_addr_t *new_addr, const char *id_string);
const char *BMI_addr_rev_lookup(BMI_addr_t addr);
const char *BMI_addr_rev_lookup_unexpected(BMI_addr_t addr);
int BMI_query_addr_range(BMI_addr_t addr, const char *id_string, int netmask);

/* Stands for the context of programs that have none. */
#define BMI_SEED_CONTEXT INT64_MIN

#ifdef __cplusplus
}
#endif

/* Dialects. BMI_PICK expands to its thirteenth argument, so the number of arguments before the
 * alternatives selects one of them. A name in parentheses is the function itself. */
#define BMI_PICK(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, picked, ...) picked

#define BMI_initialize(...)                                                                        \
    BMI_PICK(__VA_ARGS__, x, x, x, x, x, x, x, x, BMI_INIT_4, BMI_INIT_3, x, x, x)(__VA_ARGS__)
#define BMI_INIT_3(methods, listen, flags) (BMI_initialize)(methods, listen, flags)
#define BMI_INIT_4(methods, listen, flags, options)                                                \
    ((void)(options), (BMI_initialize)(methods, listen, flags))

#define BMI_addr_lookup(...)                                                                       \
    BMI_PICK(__VA_ARGS__, x, x, x, x, x, x, x, x, x, BMI_LOOKUP_3, BMI_LOOKUP_2, x, x)(__VA_ARGS__)
#define BMI_LOOKUP_2(addr, url) (BMI_addr_lookup)(addr, url)
#define BMI_LOOKUP_3(addr, url, options) ((void)(options), (BMI_addr_lookup)(addr, url))

#ifdef BMI_SEED_DIALECT
#define BMI_NO_CONTEXT(...) (__VA_ARGS__, BMI_SEED_CONTEXT, (bmi_hint)0)
#else
/* A context is missing. */
#define BMI_NO_CONTEXT(...) (__VA_ARGS__)
#endif
#define BMI_NO_HINTS(...) (__VA_ARGS__, (bmi_hint)0)
#define BMI_ALL(...) (__VA_ARGS__)

/* Posts of 7, 8 or 9 arguments, and of more with lists and sizes. */
#define BMI_post_send(...)                                                                         \
    (BMI_post_send) BMI_PICK(__VA_ARGS__, x, x, x, BMI_ALL, BMI_NO_HINTS, BMI_NO_CONTEXT, x, x,    \
                             x, x, x, x, x)(__VA_ARGS__)
#define BMI_post_sendunexpected(...)                                                               \
    (BMI_post_sendunexpected) BMI_PICK(__VA_ARGS__, x, x, x, BMI_ALL, BMI_NO_HINTS,                \
                                       BMI_NO_CONTEXT, x, x, x, x, x, x, x)(__VA_ARGS__)
#define BMI_post_recv(...)                                                                         \
    (BMI_post_recv) BMI_PICK(__VA_ARGS__, x, x, BMI_ALL, BMI_NO_HINTS, BMI_NO_CONTEXT, x, x, x,    \
                             x, x, x, x, x)(__VA_ARGS__)
#define BMI_post_send_list(...)                                                                    \
    (BMI_post_send_list) BMI_PICK(__VA_ARGS__, x, BMI_ALL, BMI_NO_HINTS, BMI_NO_CONTEXT, x, x, x,  \
                                  x, x, x, x, x, x)(__VA_ARGS__)
#define BMI_post_sendunexpected_list(...)                                                          \
    (BMI_post_sendunexpected_list) BMI_PICK(__VA_ARGS__, x, BMI_ALL, BMI_NO_HINTS,                 \
                                            BMI_NO_CONTEXT, x, x, x, x, x, x, x, x, x)(__VA_ARGS__)
#define BMI_post_recv_list(...)                                                                    \
    (BMI_post_recv_list) BMI_PICK(__VA_ARGS__, BMI_ALL, BMI_NO_HINTS, BMI_NO_CONTEXT, x, x, x, x,  \
                                  x, x, x, x, x, x)(__VA_ARGS__)

#ifdef BMI_SEED_DIALECT
#define BMI_test(id, outcount, error_code, actual_size, user_ptr)                                  \
    (BMI_test)(id, outcount, error_code, actual_size, user_ptr, 0, BMI_SEED_CONTEXT)
#define BMI_testsome(incount, ids, outcount, indices, error_codes, actual_sizes, user_ptrs)        \
    (BMI_testsome)(incount, ids, outcount, indices, error_codes, actual_sizes, user_ptrs, 0,       \
                   BMI_SEED_CONTEXT)
#define BMI_testunexpected(incount, outcount, infos) (BMI_testunexpected)(incount, outcount, infos, 0)
#define BMI_unpost(id) (BMI_unpost)(id, BMI_SEED_CONTEXT)
#define unexpected_info BMI_unexpected_info
#define BMI_SEND_BUFFER BMI_SEND
#define BMI_RECV_BUFFER BMI_RECV
#endif

#endif
