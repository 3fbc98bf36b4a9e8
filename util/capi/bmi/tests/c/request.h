/* What client and server say to each other. */
struct request {
    bmi_size_t size;
    bmi_msg_tag_t tag;
};
