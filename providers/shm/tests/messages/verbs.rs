//! Each of the eighteen calls for messages, and every field of its completion.

#![expect(unsafe_code, reason = "tests of the raw API")]

use selvedge::cq::Entry;
use selvedge::{
    CompletionFlags, Context, Desc, FiAddr, Iov, IovMut, MsgExt, OpFlags, TagMatch, TaggedExt, msg,
    tagged,
};

use crate::common::{MessageEndpoint, MessagePair, Rx, pattern, received, sent, with_data};
use crate::provider;

const MSG: CompletionFlags = CompletionFlags::MSG;
const TAGGED: CompletionFlags = CompletionFlags::TAGGED;

const TAG: u64 = 0xfeed_0000_0000_0001;
const DATA: u64 = 0x0123_4567_89ab_cdef;

/// One length for each protocol.
const LENGTHS: [usize; 5] = [0, 40, 48, 3000, 70_000];

/// Reads the next completion and its source without [`MessageEndpoint::poll`].
fn next_completion(side: &MessageEndpoint, other: &MessageEndpoint) -> (Entry, FiAddr) {
    let (mut out, mut src) = ([Entry::default()], [FiAddr(4711)]);
    while side.cq().read_from(&mut out, &mut src).unwrap() == 0 {
        other.progress();
    }
    (out[0], src[0])
}

/// Sends by `post`, and checks the receiver's completion.
fn check_send(pair: &MessagePair, rx: &Rx, len: usize, expected: Entry, post: impl Fn(&[u8])) {
    let bytes = pattern(len as u64, len);
    pair.b.recv(&rx.clone().context(9));
    post(&bytes);
    if expected.flags.contains(CompletionFlags::SEND) {
        let done = next_completion(&pair.a, &pair.b);
        assert_eq!(done, (expected, FiAddr::UNSPEC));
    }
    let done = pair.wait_at_b();
    assert_eq!(done.src, pair.to_a);
    done.assert_bytes(&bytes);
}

fn check_msg_send(pair: &MessagePair, len: usize, post: impl Fn(Iov, Context)) {
    check_send(pair, &Rx::msg(len), len, sent(MSG, 5), |bytes| {
        post(Iov::new(bytes), Context(5));
    });
}

fn check_tagged_send(pair: &MessagePair, len: usize, post: impl Fn(Iov, Context)) {
    check_send(pair, &Rx::tagged(TAG, len), len, sent(TAGGED, 5), |bytes| {
        post(Iov::new(bytes), Context(5));
    });
}

#[test]
fn every_untagged_send_arrives_and_completes() {
    let pair = provider::with_defaults().pair();
    let (ep, to) = (&pair.a.ep, pair.to_b);
    for len in LENGTHS {
        check_msg_send(&pair, len, |iov, context| {
            // SAFETY: `check_send` keeps the bytes until both completions were read.
            unsafe { ep.send(iov, Desc::NONE, to, context) }.unwrap();
        });
        check_msg_send(&pair, len, |iov, context| {
            // SAFETY: as above.
            unsafe { ep.sendv(&[iov], &[Desc::NONE], to, context) }.unwrap();
        });
        check_msg_send(&pair, len, |iov, context| {
            let msg = msg::SendMsg {
                iov: &[iov],
                desc: &[],
                dest: to,
                context,
                data: DATA,
            };
            // SAFETY: as above.
            unsafe { ep.sendmsg(&msg, OpFlags::empty()) }.unwrap();
        });
    }
}

#[test]
fn every_tagged_send_arrives_and_completes() {
    let pair = provider::with_defaults().pair();
    let (ep, to) = (&pair.a.ep, pair.to_b);
    for len in LENGTHS {
        check_tagged_send(&pair, len, |iov, context| {
            // SAFETY: `check_send` keeps the bytes until both completions were read.
            unsafe { ep.tsend(iov, Desc::NONE, to, TAG, context) }.unwrap();
        });
        check_tagged_send(&pair, len, |iov, context| {
            // SAFETY: as above.
            unsafe { ep.tsendv(&[iov], &[Desc::NONE], to, TAG, context) }.unwrap();
        });
        check_tagged_send(&pair, len, |iov, context| {
            let msg = tagged::SendMsg {
                iov: &[iov],
                desc: &[],
                dest: to,
                tag: TAG,
                context,
                data: DATA,
            };
            // SAFETY: as above.
            unsafe { ep.tsendmsg(&msg, OpFlags::empty()) }.unwrap();
        });
    }
}

/// Sends by `post`, and checks every field of the receiver's entry.
fn check_receive(pair: &MessagePair, rx: &Rx, expected: Entry, post: impl Fn(&[u8])) {
    let bytes = pattern(expected.len as u64, expected.len);
    pair.b.recv(&rx.clone().context(expected.context.0));
    post(&bytes);
    let done = pair.wait_at_b();
    done.assert_entry(expected);
    done.assert_bytes(&bytes);
    assert_eq!(done.src, pair.to_a);
}

#[test]
fn data_reaches_the_receivers_completion_with_messages_of_every_size() {
    let pair = provider::with_defaults().pair();
    let (ep, to) = (&pair.a.ep, pair.to_b);
    for len in LENGTHS.into_iter().chain([39, 41, 47, 49]) {
        let expected = with_data(received(MSG, 8, len, 0), DATA);
        check_receive(&pair, &Rx::msg(len + 3), expected, |bytes| {
            let iov = Iov::new(bytes);
            // SAFETY: the bytes live until both completions were read.
            unsafe { ep.senddata(iov, Desc::NONE, DATA, to, Context(1)) }.unwrap();
            assert_eq!(next_completion(&pair.a, &pair.b).0, sent(MSG, 1));
        });
        let expected = with_data(received(TAGGED, 8, len, TAG), DATA);
        check_receive(&pair, &Rx::tagged(TAG, len + 3), expected, |bytes| {
            let iov = Iov::new(bytes);
            // SAFETY: as above.
            unsafe { ep.tsenddata(iov, Desc::NONE, DATA, to, TAG, Context(1)) }.unwrap();
            assert_eq!(next_completion(&pair.a, &pair.b).0, sent(TAGGED, 1));
        });
    }
}

#[test]
fn injected_messages_arrive_and_never_complete_at_the_sender() {
    let pair = provider::with_defaults().pair();
    let (ep, to) = (&pair.a.ep, pair.to_b);
    for len in [0, 1, 40, 41, 48, 49, 4096] {
        let plain = received(MSG, 8, len, 0);
        check_receive(&pair, &Rx::msg(len), plain, |bytes| {
            ep.inject(bytes, to, None).unwrap();
        });
        check_receive(&pair, &Rx::msg(len), with_data(plain, DATA), |bytes| {
            ep.inject(bytes, to, Some(DATA)).unwrap();
        });
        let tagged = received(TAGGED, 8, len, TAG);
        check_receive(&pair, &Rx::tagged(TAG, len), tagged, |bytes| {
            ep.tinject(bytes, to, TAG, None).unwrap();
        });
        check_receive(
            &pair,
            &Rx::tagged(TAG, len),
            with_data(tagged, DATA),
            |bytes| {
                ep.tinject(bytes, to, TAG, Some(DATA)).unwrap();
            },
        );
    }
    pair.assert_no_completion();
}

/// Receives by `post`, and checks every field of the entry.
fn check_posted(pair: &MessagePair, len: usize, tag: Option<u64>, post: impl Fn(IovMut, Context)) {
    let bytes = pattern(len as u64, len);
    let mut buffer = vec![0; len];
    post(IovMut::new(&mut buffer), Context(6));
    let (ep, to, iov) = (&pair.a.ep, pair.to_b, Iov::new(&bytes));
    let (posted, expected) = match tag {
        None => {
            // SAFETY: the bytes live until both completions were read.
            let posted = unsafe { ep.send(iov, Desc::NONE, to, Context(1)) };
            (posted, received(MSG, 6, len, 0))
        }
        Some(tag) => {
            // SAFETY: as above.
            let posted = unsafe { ep.tsend(iov, Desc::NONE, to, tag, Context(1)) };
            (posted, received(TAGGED, 6, len, tag))
        }
    };
    posted.unwrap();
    assert_eq!(next_completion(&pair.b, &pair.a), (expected, pair.to_a));
    assert_eq!(next_completion(&pair.a, &pair.b).0.context, Context(1));
    assert!(buffer == bytes, "{len} bytes differ");
}

#[test]
fn every_untagged_receive_takes_a_message() {
    let pair = provider::with_defaults().pair();
    let ep = &pair.b.ep;
    for len in LENGTHS {
        check_posted(&pair, len, None, |iov, context| {
            // SAFETY: `check_posted` keeps the buffer until the completion was read.
            unsafe { ep.recv(iov, Desc::NONE, FiAddr::UNSPEC, context) }.unwrap();
        });
        check_posted(&pair, len, None, |iov, context| {
            // SAFETY: as above.
            unsafe { ep.recvv(&[iov], &[Desc::NONE], pair.to_a, context) }.unwrap();
        });
        check_posted(&pair, len, None, |iov, context| {
            let msg = msg::RecvMsg {
                iov: &[iov],
                desc: &[],
                src: pair.to_a,
                context,
            };
            // SAFETY: as above.
            unsafe { ep.recvmsg(&msg, OpFlags::empty()) }.unwrap();
        });
    }
}

#[test]
fn every_tagged_receive_takes_a_message() {
    let pair = provider::with_defaults().pair();
    let (ep, any) = (&pair.b.ep, FiAddr::UNSPEC);
    for len in LENGTHS {
        check_posted(&pair, len, Some(TAG), |iov, context| {
            let tag = TagMatch::exact(TAG);
            // SAFETY: `check_posted` keeps the buffer until the completion was read.
            unsafe { ep.trecv(iov, Desc::NONE, any, tag, context) }.unwrap();
        });
        check_posted(&pair, len, Some(TAG), |iov, context| {
            // SAFETY: as above.
            unsafe { ep.trecvv(&[iov], &[Desc::NONE], pair.to_a, TagMatch::ANY, context) }.unwrap();
        });
        check_posted(&pair, len, Some(TAG), |iov, context| {
            let msg = tagged::RecvMsg {
                iov: &[iov],
                desc: &[],
                src: any,
                tag: TagMatch::exact(TAG),
                context,
            };
            // SAFETY: as above.
            unsafe { ep.trecvmsg(&msg, OpFlags::empty()) }.unwrap();
        });
    }
}

#[test]
fn tagged_and_untagged_messages_do_not_match() {
    let pair = provider::with_defaults().pair();
    pair.b.recv(&Rx::msg(8).context(1));
    pair.a.ep.tinject(b"tagged", pair.to_b, 0, None).unwrap();
    pair.assert_no_completion();
    pair.b.recv(&Rx::tagged(0, 8).context(2));
    pair.wait_at_b().assert_entry(received(TAGGED, 2, 6, 0));
    pair.a.ep.inject(b"plain", pair.to_b, None).unwrap();
    pair.wait_at_b().assert_entry(received(MSG, 1, 5, 0));
}
