//! Tags and contexts of the layer's messages.

use selvedge::{Context, Errno, Result, TagMatch};

/// The bit of all of them.
pub(super) const LAYER: u64 = 1 << 63;

/// Which messages: bits 60 to 62.
const JOIN: u64 = LAYER;
const DATA: u64 = LAYER | 1 << 60;
const NOTIFICATION: u64 = LAYER | 2 << 60;

/// Collectives of a group that can be told apart at one time.
pub(super) const SEQUENCE: u32 = 0xff_ffff;

/// Messages of a collective between two members that can be told apart.
const LABEL: u32 = 0xf_ffff;

/// A member's number for a group, given to the others when it joined: no two members need to agree
/// on one.
pub(super) type Number = u16;

/// A message of the join of `members`, whose sets have this key.
pub(super) const fn join(members: usize, key: u32) -> u64 {
    JOIN | (members as u64) << 32 | key as u64
}

/// A message of a collective, for a member that knows the group as `number`.
pub(super) const fn data(number: Number, sequence: u32, label: u32) -> u64 {
    DATA | (number as u64) << 44 | (sequence as u64) << 20 | label as u64
}

/// Of a tag that should be one of those: number, sequence and label.
pub(super) const fn parse_data(tag: u64) -> Option<(Number, u32, u32)> {
    match tag >> 60 == DATA >> 60 {
        true => Some((
            (tag >> 44) as Number,
            (tag >> 20) as u32 & SEQUENCE,
            tag as u32 & LABEL,
        )),
        false => None,
    }
}

/// Every message of a collective for this number.
pub(super) const fn any_data(number: Number) -> TagMatch {
    TagMatch {
        tag: data(number, 0, 0),
        ignore: (1 << 44) - 1,
    }
}

/// A message about the group itself.
pub(super) const fn notification(number: Number) -> u64 {
    NOTIFICATION | number as u64
}

/// The application's tag of a send.
///
/// # Errors
/// [`Errno::Inval`] for the layer's bit.
pub(super) const fn user_tag(tag: u64) -> Result<u64> {
    match tag & LAYER {
        0 => Ok(tag),
        _ => Err(Errno::Inval),
    }
}

/// The application's tag of a receive, which takes no message of the layer's.
///
/// # Errors
/// [`Errno::Inval`] if it is a tag that no message of the application's can have.
pub(super) const fn user_match(wanted: TagMatch) -> Result<TagMatch> {
    if wanted.tag & !wanted.ignore & LAYER != 0 {
        return Err(Errno::Inval);
    }
    Ok(TagMatch {
        tag: wanted.tag & !LAYER,
        ignore: wanted.ignore & !LAYER,
    })
}

/// What an operation of the layer's is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A message of the collective with this sequence number.
    Data(u32),
    /// A number for this member.
    JoinSend(u16),
    /// The number of this member.
    JoinReceive(u16),
    /// The receive for notices.
    NotificationReceive,
    /// A notice that the group is broken: nobody waits for it.
    FailureNotification,
    /// A notice that only shows whether the other end lives.
    Ping,
    /// A look for messages that nobody wants.
    Discard,
}

impl Purpose {
    /// Whether what comes of it is told at the event queue.
    pub(super) const fn is_join(self) -> bool {
        matches!(self, Self::JoinSend(_) | Self::JoinReceive(_))
    }

    pub(super) const fn context(self, number: Number) -> Context {
        let (kind, detail) = match self {
            Self::Data(sequence) => (0, sequence as u64),
            Self::JoinSend(member) => (1, member as u64),
            Self::JoinReceive(member) => (2, member as u64),
            Self::NotificationReceive => (3, 0),
            Self::FailureNotification => (4, 0),
            Self::Ping => (5, 0),
            Self::Discard => (6, 0),
        };
        Context((kind << 48) | (number as u64) << 32 | detail)
    }

    pub(super) const fn of(context: Context) -> (Self, Number) {
        let detail = context.0 as u32;
        let purpose = match context.0 >> 48 {
            0 => Self::Data(detail),
            1 => Self::JoinSend(detail as u16),
            2 => Self::JoinReceive(detail as u16),
            3 => Self::NotificationReceive,
            4 => Self::FailureNotification,
            5 => Self::Ping,
            _ => Self::Discard,
        };
        (purpose, (context.0 >> 32) as Number)
    }
}

/// A set's key as a part of a tag (FNV-1a).
pub(super) fn key(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_the_layer_and_of_the_application_never_meet() {
        let own = [
            join(0xffff, u32::MAX),
            data(0xffff, SEQUENCE, 0xf_ffff),
            notification(0xffff),
            join(2, 0),
            data(0, 0, 0),
            notification(0),
        ];
        for tag in own {
            assert_eq!(user_tag(tag), Err(Errno::Inval));
            assert!(!user_match(TagMatch::ANY).unwrap().accepts(tag));
            assert_eq!(user_match(TagMatch::exact(tag)), Err(Errno::Inval));
            assert_eq!(own.iter().filter(|&&other| other == tag).count(), 1);
        }
        assert!(user_match(TagMatch::ANY).unwrap().accepts(!LAYER));
        assert_eq!(user_tag(!LAYER), Ok(!LAYER));
        assert_eq!(
            parse_data(data(0xffff, SEQUENCE, LABEL)),
            Some((0xffff, SEQUENCE, LABEL))
        );
        assert_eq!(parse_data(data(7, 9, 3)), Some((7, 9, 3)));
        assert_eq!(
            (parse_data(notification(7)), parse_data(join(2, 0))),
            (None, None)
        );
        assert!(any_data(7).accepts(data(7, 9, 3)));
        assert!(!any_data(7).accepts(data(8, 9, 3)) && !any_data(7).accepts(notification(7)));
    }

    #[test]
    fn contexts_say_what_they_were_made_for() {
        use Purpose::{
            Data, Discard, FailureNotification, JoinReceive, JoinSend, NotificationReceive, Ping,
        };
        for purpose in [
            Data(SEQUENCE),
            JoinSend(9),
            JoinReceive(0xffff),
            NotificationReceive,
            FailureNotification,
            Ping,
            Discard,
        ] {
            assert_eq!(Purpose::of(purpose.context(0xabcd)), (purpose, 0xabcd));
        }
    }
}
