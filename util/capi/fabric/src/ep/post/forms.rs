//! The functions of C that post one operation, from one description.
//!
//! C posts an operation with one buffer, with a list of buffers, or with a structure (the full
//! form). Operations with remote data have forms for it, and injects. The tables for messages,
//! tagged messages and remote memory differ only in the arguments behind the peer.

/// Adds the forms with a buffer, with a list and with a structure to a table. The description has
/// the message, the function that makes a buffer of C, the function that collects arguments in the
/// structure, the arguments behind the peer with the value made of them, and the names.
macro_rules! forms {
    (
        $table:expr, $message:ident, $buffer:path, $collect:ident,
        ($($arg:ident),*) => $args:expr; $one:ident, $list:ident, $full:ident
    ) => {
        $table
            .$one(|target, buf, len, desc, peer, $($arg,)* context| {
                let buffer = $buffer(buf, len);
                let buffers = one_buffer(&buffer, &desc);
                // SAFETY: the C caller follows the page of the function, here and below.
                let post = |msg: &_| unsafe {
                    post_short_form::<$message<'_>>(target, msg, OpFlags::empty())
                };
                // SAFETY: as above.
                post_status(unsafe { $collect(buffers, peer, $args, context, 0, post) })
            })
            .$list(|target, iov, desc, count, peer, $($arg,)* context| {
                let buffers = buffer_list(iov, desc, count);
                // SAFETY: as above.
                let post = |msg: &_| unsafe {
                    post_short_form::<$message<'_>>(target, msg, OpFlags::empty())
                };
                // SAFETY: as above.
                post_status(unsafe { $collect(buffers, peer, $args, context, 0, post) })
            })
            .$full(|target, msg, flags| {
                // SAFETY: as above.
                post_status(unsafe { post_full_form::<$message<'_>>(target, msg, flags) })
            })
    };
}

/// Adds the form with remote data and the injects to a table. The description is that of [`forms`],
/// with the endpoint's method for injects.
macro_rules! data_forms {
    (
        $table:expr, $message:ident, $collect:ident,
        ($($arg:ident),*) => $args:expr;
        $data_form:ident, $inject:ident, $inject_data:ident = $method:ident
    ) => {
        $table
            .$data_form(|ep, buf, len, desc, data, peer, $($arg,)* context| {
                let buffer = iov(buf, len);
                let buffers = one_buffer(&buffer, &desc);
                // SAFETY: the C caller follows the page of the function, here and below.
                let post = |msg: &_| unsafe {
                    post_short_form::<$message<'_>>(ep, msg, OpFlags::REMOTE_CQ_DATA)
                };
                // SAFETY: as above.
                post_status(unsafe { $collect(buffers, peer, $args, context, data, post) })
            })
            .$inject(|ep, buf, len, peer $(, $arg)*| {
                let inject = |ep: &dyn Endpoint, bytes: &[u8]| {
                    ep.$method(bytes, FiAddr(peer) $(, $arg)*, None)
                };
                // SAFETY: as above.
                post_status(unsafe { post_inject(ep, buf, len, inject) })
            })
            .$inject_data(|ep, buf, len, data, peer $(, $arg)*| {
                let inject = |ep: &dyn Endpoint, bytes: &[u8]| {
                    ep.$method(bytes, FiAddr(peer) $(, $arg)*, Some(data))
                };
                // SAFETY: as above.
                post_status(unsafe { post_inject(ep, buf, len, inject) })
            })
    };
}

pub(crate) use {data_forms, forms};
