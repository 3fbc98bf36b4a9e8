//! What the target counts, and what it is told.

use std::sync::Arc;

use selvedge::{Counter, MrMode, cntr};

use crate::common::{Pair, Side, WAYS, Write, info, patiently, told, until};

type Counters = (Arc<dyn Counter>, Arc<dyn Counter>);

fn counting(way: &str) -> (Side, Counters) {
    let info = info(&[("FI_SHM_PROTOCOL", way)], MrMode::empty());
    let mut counters = None;
    let side = Side::open(&info, |domain, bind| {
        let open = || domain.cntr(&cntr::Attr::default()).unwrap();
        let (read, written) = (open(), open());
        bind.cntrs.remote_read = Some(Arc::clone(&read));
        bind.cntrs.remote_write = Some(Arc::clone(&written));
        counters = Some((read, written));
    });
    (side, counters.unwrap())
}

#[test]
fn a_target_that_counts_is_notified_of_every_access() {
    for way in WAYS {
        let (b, (read, written)) = counting(way);
        let a = Side::open(
            &info(&[("FI_SHM_PROTOCOL", way)], MrMode::empty()),
            |_, _| (),
        );
        let pair = Pair::of(a, b, 100_000);
        for (number, len) in [8, 48, 49, 4096, 100_000].into_iter().enumerate() {
            let count = number as u64 + 1;
            let bytes = vec![1; len];
            let place = [pair.place(0, len)];
            pair.write(&Write::new(&[&bytes], &place)).unwrap();
            pair.read(&place, &[len]).unwrap();
            until(|| {
                pair.a.drive();
                pair.b.drive();
                (written.read() == count && read.read() == count).then_some(())
            });
        }
        pair.settle();
        assert_eq!((written.read(), read.read()), (5, 5));
    }
}

#[test]
fn a_target_that_counts_serves_several_requests_at_once() {
    let (b, (read, written)) = counting("bounce");
    let a = Side::open(
        &info(&[("FI_SHM_PROTOCOL", "bounce")], MrMode::empty()),
        |_, _| (),
    );
    let pair = Pair::of(a, b, 100_000);
    let bytes = vec![1; 100_000];
    let (pieces, place) = ([&bytes[..]], [pair.place(0, 100_000)]);
    let write = Write::new(&pieces, &place);
    pair.write(&write).unwrap();
    for _ in 0..8 {
        assert_eq!(write.post(&pair.a.ep, pair.to_b), Ok(()));
    }
    for _ in 0..8 {
        pair.a.wait(&pair.b).unwrap();
    }
    until(|| {
        pair.b.drive();
        (written.read() == 9).then_some(())
    });
    assert_eq!(read.read(), 0);
}

#[test]
fn selective_queues_report_data_of_writes_all_the_same() {
    let info = info(&[], MrMode::empty());
    let b = Side::open(&info, |_, bind| bind.rx_selective = true);
    let a = Side::open(&info, |_, bind| bind.tx_selective = true);
    let pair = Pair::of(a, b, 64);
    let place = [pair.place(0, 8)];
    let quiet = Write::new(&[b"12345678"], &place).data(5);
    patiently(&pair.b, || quiet.post(&pair.a.ep, pair.to_b));
    assert_eq!(pair.b.wait(&pair.a).unwrap(), told(5, 8));
    pair.settle();
    assert!(pair.a.poll().is_none(), "nobody has asked for it");
    let reported = Write {
        flags: selvedge::OpFlags::COMPLETION,
        ..quiet
    };
    patiently(&pair.b, || reported.post(&pair.a.ep, pair.to_b));
    pair.a.wait(&pair.b).unwrap();
}
