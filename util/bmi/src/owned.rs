//! Posts in safe code: buffers move into the operation and come back with its completion.

#![expect(unsafe_code, reason = "the buffers live with the operation")]

use std::fmt;

use crate::control::{Bmi, Post, Posted};
use crate::ids::OpId;
use crate::memory::Buffer;
use crate::method::Kind;
use crate::support::ops::Keep;
use crate::{Code, Result};

/// An operation that is over.
#[derive(Debug)]
pub struct Completion {
    /// Which; 0 for one that was over when its post returned.
    pub id: OpId,
    /// Bytes that were sent or received, or what went wrong.
    pub outcome: Result<u64>,
    /// The word that it was posted with.
    pub user: u64,
    /// The buffers that it was posted with. Those of a receive have the message's bytes from the
    /// first buffer on.
    pub buffers: Vec<Buffer>,
}

/// What a message lies in, or goes into: one buffer, or a list of them.
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

/// A post that failed, with its buffers.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub code: Code,
    /// As they were.
    pub buffers: Vec<Buffer>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)
    }
}

impl std::error::Error for Refused {}

/// What an operation has been lent.
#[derive(Debug)]
struct Lent(Vec<Buffer>);

impl Keep for Lent {
    fn arrived(&mut self, _len: usize) {}

    fn into_buffers(self: Box<Self>) -> Vec<Buffer> {
        self.0
    }
}

impl Bmi {
    /// Posts a send (`BMI_post_send`, and with several buffers `BMI_post_send_list`).
    ///
    /// # Errors
    /// As [`Self::post_send_raw`].
    pub fn post_send(&self, post: Post<impl Into<Buffers>>) -> Result<Posted<Completion>, Refused> {
        self.lend_send(post, Kind::Expected)
    }

    /// Posts an unexpected message of a class (`BMI_post_sendunexpected_class` and its list form).
    ///
    /// # Errors
    /// As [`Self::post_sendunexpected_raw`].
    pub fn post_sendunexpected(
        &self,
        post: Post<impl Into<Buffers>>,
        class: u8,
    ) -> Result<Posted<Completion>, Refused> {
        self.lend_send(post, Kind::Unexpected { class })
    }

    /// Posts a receive (`BMI_post_recv`, and with several buffers `BMI_post_recv_list`).
    ///
    /// # Errors
    /// As [`Self::post_recv_raw`].
    pub fn post_recv(&self, post: Post<impl Into<Buffers>>) -> Result<Posted<Completion>, Refused> {
        let user = post.user;
        let mut lent = Box::new(Lent(post.pieces.into().0));
        let pieces: Vec<_> = lent.0.iter_mut().map(Buffer::iov_mut).collect();
        let raw = Post::new(post.addr, &*pieces, post.tag, post.context).with_user(user);
        let mut kept: Option<Box<dyn Keep>> = Some(lent);
        // SAFETY: the pieces lie in buffers that the operation keeps until it was collected, or
        // until its method is gone; where they lie does not change with who has them.
        let posted = unsafe { self.recv(&raw, &mut kept, |_| ()) };
        give_back(posted, kept, user)
    }

    fn lend_send(
        &self,
        post: Post<impl Into<Buffers>>,
        kind: Kind,
    ) -> Result<Posted<Completion>, Refused> {
        let user = post.user;
        let lent = Box::new(Lent(post.pieces.into().0));
        let pieces: Vec<_> = lent.0.iter().map(Buffer::iov).collect();
        let raw = Post::new(post.addr, &*pieces, post.tag, post.context).with_user(user);
        let mut kept: Option<Box<dyn Keep>> = Some(lent);
        // SAFETY: as in `post_recv`.
        let posted = unsafe { self.send(&raw, kind, &mut kept, |_| ()) };
        give_back(posted, kept, user)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is over with this")]
fn give_back(
    posted: Result<Posted>,
    kept: Option<Box<dyn Keep>>,
    user: u64,
) -> Result<Posted<Completion>, Refused> {
    let buffers = || kept.map_or_else(Vec::new, |kept| kept.into_buffers());
    match posted {
        Ok(Posted::Pending(id)) => Ok(Posted::Pending(id)),
        Ok(Posted::Done(len)) => Ok(Posted::Done(Completion {
            id: OpId(0),
            outcome: Ok(len),
            user,
            buffers: buffers(),
        })),
        Err(code) => Err(Refused {
            code,
            buffers: buffers(),
        }),
    }
}
