//! Parked threads, and automatic progress.

use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::{self, Entry};
use selvedge::info::{EpType, Progress};
use selvedge::{Bindings, Context, FiAddr, av, wait};

use crate::side::{Side, info, pattern, until};

/// Opens a side whose completion queue has the wait object `object`. A thread that waits for the
/// queue parks without polling first.
pub(crate) fn parking_side(object: wait::Object, progress: Progress) -> Side {
    let mut info = info(EpType::Rdm, &[("FI_TCP_SPIN_TIME", "0s")]);
    info.domain_attr.data_progress = progress;
    let domain = info.open().unwrap();
    let mut attr = cq::Attr::default();
    attr.wait_obj = object;
    let cq = domain.cq(&attr).unwrap();
    let av = domain.av(&av::Attr::default()).unwrap();
    let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
    let ep = domain.endpoint(&info, bindings).unwrap();
    Side::from_parts(ep, cq, av, domain)
}

#[test]
fn a_parked_thread_is_woken_by_messages_of_every_size() {
    for object in [wait::Object::Unspec, wait::Object::Fd, wait::Object::Yield] {
        let (a, b) = (Side::new(), parking_side(object, Progress::Manual));
        let to_b = a.insert_peer(&b);
        for len in [0, 8, 5000, 3 << 20] {
            let bytes = pattern(1, len);
            let buffer = b.trecv(FiAddr::UNSPEC, 1, len, 7);
            let cq = Arc::clone(&b.cq);
            let parked_thread = std::thread::spawn(move || {
                let mut entry = [Entry::default()];
                assert_eq!(cq.wait(&mut entry, Some(Duration::from_secs(60))), Ok(1));
                entry[0].context
            });
            // The thread is usually parked after this pause.
            std::thread::sleep(Duration::from_millis(2));
            a.tsend(to_b, 1, &bytes, 1).unwrap();
            a.wait_for(1, &[]);
            until(|| {
                a.drive();
                parked_thread.is_finished().then_some(())
            });
            assert_eq!(parked_thread.join().unwrap(), Context(7));
            assert_eq!(buffer.bytes(), bytes);
        }
    }
}

#[test]
fn automatic_progress_needs_no_call() {
    let sides = [(); 2].map(|()| parking_side(wait::Object::None, Progress::Auto));
    let [a, b] = &sides;
    let to_b = a.insert_peer(b);
    let bytes = pattern(1, 1 << 20);
    let buffer = b.trecv(FiAddr::UNSPEC, 1, bytes.len(), 7);
    a.tsend(to_b, 1, &bytes, 1).unwrap();
    for (side, context) in [(b, 7), (a, 1)] {
        let mut entry = [Entry::default()];
        until(|| (side.cq.read_ready(&mut entry, &mut [FiAddr(0)]) == Ok(1)).then_some(()));
        assert_eq!(entry[0].context, Context(context));
    }
    assert_eq!(buffer.bytes(), bytes);
}
