//! Parked threads, and automatic progress.

use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::{self, Entry};
use selvedge::info::{EpType, Progress};
use selvedge::{Context, FiAddr, wait};
use selvedge_testkit::local::until;

use crate::endpoint::{CopyingEndpoint, info, pattern};

/// Opens an endpoint whose completion queue has the wait object `object`. A thread that waits for
/// the queue parks without polling first.
pub(crate) fn open_parking(object: wait::Object, progress: Progress) -> CopyingEndpoint {
    let mut info = info(EpType::Rdm, &[("FI_TCP_SPIN_TIME", "0s")]);
    info.domain_attr.data_progress = progress;
    CopyingEndpoint::open_with(&info, |domain, config| {
        let mut attr = cq::Attr::default();
        attr.wait_obj = object;
        config.rx = Some(domain.queue_with(&attr).unwrap());
    })
}

#[test]
fn a_parked_thread_is_woken_by_messages_of_every_size() {
    for object in [wait::Object::Unspec, wait::Object::Fd, wait::Object::Yield] {
        let (a, b) = (
            CopyingEndpoint::new(),
            open_parking(object, Progress::Manual),
        );
        let to_b = a.insert_endpoint(&b);
        for len in [0, 8, 5000, 3 << 20] {
            let bytes = pattern(1, len);
            let buffer = b.trecv(FiAddr::UNSPEC, 1, len, 7);
            let cq = Arc::clone(b.cq());
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
                a.progress();
                parked_thread.is_finished().then_some(())
            });
            assert_eq!(parked_thread.join().unwrap(), Context(7));
            assert_eq!(buffer.bytes(), bytes);
        }
    }
}

#[test]
fn automatic_progress_needs_no_call() {
    let sides = [(); 2].map(|()| open_parking(wait::Object::None, Progress::Auto));
    let [a, b] = &sides;
    let to_b = a.insert_endpoint(b);
    let bytes = pattern(1, 1 << 20);
    let buffer = b.trecv(FiAddr::UNSPEC, 1, bytes.len(), 7);
    a.tsend(to_b, 1, &bytes, 1).unwrap();
    for (side, context) in [(b, 7), (a, 1)] {
        let mut entry = [Entry::default()];
        until(|| (side.cq().read_ready(&mut entry, &mut [FiAddr(0)]) == Ok(1)).then_some(()));
        assert_eq!(entry[0].context, Context(context));
    }
    assert_eq!(buffer.bytes(), bytes);
}
