//! Posts in safe code: buffers move into the operation and come back with its completion.

#![expect(unsafe_code, reason = "the buffers live with the operation")]

use std::fmt;

use crate::control::{Bmi, Post, Posted};
use crate::ids::OpId;
use crate::memory::Buffer;
use crate::method::Kind;
use crate::support::ops::Retained;
use crate::{Code, Completion, Result};

/// The memory of a message: one buffer or a list.
#[derive(Debug)]
pub struct Buffers(pub Vec<Buffer>);

impl<B: Into<Buffer>> From<B> for Buffers {
    fn from(buffer: B) -> Self {
        Self(vec![buffer.into()])
    }
}

impl From<Vec<Buffer>> for Buffers {
    fn from(buffers: Vec<Buffer>) -> Self {
        Self(buffers)
    }
}

impl From<Vec<Vec<u8>>> for Buffers {
    fn from(buffers: Vec<Vec<u8>>) -> Self {
        Self(buffers.into_iter().map(Buffer::from).collect())
    }
}

/// A failed post, which returns its buffers.
#[derive(Debug)]
pub struct PostError {
    /// The reason.
    pub code: Code,
    /// The buffers of the post, unchanged.
    pub buffers: Vec<Buffer>,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)
    }
}

impl std::error::Error for PostError {}

/// The buffers that an operation owns.
#[derive(Debug)]
struct OwnedBuffers(Vec<Buffer>);

impl Retained for OwnedBuffers {
    fn received(&mut self, _len: usize) {}

    fn into_buffers(self: Box<Self>) -> Vec<Buffer> {
        self.0
    }
}

impl Bmi {
    /// Posts a send (`BMI_post_send`, and with several buffers `BMI_post_send_list`).
    ///
    /// # Errors
    /// As [`Self::post_send_raw`].
    pub fn post_send(
        &self,
        post: Post<impl Into<Buffers>>,
    ) -> Result<Posted<Completion>, PostError> {
        self.post_owned_send(post, Kind::Expected)
    }

    /// Posts an unexpected message of a class (`BMI_post_sendunexpected_class` and its list form).
    ///
    /// # Errors
    /// As [`Self::post_sendunexpected_raw`].
    pub fn post_sendunexpected(
        &self,
        post: Post<impl Into<Buffers>>,
        class: u8,
    ) -> Result<Posted<Completion>, PostError> {
        self.post_owned_send(post, Kind::Unexpected { class })
    }

    /// Posts a receive (`BMI_post_recv`, and with several buffers `BMI_post_recv_list`).
    ///
    /// # Errors
    /// As [`Self::post_recv_raw`].
    pub fn post_recv(
        &self,
        post: Post<impl Into<Buffers>>,
    ) -> Result<Posted<Completion>, PostError> {
        let user = post.user;
        let mut owned = Box::new(OwnedBuffers(post.segments.into().0));
        let segments: Vec<_> = owned.0.iter_mut().map(Buffer::iov_mut).collect();
        let raw = Post::new(post.addr, &*segments, post.tag, post.context).with_user(user);
        let mut retained: Option<Box<dyn Retained>> = Some(owned);
        // SAFETY: the segments lie in buffers that the operation owns until it is collected or its
        // method is dropped. Moving the box does not move the buffers.
        let posted = unsafe { self.recv(&raw, &mut retained, |_| ()) };
        into_result(posted, retained, user)
    }

    fn post_owned_send(
        &self,
        post: Post<impl Into<Buffers>>,
        kind: Kind,
    ) -> Result<Posted<Completion>, PostError> {
        let user = post.user;
        let owned = Box::new(OwnedBuffers(post.segments.into().0));
        let segments: Vec<_> = owned.0.iter().map(Buffer::iov).collect();
        let raw = Post::new(post.addr, &*segments, post.tag, post.context).with_user(user);
        let mut retained: Option<Box<dyn Retained>> = Some(owned);
        // SAFETY: as in `post_recv`.
        let posted = unsafe { self.send(&raw, kind, &mut retained, |_| ()) };
        into_result(posted, retained, user)
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the result consumes the buffers"
)]
fn into_result(
    posted: Result<Posted>,
    retained: Option<Box<dyn Retained>>,
    user: u64,
) -> Result<Posted<Completion>, PostError> {
    let buffers = || retained.map_or_else(Vec::new, |retained| retained.into_buffers());
    match posted {
        Ok(Posted::Pending(id)) => Ok(Posted::Pending(id)),
        Ok(Posted::Done(len)) => Ok(Posted::Done(Completion {
            id: OpId(0),
            outcome: Ok(len),
            user,
            buffers: buffers(),
        })),
        Err(code) => Err(PostError {
            code,
            buffers: buffers(),
        }),
    }
}
