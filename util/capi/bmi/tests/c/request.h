/* The request of the client to the server. */
struct request {
    bmi_size_t size;
    bmi_msg_tag_t tag;
};
