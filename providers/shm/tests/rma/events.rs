//! Counters and notifications of the target.

use std::sync::Arc;

use selvedge::{Counter, MrMode, cntr};

use crate::common::{
    PROTOCOLS, Pair, Side, Write, info, post_until_accepted, remote_write_entry, until,
};

type Counters = (Arc<dyn Counter>, Arc<dyn Counter>);

fn counting(protocol: &str) -> (Side, Counters) {
    let info = info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty());
    let mut counters = None;
    let side = Side::open(&info, |domain, bind| {
        let open = || domain.cntr(&cntr::Attr::default()).unwrap();
        let (read, write_entry) = (open(), open());
        bind.cntrs.remote_read = Some(Arc::clone(&read));
        bind.cntrs.remote_write = Some(Arc::clone(&write_entry));
        counters = Some((read, write_entry));
    });
    (side, counters.unwrap())
}

#[test]
fn a_target_that_counts_is_notified_of_every_access() {
    for protocol in PROTOCOLS {
        let (b, (read, write_entry)) = counting(protocol);
        let a = Side::open(
            &info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty()),
            |_, _| (),
        );
        let pair = Pair::of(a, b, 100_000);
        for (number, len) in [8, 48, 49, 4096, 100_000].into_iter().enumerate() {
            let count = number as u64 + 1;
            let bytes = vec![1; len];
            let segment = [pair.segment(0, len)];
            pair.write(&Write::new(&[&bytes], &segment)).unwrap();
            pair.read(&segment, &[len]).unwrap();
            until(|| {
                pair.a.progress();
                pair.b.progress();
                (write_entry.read() == count && read.read() == count).then_some(())
            });
        }
        pair.settle();
        assert_eq!((write_entry.read(), read.read()), (5, 5));
    }
}

#[test]
fn a_target_that_counts_serves_several_requests_at_once() {
    let (b, (read, write_entry)) = counting("bounce");
    let a = Side::open(
        &info(&[("FI_SHM_PROTOCOL", "bounce")], MrMode::empty()),
        |_, _| (),
    );
    let pair = Pair::of(a, b, 100_000);
    let bytes = vec![1; 100_000];
    let (local, segment) = ([&bytes[..]], [pair.segment(0, 100_000)]);
    let write = Write::new(&local, &segment);
    pair.write(&write).unwrap();
    for _ in 0..8 {
        assert_eq!(write.post(&pair.a.ep, pair.to_b), Ok(()));
    }
    for _ in 0..8 {
        pair.a.wait(&pair.b).unwrap();
    }
    until(|| {
        pair.b.progress();
        (write_entry.read() == 9).then_some(())
    });
    assert_eq!(read.read(), 0);
}

#[test]
fn selective_queues_report_data_of_writes_all_the_same() {
    let info = info(&[], MrMode::empty());
    let b = Side::open(&info, |_, bind| bind.rx_selective = true);
    let a = Side::open(&info, |_, bind| bind.tx_selective = true);
    let pair = Pair::of(a, b, 64);
    let segment = [pair.segment(0, 8)];
    let unreported = Write::new(&[b"12345678"], &segment).data(5);
    post_until_accepted(&pair.b, || unreported.post(&pair.a.ep, pair.to_b));
    assert_eq!(pair.b.wait(&pair.a).unwrap(), remote_write_entry(5, 8));
    pair.settle();
    assert!(pair.a.poll().is_none(), "the write requested no completion");
    let reported = Write {
        flags: selvedge::OpFlags::COMPLETION,
        ..unreported
    };
    post_until_accepted(&pair.b, || reported.post(&pair.a.ep, pair.to_b));
    pair.a.wait(&pair.b).unwrap();
}
