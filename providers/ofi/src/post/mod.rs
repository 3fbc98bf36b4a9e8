//! Posting: a post of the object model is a call of the library's that says the same, by the short
//! form where there is one.

mod atomic;
mod msg;
mod rma;
mod tagged;

use selvedge::{Context, Desc, Errno, OpFlags, Result};

use crate::contexts::Posting;
use crate::descriptor::Words;
use crate::endpoint::{Direction, Endpoint};

/// Which call of the library's a post is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One piece, and the endpoint's own flags.
    Short,
    /// Several pieces, and the endpoint's own flags.
    List,
    /// One piece with remote data, and the endpoint's own flags.
    Data,
    /// With these flags.
    Message(u64),
}

impl Form {
    /// The flags of a post that is made with some in any case.
    #[inline]
    fn flags(self, asked: OpFlags) -> u64 {
        match self {
            Self::Message(flags) => flags,
            _ => asked.difference(OpFlags::DEFAULT).bits(),
        }
    }
}

impl Direction {
    #[inline]
    fn form(&self, pieces: usize, flags: OpFlags) -> Form {
        let own = flags.difference(OpFlags::DEFAULT);
        if !flags.contains(OpFlags::DEFAULT) {
            return Form::Message(own.bits());
        }
        match (own, pieces) {
            (own, 1) if own.is_empty() => Form::Short,
            (own, _) if own.is_empty() => Form::List,
            (OpFlags::REMOTE_CQ_DATA, 1) => Form::Data,
            (own, _) => Form::Message((own | self.defaults).bits()),
        }
    }

    /// # Errors
    /// [`Errno::Inval`] for more pieces than the library takes, and for descriptors of some of them.
    #[inline]
    fn check(&self, pieces: usize, desc: &[Desc]) -> Result {
        check_list(pieces, self.iov_limit)?;
        match desc.is_empty() || desc.len() >= pieces {
            true => Ok(()),
            false => Err(Errno::Inval),
        }
    }

    /// What is known of an operation of these flags.
    #[inline]
    fn posting(&self, context: Context, flags: OpFlags) -> Posting {
        let all = match flags.contains(OpFlags::DEFAULT) {
            true => flags | self.defaults,
            false => flags,
        };
        Posting {
            context,
            is_wanted: !self.is_selective || all.contains(OpFlags::COMPLETION),
            is_multi: all.contains(OpFlags::MULTI_RECV),
        }
    }
}

#[inline]
fn check_list(pieces: usize, limit: usize) -> Result {
    match pieces <= limit.max(1) {
        true => Ok(()),
        false => Err(Errno::Inval),
    }
}

impl Endpoint {
    /// The library's words for the descriptors of a list.
    ///
    /// # Errors
    /// As [`Direction::check`]; [`Errno::Inval`] for descriptors of another domain.
    #[inline]
    fn descs(&self, of: &Direction, pieces: usize, descs: &[Desc]) -> Result<Words> {
        of.check(pieces, descs)?;
        self.domain.mark.unwrap_all(descs)
    }

    /// # Errors
    /// [`Errno::MsgSize`] for more than may be injected.
    #[inline]
    fn check_inject(&self, len: usize) -> Result {
        match len <= self.inject_size {
            true => Ok(()),
            false => Err(Errno::MsgSize),
        }
    }
}
