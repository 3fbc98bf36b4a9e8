//! Tags and contexts of the messages of the collective layer.

use selvedge::{Context, Errno, Result, TagMatch};

/// The bit that is set in every tag of the layer, and in no tag of the application.
pub(super) const LAYER: u64 = 1 << 63;

/// The tags' upper bits: bits 60 to 62 tell the kind of message.
const JOIN: u64 = LAYER;
const DATA: u64 = LAYER | 1 << 60;
const NOTIFICATION: u64 = LAYER | 2 << 60;

/// The mask of sequence numbers, which count a group's collectives: 24 bits.
pub(super) const SEQUENCE: u32 = 0xff_ffff;

/// The mask of labels, which tell a collective's messages between two members apart: 20 bits.
const LABEL: u32 = 0xf_ffff;

/// The number by which one member knows a group. Each member chooses its own and sends it to the
/// others in the join, so members need not agree on one.
pub(super) type Number = u16;

/// The tag of the join messages in a group of `members` members, whose sets have this [`key`].
pub(super) const fn join(members: usize, key: u32) -> u64 {
    JOIN | (members as u64) << 32 | key as u64
}

/// The tag of a collective's message to a member that knows the group as `number`.
pub(super) const fn data(number: Number, sequence: u32, label: u32) -> u64 {
    DATA | (number as u64) << 44 | (sequence as u64) << 20 | label as u64
}

/// The number, sequence and label of a tag from [`data`]; `None` for another tag.
pub(super) const fn parse_data(tag: u64) -> Option<(Number, u32, u32)> {
    if tag >> 60 == DATA >> 60 {
        Some((
            (tag >> 44) as Number,
            (tag >> 20) as u32 & SEQUENCE,
            tag as u32 & LABEL,
        ))
    } else {
        None
    }
}

/// Matches the messages of all collectives to a member that knows the group as `number`.
pub(super) const fn any_data(number: Number) -> TagMatch {
    TagMatch {
        tag: data(number, 0, 0),
        ignore: (1 << 44) - 1,
    }
}

/// The tag of a notification to a member that knows the group as `number`.
pub(super) const fn notification(number: Number) -> u64 {
    NOTIFICATION | number as u64
}

/// Returns the application's tag of a send unchanged.
///
/// # Errors
/// [`Errno::Inval`] for a tag with the layer's bit.
pub(super) const fn user_tag(tag: u64) -> Result<u64> {
    match tag & LAYER {
        0 => Ok(tag),
        _ => Err(Errno::Inval),
    }
}

/// Returns what a receive of the application matches, without the messages of the layer.
///
/// # Errors
/// [`Errno::Inval`] if no message of the application can have the tag.
pub(super) const fn user_match(wanted: TagMatch) -> Result<TagMatch> {
    if wanted.tag & !wanted.ignore & LAYER != 0 {
        return Err(Errno::Inval);
    }
    Ok(TagMatch {
        tag: wanted.tag & !LAYER,
        ignore: wanted.ignore & !LAYER,
    })
}

/// The purpose of an operation of the layer. The operation's context encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A message of the collective with this sequence number.
    Data(u32),
    /// The send of the local number to this member.
    JoinSend(u16),
    /// The receive of this member's number.
    JoinReceive(u16),
    /// The receive for notifications.
    NotificationReceive,
    /// A notification that the group is broken. The layer does not wait for its completion.
    FailureNotification,
    /// A notification that only tests whether the member lives.
    Ping,
    /// A receive that discards a message of a broken group.
    Discard,
}

impl Purpose {
    /// Whether the operation belongs to a join, which completes on the event queue.
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

    pub(super) const fn from_context(context: Context) -> (Self, Number) {
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

/// The key of a set, for the tag of its join messages: the FNV-1a hash of `bytes`.
pub(super) fn key(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tag_of_the_application_matches_a_tag_of_the_layer() {
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
    fn a_context_encodes_its_purpose_and_its_group() {
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
            assert_eq!(
                Purpose::from_context(purpose.context(0xabcd)),
                (purpose, 0xabcd)
            );
        }
    }
}
