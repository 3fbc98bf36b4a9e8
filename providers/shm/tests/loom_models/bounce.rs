//! Bounce memory: the sender refills a segment only after the receiver has copied it out and freed
//! it.

use loom::thread;
use selvedge_shm::smr::bounce::{BounceReceiver, BounceSender, Filled, Shape};
use selvedge_shm::smr::model::Fault;
use selvedge_shm::smr::resp_queue::{Resp, RespSender};

use super::{attach_peer, catches, explore, fails, region, wait};

const SHAPE: Shape = Shape { count: 2, size: 64 };
/// One message more than there are segments.
const SEGMENTS: u8 = 3;

/// The order of the consumer's copy and its release of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyOrder {
    CopyFirst,
    FreeFirst,
}

fn attached_bounce_memory() -> (BounceSender, BounceReceiver) {
    let sender = BounceSender::create(None, SHAPE).unwrap();
    let fd = sender.memory().fd().try_clone_to_owned().unwrap();
    let receiver = BounceReceiver::attach(fd, SHAPE).unwrap();
    (sender, receiver)
}

fn fill(sender: &mut BounceSender, content: u8) -> usize {
    sender.fill(u32::from(content), 64, |bytes, offset, len| {
        bytes.copy_in(offset, &vec![content; len]);
    })
}

fn free_segment(responses: &mut RespSender, filled: Filled) {
    let (msg_id, status) = (filled.segment, 3);
    responses.push(Resp { msg_id, status });
}

fn take(receiver: &mut BounceReceiver, responses: &mut RespSender, order: CopyOrder) -> Option<u8> {
    let filled = receiver.peek().unwrap()?;
    receiver.take();
    if order == CopyOrder::FreeFirst {
        free_segment(responses, filled);
    }
    let mut bytes = [std::mem::MaybeUninit::uninit(); 64];
    let bytes = receiver
        .bytes()
        .copy_out(receiver.start(filled), &mut bytes);
    assert_eq!((filled.msg_id, filled.len), (u32::from(bytes[0]), 64));
    assert!(bytes.iter().all(|&byte| byte == bytes[0]));
    if order == CopyOrder::CopyFirst {
        free_segment(responses, filled);
    }
    Some(bytes[0])
}

fn segments_pass(order: CopyOrder) {
    let remote = region();
    let (mut sender, mut receiver) = attached_bounce_memory();
    let mut responses = attach_peer(&remote).resp_receiver();
    let producer = thread::spawn(move || {
        for content in 0..SEGMENTS {
            if sender.free() == 0 {
                let response = wait(|| responses.pop());
                assert!(sender.free_segment(response.msg_id));
            }
            assert_eq!(fill(&mut sender, content), 64);
        }
    });
    let mut out = remote.resp_sender();
    for content in 0..SEGMENTS {
        let content_received = wait(|| take(&mut receiver, &mut out, order));
        assert_eq!(content_received, content);
    }
    producer.join().unwrap();
}

#[test]
fn segments_arrive_whole_and_in_order() {
    explore(|| segments_pass(CopyOrder::CopyFirst));
}

#[test]
fn a_segment_without_release_is_noticed() {
    assert!(catches(Fault::Commit, || segments_pass(
        CopyOrder::CopyFirst
    )));
}

#[test]
fn a_segment_that_is_given_back_before_its_copy_is_noticed() {
    assert!(fails(|| segments_pass(CopyOrder::FreeFirst)));
}

/// A producer that ends before it announces its second segment has sent one segment: the consumer
/// does not read the bytes of the second one.
fn producer_ends_while_it_fills() {
    let remote = region();
    let (mut sender, mut receiver) = attached_bounce_memory();
    let producer = thread::spawn(move || {
        fill(&mut sender, 0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            sender.fill(1, 64, |bytes, offset, _| {
                bytes.copy_in(offset, &[1; 32]);
                std::panic::resume_unwind(Box::new("the producer ends"));
            })
        }));
        assert!(result.is_err());
    });
    let mut out = remote.resp_sender();
    let content_received = wait(|| take(&mut receiver, &mut out, CopyOrder::CopyFirst));
    assert_eq!(content_received, 0);
    producer.join().unwrap();
    assert_eq!(receiver.peek(), Ok(None));
}

#[test]
fn a_producer_that_ends_while_it_fills_has_sent_earlier_segments() {
    explore(producer_ends_while_it_fills);
}
