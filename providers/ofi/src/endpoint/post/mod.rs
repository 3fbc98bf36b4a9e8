//! Posts: each post is one call of the library, in the short form if there is one.

mod atomic;
mod msg;
mod rma;
mod tagged;

use selvedge::{Context, Desc, Errno, OpFlags, Result};

use crate::contexts::PostedOp;
use crate::domain::Words;
use crate::endpoint::{Direction, Endpoint};

/// The form of the library's call for a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One segment, and the endpoint's default flags.
    Short,
    /// Several segments, and the endpoint's default flags.
    List,
    /// One segment with remote data, and the endpoint's default flags.
    Data,
    /// The message form, with these flags.
    Message(u64),
}

impl Form {
    /// The flags for a call of the library that always takes flags.
    #[inline]
    fn flags(self, requested: OpFlags) -> u64 {
        match self {
            Self::Message(flags) => flags,
            _ => requested.difference(OpFlags::DEFAULT).bits(),
        }
    }
}

impl Direction {
    #[inline]
    fn form(&self, segments: usize, flags: OpFlags) -> Form {
        let op_flags = flags.difference(OpFlags::DEFAULT);
        if !flags.contains(OpFlags::DEFAULT) {
            return Form::Message(op_flags.bits());
        }
        match (op_flags, segments) {
            (op_flags, 1) if op_flags.is_empty() => Form::Short,
            (op_flags, _) if op_flags.is_empty() => Form::List,
            (OpFlags::REMOTE_CQ_DATA, 1) => Form::Data,
            (op_flags, _) => Form::Message((op_flags | self.defaults).bits()),
        }
    }

    /// Checks the number of segments and of their descriptors.
    ///
    /// # Errors
    /// [`Errno::Inval`] for more segments than the library accepts, and for descriptors of only
    /// some of the segments.
    #[inline]
    fn check(&self, segments: usize, desc: &[Desc]) -> Result {
        check_list(segments, self.iov_limit)?;
        if desc.is_empty() || desc.len() >= segments {
            Ok(())
        } else {
            Err(Errno::Inval)
        }
    }

    /// The data of an operation with these flags.
    ///
    /// # Errors
    /// [`Errno::BadFlags`] for [`OpFlags::LEND`]: its bit is specific to Selvedge, and could mean
    /// something else to the library.
    #[inline]
    fn posted_op(&self, context: Context, flags: OpFlags) -> Result<PostedOp> {
        if flags.contains(OpFlags::LEND) {
            return Err(Errno::BadFlags);
        }
        let all = if flags.contains(OpFlags::DEFAULT) {
            flags | self.defaults
        } else {
            flags
        };
        Ok(PostedOp {
            context,
            is_reported: !self.is_selective || all.contains(OpFlags::COMPLETION),
            is_multi: all.contains(OpFlags::MULTI_RECV),
        })
    }
}

#[inline]
fn check_list(segments: usize, limit: usize) -> Result {
    if segments <= limit.max(1) {
        Ok(())
    } else {
        Err(Errno::Inval)
    }
}

impl Endpoint {
    /// The library's words for the descriptors of a list.
    ///
    /// # Errors
    /// As [`Direction::check`]; [`Errno::Inval`] for descriptors of another domain.
    #[inline]
    fn descs(&self, direction: &Direction, segments: usize, descs: &[Desc]) -> Result<Words> {
        direction.check(segments, descs)?;
        self.domain.domain_tag.unwrap_all(descs)
    }

    /// Checks the length of an injected message.
    ///
    /// # Errors
    /// [`Errno::MsgSize`] for more bytes than an inject may have.
    #[inline]
    fn check_inject(&self, len: usize) -> Result {
        if len <= self.inject_size {
            Ok(())
        } else {
            Err(Errno::MsgSize)
        }
    }
}
