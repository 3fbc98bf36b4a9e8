//! Deferred work that has no room when its counter reaches the threshold. A parked thread of the
//! domain executes the work when the endpoint has room, even if another thread has tried first.

#![expect(unsafe_code, reason = "a post of memory that is never freed")]

use std::thread;
use std::time::{Duration, Instant};

use selvedge::trigger::{Action, CompletionTarget, Work};
use selvedge::{Context, Desc, Errno, Iov, Op, OpFlags, cntr, cq, msg};

use crate::LIMIT;
use crate::endpoint::ParkingEndpoint;

/// The time for which one thread polls while the other thread is parked and checks for room
/// periodically.
const POLL_TIME: Duration = Duration::from_millis(50);

#[test]
fn a_parked_thread_carries_out_work_that_another_one_has_tried() {
    let (shared, peer) = (ParkingEndpoint::open("shm"), ParkingEndpoint::open("shm"));
    let (to_peer, to_shared) = (shared.insert_endpoint(&peer), peer.insert_endpoint(&shared));
    (0..2).for_each(|_| shared.post_receive());
    peer.ep.inject(b"parked", to_shared, None).unwrap();
    shared.receive(1, Some(&peer));
    let mut messages = 1;
    while shared.ep.inject(b"parked", to_peer, None) != Err(Errno::Again) {
        messages += 1;
    }
    // A read of a queue without endpoints drives only the domain's deferred work.
    let unbound_cq = shared.domain().cq(&cq::Attr::default()).unwrap();
    let trigger = shared.domain().cntr(&cntr::Attr::default()).unwrap();
    let send = Op::Send(msg::SendMsg {
        iov: &[Iov::new(b"parked")],
        desc: &[Desc::NONE],
        dest: to_peer,
        context: Context(0),
        data: 0,
    });
    let work = Work {
        cntr: &trigger,
        threshold: 1,
        action: Action::Post {
            ep: &shared.ep,
            op: send,
            flags: OpFlags::DEFAULT,
            done: CompletionTarget::Endpoint,
        },
    };
    // SAFETY: the memory is never freed nor written.
    unsafe { shared.domain().queue_work(&work) }.unwrap();
    thread::scope(|scope| {
        let parked = scope.spawn(|| shared.received.wait(2, Some(2 * LIMIT)));
        thread::sleep(POLL_TIME);
        trigger.add(1);
        let start = Instant::now();
        while start.elapsed() < POLL_TIME {
            unbound_cq.read(&mut []).unwrap();
        }
        // From this point only the parked thread executes deferred work.
        (0..messages).for_each(|_| peer.post_receive());
        peer.receive(messages, None);
        peer.ep.inject(b"parked", to_shared, None).unwrap();
        assert_eq!(parked.join().unwrap(), Ok(()));
    });
}
