//! The functions that post operations. They differ in their memory; [`Call`] has the arguments that
//! all of them share.

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{c_int, c_void};

use selvedge::{Iov, IovMut};
use selvedge_bmi::method::Kind;
use selvedge_bmi::{Addr, Bmi, Code, OpId, Post, Posted, Result};

use crate::status::{call, count};
use crate::{context, gossip};

/// The arguments of a post, without the memory.
struct Call {
    id: *mut i64,
    peer: i64,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
}

impl Call {
    #[inline]
    const fn new(id: *mut i64, peer: i64, tag: i32, user_ptr: *mut c_void, context: i64) -> Self {
        Self {
            id,
            peer,
            tag,
            user_ptr,
            context,
        }
    }

    /// # Safety
    /// The id may be written; the segments are valid as [`selvedge_bmi::Bmi::post_send_raw`]
    /// requires.
    #[inline]
    unsafe fn send(&self, segments: Result<impl AsRef<[Iov]>>, kind: Kind) -> c_int {
        call(|bmi| {
            let segments = segments?;
            let post = self.post(bmi, segments.as_ref())?;
            // SAFETY: the pointer is not null, and the caller promises that it may be written.
            let store = |id: OpId| unsafe { self.id.write(id.0) };
            let posted = match kind {
                // SAFETY: passed on from the caller.
                Kind::Expected => unsafe { bmi.post_send_raw(&post, store) },
                Kind::Unexpected { class } => {
                    // SAFETY: as above.
                    unsafe { bmi.post_sendunexpected_raw(&post, class, store) }
                }
            };
            // SAFETY: as for `store`.
            unsafe { self.write_outcome(&posted, self.id, std::ptr::null_mut()) }
        })
    }

    /// # Safety
    /// The id and the size may be written; the segments are valid as
    /// [`selvedge_bmi::Bmi::post_recv_raw`] requires.
    #[inline]
    unsafe fn recv(&self, segments: Result<impl AsRef<[IovMut]>>, actual_size: *mut i64) -> c_int {
        call(|bmi| {
            let segments = segments?;
            let post = self.post(bmi, segments.as_ref())?;
            if actual_size.is_null() {
                return Err(Code::EINVAL);
            }
            // SAFETY: `post` has checked the pointer, and the caller promises that it may be
            // written.
            let store = |id: OpId| unsafe { self.id.write(id.0) };
            // SAFETY: passed on from the caller.
            let posted = unsafe { bmi.post_recv_raw(&post, store) };
            // SAFETY: as for `store`.
            unsafe { self.write_outcome(&posted, self.id, actual_size) }
        })
    }

    /// # Errors
    /// [`Code::EINVAL`] if the pointer for the id is null.
    #[inline]
    fn post<P>(&self, bmi: &Bmi, segments: P) -> Result<Post<P>> {
        if self.id.is_null() {
            return Err(Code::EINVAL);
        }
        let context = context::of_argument(bmi, self.context)?;
        let user = self.user_ptr.addr() as u64;
        Ok(Post::new(Addr(self.peer), segments, self.tag, context).with_user(user))
    }

    /// Writes the outcome of a post: 0 and an id if it is pending, or 1 and a size if it is
    /// complete.
    ///
    /// # Safety
    /// `id` may be written, and so may `size` unless it is null.
    #[inline]
    unsafe fn write_outcome(
        &self,
        posted: &Result<Posted>,
        id: *mut i64,
        size: *mut i64,
    ) -> Result<c_int> {
        let (status, len) = match posted {
            Ok(Posted::Pending(_)) => (Ok(0), 0),
            Ok(Posted::Done(len)) => (Ok(1), *len),
            Err(code) => {
                self.log_error(*code);
                (Err(*code), 0)
            }
        };
        if !matches!(status, Ok(0)) {
            // A completed or failed operation cannot be tested.
            // SAFETY: the caller promises that it may be written.
            unsafe { id.write(0) };
        }
        if !size.is_null() {
            // SAFETY: as above.
            unsafe { size.write(len as i64) };
        }
        status
    }

    /// Logs why a post to an address without a peer is refused.
    #[cold]
    fn log_error(&self, code: Code) {
        if code == Code::EPROTO {
            gossip::log_error(&format!(
                "address {} has no peer; pass an address from BMI_addr_lookup or from an \
                 unexpected message",
                self.peer
            ));
        }
    }
}

/// One segment of memory.
///
/// # Errors
/// [`Code::EINVAL`] for a negative size, and for bytes at a null pointer.
#[inline]
fn segment<B, T>(buffer: *const B, size: i64, build: impl Fn(*const B, usize) -> T) -> Result<T> {
    match usize::try_from(size) {
        Ok(size) if size == 0 || !buffer.is_null() => Ok(build(buffer, size)),
        _ => Err(Code::EINVAL),
    }
}

/// A list of segments, whose sizes add up to `total`.
///
/// # Errors
/// As [`segment`]; [`Code::EINVAL`] for a negative count, for lists at null pointers, and for a sum
/// other than `total`.
///
/// # Safety
/// The lists are null or have `list_count` members.
unsafe fn read_segments<T>(
    buffer_list: *const *const c_void,
    size_list: *const i64,
    list_count: c_int,
    total: i64,
    build: impl Fn(*const c_void, usize) -> T,
) -> Result<Vec<T>> {
    let members = count(list_count)?;
    if members > 0 && (buffer_list.is_null() || size_list.is_null()) {
        return Err(Code::EINVAL);
    }
    let mut sum = 0_i64;
    let mut segments = Vec::with_capacity(members);
    for member in 0..members {
        // SAFETY: the pointer is not null, and the caller promises `list_count` members.
        let buffer = unsafe { buffer_list.wrapping_add(member).read() };
        // SAFETY: as above.
        let size = unsafe { size_list.wrapping_add(member).read() };
        segments.push(segment(buffer, size, &build)?);
        sum = sum.checked_add(size).ok_or(Code::EINVAL)?;
    }
    if sum == total {
        Ok(segments)
    } else {
        Err(Code::EINVAL)
    }
}

/// # Safety
/// `id` may be written; the buffer stays valid and unwritten until a test has reported the
/// operation, or the post returns a value other than 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_send(
    id: *mut i64,
    dest: i64,
    buffer: *const c_void,
    size: i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let call = Call::new(id, dest, tag, user_ptr, context);
    let segments = segment(buffer, size, Iov::from_raw).map(|segment| [segment]);
    // SAFETY: passed on from the caller.
    unsafe { call.send(segments, Kind::Expected) }
}

/// # Safety
/// As `BMI_post_send`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_sendunexpected(
    id: *mut i64,
    dest: i64,
    buffer: *const c_void,
    size: i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let call = Call::new(id, dest, tag, user_ptr, context);
    let segments = segment(buffer, size, Iov::from_raw).map(|segment| [segment]);
    // SAFETY: passed on from the caller.
    unsafe { call.send(segments, Kind::Unexpected { class: 0 }) }
}

/// # Safety
/// As `BMI_post_send`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_sendunexpected_class(
    id: *mut i64,
    dest: i64,
    buffer: *const c_void,
    size: i64,
    _buffer_type: c_int,
    tag: i32,
    class: u8,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let call = Call::new(id, dest, tag, user_ptr, context);
    let segments = segment(buffer, size, Iov::from_raw).map(|segment| [segment]);
    // SAFETY: passed on from the caller.
    unsafe { call.send(segments, Kind::Unexpected { class }) }
}

/// # Safety
/// `id` and `actual_size` may be written; the buffer stays valid, and no other code accesses it,
/// until a test has reported the operation, or the post returns a value other than 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_recv(
    id: *mut i64,
    src: i64,
    buffer: *mut c_void,
    expected_size: i64,
    actual_size: *mut i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let call = Call::new(id, src, tag, user_ptr, context);
    let build = |base: *const c_void, len| IovMut::from_raw(base.cast_mut(), len);
    let segments = segment(buffer.cast_const(), expected_size, build).map(|segment| [segment]);
    // SAFETY: passed on from the caller.
    unsafe { call.recv(segments, actual_size) }
}

/// # Safety
/// As `BMI_post_send`, for each buffer of the list; the lists have `count` members.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_send_list(
    id: *mut i64,
    dest: i64,
    buffers: *const *const c_void,
    sizes: *const i64,
    count: c_int,
    total: i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let call = Call::new(id, dest, tag, user_ptr, context);
    // SAFETY: passed on from the caller.
    let segments = unsafe { read_segments(buffers, sizes, count, total, Iov::from_raw) };
    // SAFETY: as above.
    unsafe { call.send(segments, Kind::Expected) }
}

/// # Safety
/// As `BMI_post_send_list`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_sendunexpected_list(
    id: *mut i64,
    dest: i64,
    buffers: *const *const c_void,
    sizes: *const i64,
    count: c_int,
    total: i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let call = Call::new(id, dest, tag, user_ptr, context);
    // SAFETY: passed on from the caller.
    let segments = unsafe { read_segments(buffers, sizes, count, total, Iov::from_raw) };
    // SAFETY: as above.
    unsafe { call.send(segments, Kind::Unexpected { class: 0 }) }
}

/// # Safety
/// As `BMI_post_send_list`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_sendunexpected_list_class(
    id: *mut i64,
    dest: i64,
    buffers: *const *const c_void,
    sizes: *const i64,
    count: c_int,
    total: i64,
    _buffer_type: c_int,
    tag: i32,
    class: u8,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let call = Call::new(id, dest, tag, user_ptr, context);
    // SAFETY: passed on from the caller.
    let segments = unsafe { read_segments(buffers, sizes, count, total, Iov::from_raw) };
    // SAFETY: as above.
    unsafe { call.send(segments, Kind::Unexpected { class }) }
}

/// # Safety
/// As `BMI_post_recv`, for each buffer of the list; the lists have `count` members.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_recv_list(
    id: *mut i64,
    src: i64,
    buffers: *const *const c_void,
    sizes: *const i64,
    count: c_int,
    total: i64,
    actual_size: *mut i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let call = Call::new(id, src, tag, user_ptr, context);
    let build = |base: *const c_void, len| IovMut::from_raw(base.cast_mut(), len);
    // SAFETY: passed on from the caller.
    let segments = unsafe { read_segments(buffers, sizes, count, total, build) };
    // SAFETY: as above.
    unsafe { call.recv(segments, actual_size) }
}
