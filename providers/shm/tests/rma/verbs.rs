//! Every form of reads and writes, in every size class and by both protocols.

use selvedge::rma::{ReadMsg, RmaIov};
use selvedge::{
    Caps, Context, Desc, Errno, FiAddr, Iov, IovMut, MrMode, MsgOrder, OpFlags, RmaExt, TagMatch,
    TaggedExt, alloc,
};
use selvedge_testkit::local::{LocalEndpoint, until};
use selvedge_testkit::random::Random;

use crate::common::{
    BOTH, KEY, PROTOCOLS, RmaPair, Write, info, read, remote_write_entry, write_entry,
};

/// Lengths around the limits of inline writes with and without data, of the inject pool, of an RTS,
/// and of one copy step.
const SIZES: [usize; 13] = [
    0, 1, 7, 8, 32, 33, 40, 41, 4096, 4097, 65_536, 300_001, 2_500_000,
];

#[test]
fn the_provider_reports_its_rma_capabilities() {
    let info = info(&[], MrMode::empty());
    assert!(info.caps.contains(Caps::RMA | Caps::RMA_EVENT));
    assert!(info.caps.contains(Caps::READ | Caps::WRITE));
    assert!(info.caps.contains(Caps::REMOTE_READ | Caps::REMOTE_WRITE));
    assert_eq!(info.tx_attr.rma_iov_limit, 4);
    let rma = MsgOrder::all() - MsgOrder::ATOMIC_RAR - MsgOrder::ATOMIC_RAW;
    let rma = rma - MsgOrder::ATOMIC_WAR - MsgOrder::ATOMIC_WAW;
    assert_eq!(info.tx_attr.msg_order & rma, MsgOrder::SAS);
    assert_eq!(info.domain_attr.mr_mode, MrMode::empty());
    assert_eq!(info.domain_attr.mr_key_size, 8);
}

#[test]
fn discovery_returns_the_mr_mode_bits_that_registration_needs() {
    let all = MrMode::VIRT_ADDR | MrMode::PROV_KEY | MrMode::ALLOCATED;
    for (accepted, mode) in [
        (all, MrMode::empty()),
        (MrMode::BASIC, MrMode::BASIC),
        (MrMode::SCALABLE, MrMode::SCALABLE),
    ] {
        assert_eq!(info(&[], accepted).domain_attr.mr_mode, mode);
    }
}

#[test]
fn writes_and_reads_of_every_size_arrive() {
    for protocol in PROTOCOLS {
        let pair = RmaPair::new(protocol, 3_000_000);
        let mut random = Random::new(1);
        for len in SIZES {
            let bytes = random.bytes(len);
            let addr = random.index(100) as u64;
            let segment = [pair.segment(addr, len)];
            let done = pair.write(&Write::new(&[&bytes], &segment)).unwrap();
            assert_eq!(done, write_entry(9), "{protocol} {len}");
            pair.settle();
            let stored = pair.memory.bytes();
            assert!(stored[addr as usize..][..len] == bytes, "{protocol} {len}");
            let read = pair.read(&segment, &[len]).unwrap();
            assert!(read == bytes, "{protocol} {len}");
        }
    }
}

#[test]
fn several_local_segments_are_written_to_several_remote_ones() {
    for protocol in PROTOCOLS {
        let pair = RmaPair::new(protocol, 1_000_000);
        let mut random = Random::new(2);
        for len in [24, 4000, 400_000] {
            let (bytes, third) = (random.bytes(len), len / 3);
            let (one, rest) = bytes.split_at(third);
            let (two, three) = rest.split_at(5);
            let remote = [
                pair.segment(600_000, 3),
                pair.segment(10, 0),
                pair.segment(100_000, len - 10),
                pair.segment(7, 7),
            ];
            let done = pair.write(&Write::new(&[one, two, &[], three], &remote));
            assert_eq!(done.unwrap(), write_entry(9));
            pair.settle();
            let stored = pair.memory.bytes();
            assert_eq!(stored[600_000..][..3], bytes[..3]);
            assert!(stored[100_000..][..len - 10] == bytes[3..len - 7]);
            assert_eq!(stored[7..][..7], bytes[len - 7..]);
            let read = pair.read(&remote, &[1, len - 2, 0, 1]).unwrap();
            assert!(read == bytes, "{protocol} {len}");
        }
    }
}

#[test]
fn remote_data_is_reported_after_the_bytes_are_stored() {
    for protocol in PROTOCOLS {
        let pair = RmaPair::new(protocol, 3_000_000);
        let mut random = Random::new(3);
        for len in SIZES {
            let bytes = random.bytes(len);
            let (local, segment) = ([&bytes[..]], [pair.segment(0, len)]);
            let write = Write::new(&local, &segment).data(0x1234_5678_9abc_def0);
            pair.post(&write);
            let entry = pair.wait_at_b().unwrap();
            assert_eq!(
                entry,
                remote_write_entry(0x1234_5678_9abc_def0, len),
                "{protocol} {len}"
            );
            assert!(
                pair.memory.bytes()[..len] == bytes,
                "the bytes arrive before the data"
            );
            assert_eq!(pair.wait_at_a().unwrap(), write_entry(9));
        }
    }
}

#[test]
fn short_forms_behave_as_the_man_page_states() {
    let pair = RmaPair::new("auto", 4096);
    let (ep, dest) = (&pair.a.ep, pair.to_b);
    let bytes = *b"sixteen bytes!!!";
    let iov = [Iov::new(&bytes[..4]), Iov::new(&bytes[4..])];
    // SAFETY: the buffers outlive the completions, which are waited for.
    unsafe { ep.write(iov[0], Desc::NONE, dest, 0, KEY, Context(1)) }.unwrap();
    // SAFETY: as above.
    unsafe { ep.writev(&iov, &[], dest, 100, KEY, Context(2)) }.unwrap();
    // SAFETY: as above.
    unsafe { ep.writedata(iov[1], Desc::NONE, 77, dest, 200, KEY, Context(3)) }.unwrap();
    ep.inject_write(&bytes, dest, 300, KEY, None).unwrap();
    ep.inject_writedata(&bytes, 78, dest, 400, KEY).unwrap();
    let contexts: Vec<_> = (0..3)
        .map(|_| pair.wait_at_a().unwrap().context.0)
        .collect();
    assert_eq!(contexts, [1, 2, 3]);
    assert_eq!(pair.wait_at_b().unwrap(), remote_write_entry(77, 12));
    assert_eq!(pair.wait_at_b().unwrap(), remote_write_entry(78, 16));
    let stored = pair.memory.bytes();
    assert_eq!(stored[..4], bytes[..4]);
    assert_eq!(stored[100..116], bytes);
    assert_eq!(stored[200..212], bytes[4..]);
    assert_eq!(
        (&stored[300..316], &stored[400..416]),
        (&bytes[..], &bytes[..])
    );
    assert!(pair.a.poll().is_none(), "injects do not complete");

    let (mut one, mut two) = ([0; 3], [0; 13]);
    let iov = [IovMut::new(&mut one), IovMut::new(&mut two)];
    // SAFETY: as above.
    unsafe { ep.readv(&iov, &[], dest, 100, KEY, Context(4)) }.unwrap();
    assert_eq!(pair.wait_at_a().unwrap().context, Context(4));
    assert_eq!([&one[..], &two[..]].concat(), bytes);
    let mut all = [0; 16];
    // SAFETY: as above.
    unsafe {
        ep.read(
            IovMut::new(&mut all),
            Desc::NONE,
            dest,
            400,
            KEY,
            Context(5),
        )
    }
    .unwrap();
    assert_eq!(pair.wait_at_a().unwrap().context, Context(5));
    assert_eq!(all, bytes);
}

#[test]
fn reads_need_no_progress_of_a_connected_target() {
    let pair = RmaPair::new("cma", 1 << 20);
    pair.memory.put(0, b"here");
    pair.read(&[pair.segment(0, 4)], &[4]).unwrap();
    pair.memory.put(0, b"anew");
    let mut bytes = vec![0; 1 << 20];
    let iov = IovMut::new(&mut bytes);
    // SAFETY: the buffer outlives the completion.
    unsafe {
        pair.a
            .ep
            .read(iov, Desc::NONE, pair.to_b, 0, KEY, Context(1))
    }
    .unwrap();
    let done = until(|| pair.a.poll());
    assert_eq!(done.unwrap().context, Context(1));
    assert_eq!(&bytes[..4], b"anew");
}

#[test]
fn peers_connect_while_a_caller_reads_special_memory_in_a_loop() {
    let pair = RmaPair::new("auto", 8);
    let info = info(&[], MrMode::empty());
    let attr = alloc::Attr::new(BOTH).with_key(KEY + 1);
    let _memory = pair.b.domain().alloc(8, &attr).unwrap();
    let segment = [RmaIov {
        addr: 0,
        len: 8,
        key: KEY + 1,
    }];
    read(&pair.a, &[&pair.b], pair.to_b, &segment, &[8]).unwrap();
    let third = LocalEndpoint::open(&info);
    let to_a = third.insert_endpoint(&pair.a);
    let (mut buffer, mut bytes) = ([0; 8], [0; 8]);
    // SAFETY: the buffer outlives the endpoint's use of it: its completion is waited for.
    unsafe {
        let iov = IovMut::new(&mut buffer);
        pair.a.ep.trecv(
            iov,
            Desc::NONE,
            FiAddr::UNSPEC,
            TagMatch::exact(5),
            Context(2),
        )
    }
    .unwrap();
    third.ep.tinject(b"8 bytes!", to_a, 5, None).unwrap();
    let message = until(|| {
        // SAFETY: as above; a read of special memory is complete when the post returns.
        unsafe {
            let iov = IovMut::new(&mut bytes);
            pair.a
                .ep
                .read(iov, Desc::NONE, pair.to_b, 0, KEY + 1, Context(1))
        }
        .unwrap();
        let entry = pair
            .a
            .poll()
            .expect("a read of special memory completes in the post")
            .unwrap();
        (entry.context != Context(1)).then_some(entry)
    });
    assert_eq!((message.context, &buffer), (Context(2), b"8 bytes!"));
}

#[test]
fn an_endpoint_reads_and_writes_its_own_memory() {
    for protocol in PROTOCOLS {
        let info = info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty());
        let side = LocalEndpoint::open(&info);
        let to_self = side.insert_endpoint(&side);
        let memory = side.memory(100_000);
        let _region = side.register(&memory, BOTH, KEY);
        for len in [8, 4000, 100_000] {
            let bytes = Random::new(len as u64).bytes(len);
            let (local, segment) = (
                [&bytes[..]],
                [RmaIov {
                    addr: 0,
                    len,
                    key: KEY,
                }],
            );
            let write = Write::new(&local, &segment)
                .flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
            side.post_retrying(&[], || write.post(&side.ep, to_self));
            side.wait(&[]).unwrap();
            assert!(memory.bytes()[..len] == bytes);
            let read = read(&side, &[], to_self, &segment, &[len]).unwrap();
            assert!(read == bytes);
        }
    }
}

#[test]
fn addresses_and_keys_follow_the_mr_mode() {
    for mode in [MrMode::VIRT_ADDR, MrMode::PROV_KEY, MrMode::BASIC] {
        let mut info = info(&[], MrMode::empty());
        info.domain_attr.mr_mode = mode;
        let pair = RmaPair::open(&info, 64);
        let by_address = pair.b.domain().mr_mode().contains(MrMode::VIRT_ADDR);
        let by_provider = pair.b.domain().mr_mode().contains(MrMode::PROV_KEY);
        assert_eq!(by_provider, pair.rights.key() != KEY);
        let first = if by_address { pair.memory.address() } else { 0 };
        pair.write(&Write::new(&[b"abc"], &[pair.segment(first + 5, 3)]))
            .unwrap();
        pair.settle();
        assert_eq!(&pair.memory.bytes()[5..8], b"abc");
        assert_eq!(
            pair.read(&[pair.segment(first + 6, 2)], &[2]).unwrap(),
            b"bc"
        );
    }
}

#[test]
fn a_write_with_delivery_complete_is_stored_when_it_completes() {
    for protocol in PROTOCOLS {
        let pair = RmaPair::new(protocol, 100_000);
        for len in [8, 1000, 100_000] {
            let bytes = Random::new(len as u64).bytes(len);
            let (local, segment) = ([&bytes[..]], [pair.segment(0, len)]);
            let write = Write::new(&local, &segment)
                .flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
            pair.post(&write);
            for _ in 0..100 {
                assert!(pair.a.poll().is_none(), "the target has made no progress");
            }
            pair.wait_at_a().unwrap();
            assert!(pair.memory.bytes()[..len] == bytes);
        }
    }
}

#[test]
fn an_injected_write_may_be_overwritten_at_once() {
    let pair = RmaPair::new("auto", 4096);
    let mut bytes = vec![3; 4096];
    pair.a
        .ep
        .inject_write(&bytes, pair.to_b, 0, KEY, None)
        .unwrap();
    bytes.fill(4);
    pair.settle();
    assert!(pair.memory.bytes() == vec![3; 4096]);
    // This write is also longer than the region.
    let long = vec![0; 4097];
    let refused = pair.a.ep.inject_write(&long, pair.to_b, 0, KEY, None);
    assert_eq!(refused, Err(Errno::MsgSize));
}

/// Small writes are executed in the order of their posts, also among writes of other sizes.
#[test]
fn writes_up_to_the_inject_size_are_in_order() {
    let pair = RmaPair::new("auto", 4096);
    let mut random = Random::new(4);
    let mut last = None;
    let mut inject = |bytes: &[u8], data| {
        until(|| {
            let posted = pair.a.ep.inject_write(bytes, pair.to_b, 0, KEY, data);
            if let Some(entry) = pair.b.poll() {
                let number = entry.unwrap().data;
                assert!(last < Some(number), "{number} behind {last:?}");
                last = Some(number);
            }
            posted.is_ok().then_some(())
        });
    };
    for round in 0..2000_u64 {
        let len = 8 + random.index(4088);
        inject(&vec![round as u8; len], None);
        inject(&round.to_ne_bytes(), Some(round));
    }
    while last != Some(1999) {
        last = Some(pair.wait_at_b().unwrap().data);
    }
    assert_eq!(pair.memory.bytes()[..8], 1999_u64.to_ne_bytes());
}

/// An earlier write is stored before a later message is received, also while the target is not
/// connected yet.
#[test]
fn a_small_write_is_stored_before_a_later_message_is_received() {
    for flood in [0, 300] {
        let pair = RmaPair::new("auto", 64);
        let mut buffer = [0_u8; 8];
        let iov = IovMut::new(&mut buffer);
        // SAFETY: the buffer outlives the completion, which is waited for.
        unsafe {
            pair.b.ep.trecv(
                iov,
                Desc::NONE,
                FiAddr::UNSPEC,
                TagMatch::exact(6),
                Context(1),
            )
        }
        .unwrap();
        for number in 0..=flood {
            let write = || {
                pair.a
                    .ep
                    .inject_write(b"written!", pair.to_b, 8 * (number % 8), KEY, None)
            };
            pair.a.post_retrying(&[&pair.b], write);
        }
        pair.a.post_retrying(&[&pair.b], || {
            pair.a.ep.tinject(b"message!", pair.to_b, 6, None)
        });
        let entry = pair.wait_at_b().unwrap();
        assert_eq!(entry.context, Context(1));
        assert_eq!(&pair.memory.bytes()[..8], b"written!");
        assert_eq!(&buffer, b"message!");
    }
}

#[test]
fn a_fenced_read_returns_the_bytes_of_earlier_writes() {
    let pair = RmaPair::new("cma", 200_000);
    pair.read(&[pair.segment(0, 8)], &[8]).unwrap();
    let (large, small) = (vec![1; 200_000], [2; 8]);
    let segment = [pair.segment(0, 200_000)];
    let local = [&large[..]];
    Write::new(&local, &segment)
        .post(&pair.a.ep, pair.to_b)
        .unwrap();
    pair.a
        .ep
        .inject_write(&small, pair.to_b, 8, KEY, None)
        .unwrap();
    let mut read = [0; 24];
    let iov = [IovMut::new(&mut read)];
    let msg = ReadMsg {
        iov: &iov,
        desc: &[],
        src: pair.to_b,
        rma_iov: &[pair.segment(0, 24)],
        context: Context(3),
    };
    let flags = OpFlags::FENCE | OpFlags::COMPLETION;
    // SAFETY: the buffer outlives the completion, which is waited for.
    let fenced = || unsafe { pair.a.ep.readmsg(&msg, flags) };
    assert_eq!(
        fenced(),
        Err(Errno::Again),
        "the large write is not complete"
    );
    assert_eq!(pair.wait_at_a().unwrap(), write_entry(9));
    assert_eq!(fenced(), Ok(()));
    let after = pair.a.ep.inject_write(&small, pair.to_b, 0, KEY, None);
    assert_eq!(after, Err(Errno::Again), "the fenced read is not complete");
    assert_eq!(pair.wait_at_a().unwrap().context, Context(3));
    // The two writes used two protocols: either may have been the last.
    assert_eq!([&read[..8], &read[16..]], [&large[..8], &large[..8]]);
    assert_ne!(read[8], 0);
    pair.a
        .ep
        .inject_write(&small, pair.to_b, 0, KEY, None)
        .unwrap();
}

/// A small write completes when it is sent, or, by the parameter, when it is stored at the target.
#[test]
fn a_parameter_makes_every_write_complete_on_delivery() {
    for (value, is_stored) in [("transmit", false), ("delivery", true)] {
        let pair = RmaPair::with_params(&[("FI_SHM_WRITE_COMPLETE", value)], 64);
        let (first, second) = ([1; 8], [2; 8]);
        pair.write(&Write::new(&[&first], &[pair.segment(0, 8)]))
            .unwrap();
        pair.settle();
        let (local, remote) = ([&second[..]], [pair.segment(0, 8)]);
        let write = Write::new(&local, &remote);
        write.post(&pair.a.ep, pair.to_b).unwrap();
        let early = pair.a.poll();
        assert_eq!(early.is_none(), is_stored, "{value}: {early:?}");
        if is_stored {
            assert_eq!(pair.wait_at_a().unwrap(), write_entry(9));
            assert_eq!(pair.memory.bytes()[..8], second);
        }
    }
}
