//! Work that waits at a counter, for which there is no room when it is due: a thread that is parked for
//! the domain carries it out when there is, also if another thread was the first to try.

#![expect(unsafe_code, reason = "work keeps memory")]

use std::thread;
use std::time::{Duration, Instant};

use selvedge::trigger::{Action, CompletionTarget, Work};
use selvedge::{Context, Desc, Errno, Iov, Op, OpFlags, cntr, cq, msg};

use crate::LIMIT;
use crate::side::Side;

/// For how long a thread polls beside the parked one, which looks for room now and then.
const BESIDE: Duration = Duration::from_millis(50);

#[test]
fn a_parked_thread_carries_out_work_that_another_one_has_tried() {
    let (shared, peer) = (Side::open("shm"), Side::open("shm"));
    let (to_peer, to_shared) = (shared.insert(&peer), peer.insert(&shared));
    (0..2).for_each(|_| shared.post_receive());
    peer.ep.inject(b"parked", to_shared, None).unwrap();
    shared.receive(1, Some(&peer));
    let mut messages = 1;
    while shared.ep.inject(b"parked", to_peer, None) != Err(Errno::Again) {
        messages += 1;
    }
    // It drives the domain's work alone.
    let no_endpoint = shared.domain.cq(&cq::Attr::default()).unwrap();
    let trigger = shared.domain.cntr(&cntr::Attr::default()).unwrap();
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
    unsafe { shared.domain.queue_work(&work) }.unwrap();
    thread::scope(|scope| {
        let parked = scope.spawn(|| shared.received.wait(2, Some(2 * LIMIT)));
        thread::sleep(BESIDE);
        trigger.add(1);
        let start = Instant::now();
        while start.elapsed() < BESIDE {
            no_endpoint.read(&mut []).unwrap();
        }
        // From here on the parked thread alone carries work out.
        (0..messages).for_each(|_| peer.post_receive());
        peer.receive(messages, None);
        peer.ep.inject(b"parked", to_shared, None).unwrap();
        assert_eq!(parked.join().unwrap(), Ok(()));
    });
}
