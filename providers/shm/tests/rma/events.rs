//! Counters and notifications of the target.

use std::sync::Arc;

use selvedge::{Counter, MrMode, cntr};
use selvedge_testkit::local::{LocalEndpoint, until};

use crate::common::{PROTOCOLS, RmaPair, Write, info, remote_write_entry};

type Counters = (Arc<dyn Counter>, Arc<dyn Counter>);

/// Opens a side with counters of remote reads and remote writes.
fn open_counting_side(protocol: &str) -> (LocalEndpoint, Counters) {
    let info = info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty());
    let mut counters = None;
    let side = LocalEndpoint::open_with(&info, |context, config| {
        let open = || context.domain().cntr(&cntr::Attr::default()).unwrap();
        let (read_cntr, write_cntr) = (open(), open());
        config.counters.remote_read = Some(Arc::clone(&read_cntr));
        config.counters.remote_write = Some(Arc::clone(&write_cntr));
        counters = Some((read_cntr, write_cntr));
    });
    (side, counters.unwrap())
}

#[test]
fn a_target_that_counts_is_notified_of_every_access() {
    for protocol in PROTOCOLS {
        let (b, (read_cntr, write_cntr)) = open_counting_side(protocol);
        let a = LocalEndpoint::open(&info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty()));
        let pair = RmaPair::connect(a, b, 100_000);
        for (number, len) in [8, 48, 49, 4096, 100_000].into_iter().enumerate() {
            let count = number as u64 + 1;
            let bytes = vec![1; len];
            let segment = [pair.segment(0, len)];
            pair.write(&Write::new(&[&bytes], &segment)).unwrap();
            pair.read(&segment, &[len]).unwrap();
            until(|| {
                pair.a.progress();
                pair.b.progress();
                (write_cntr.read() == count && read_cntr.read() == count).then_some(())
            });
        }
        pair.settle();
        assert_eq!((write_cntr.read(), read_cntr.read()), (5, 5));
    }
}

#[test]
fn a_target_that_counts_serves_several_requests_at_once() {
    let (b, (read_cntr, write_cntr)) = open_counting_side("bounce");
    let a = LocalEndpoint::open(&info(&[("FI_SHM_PROTOCOL", "bounce")], MrMode::empty()));
    let pair = RmaPair::connect(a, b, 100_000);
    let bytes = vec![1; 100_000];
    let (local, segment) = ([&bytes[..]], [pair.segment(0, 100_000)]);
    let write = Write::new(&local, &segment);
    pair.write(&write).unwrap();
    for _ in 0..8 {
        assert_eq!(write.post(&pair.a.ep, pair.to_b), Ok(()));
    }
    for _ in 0..8 {
        pair.wait_at_a().unwrap();
    }
    until(|| {
        pair.b.progress();
        (write_cntr.read() == 9).then_some(())
    });
    assert_eq!(read_cntr.read(), 0);
}

#[test]
fn selective_queues_report_remote_data_of_unreported_writes() {
    let info = info(&[], MrMode::empty());
    let b = LocalEndpoint::open_with(&info, |_, config| config.rx_selective = true);
    let a = LocalEndpoint::open_with(&info, |_, config| config.tx_selective = true);
    let pair = RmaPair::connect(a, b, 64);
    let segment = [pair.segment(0, 8)];
    let unreported = Write::new(&[b"12345678"], &segment).data(5);
    pair.post(&unreported);
    assert_eq!(pair.wait_at_b().unwrap(), remote_write_entry(5, 8));
    pair.settle();
    assert!(pair.a.poll().is_none(), "the write requested no completion");
    let reported = Write {
        flags: selvedge::OpFlags::COMPLETION,
        ..unreported
    };
    pair.post(&reported);
    pair.wait_at_a().unwrap();
}
