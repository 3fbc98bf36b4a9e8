//! Frames against bytes that were seen on the wire, and against any bytes.

use proptest::prelude::*;

use super::*;

fn encoded(head: &Head) -> Vec<u8> {
    let mut bytes = Vec::new();
    head.encode(Order::Own, 0, &mut bytes);
    bytes
}

fn parsed(bytes: &[u8]) -> Result<Head, Nonsense> {
    let len = length(bytes, Order::Own)?;
    Head::parse(&bytes[..len], Order::Own, false)
}

fn bytes(text: &str) -> Vec<u8> {
    let digits = text.split_whitespace();
    digits
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

fn tagged(tag: u64, data: Option<u64>, len: usize) -> Head {
    Head::Message {
        kind: Kind::Tagged,
        tag,
        data,
        wish: Wish::Never,
        len,
    }
}

fn place(addr: u64, len: usize, key: u64) -> RmaIov {
    RmaIov { addr, len, key }
}

/// Headers of libfabric 2.7, and what they say.
fn seen() -> Vec<(&'static str, Head)> {
    let write = |list: &[RmaIov], wants_answer| Head::Write {
        places: RmaSegments::new(list).unwrap(),
        data: None,
        wants_answer,
    };
    vec![
        (
            "03 01 00 00 00 00 18 00 20 00 00 00 00 00 00 00 88 77 66 55 44 33 22 11",
            tagged(0x1122_3344_5566_7788, None, 8),
        ),
        (
            "03 01 01 00 00 00 20 00 28 00 00 00 00 00 00 00 \
             7a da 7a da 7a da 7a da 65 00 00 00 00 00 00 00",
            tagged(0x65, Some(0xda7a_da7a_da7a_da7a), 8),
        ),
        (
            "03 05 00 00 01 00 20 00 20 00 00 00 00 00 00 00 \
             64 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00",
            Head::Offer {
                id: 1,
                tag: 0x64,
                data: None,
                wants_answer: false,
                len: 65536,
            },
        ),
        (
            "03 06 00 00 01 00 10 00 10 00 00 00 00 00 00 00",
            Head::Clear { id: 1 },
        ),
        (
            "03 07 00 00 01 00 10 00 10 00 01 00 00 00 00 00",
            Head::Data {
                id: 1,
                wants_answer: false,
                len: 65536,
            },
        ),
        (
            "03 00 04 00 00 00 10 00 18 00 00 00 00 00 00 00",
            Head::Message {
                kind: Kind::Msg,
                tag: 0,
                data: None,
                wish: Wish::Arrived,
                len: 8,
            },
        ),
        ("03 00 00 00 02 00 10 00 10 00 00 00 00 00 00 00", Head::Ack),
        (
            "03 04 00 00 00 01 28 00 38 00 00 00 00 00 00 00 \
             20 00 00 00 00 00 00 00 10 00 00 00 00 00 00 00 ee ff c0 00 00 00 00 00",
            write(&[place(0x20, 16, 0x00c0_ffee)], false),
        ),
        (
            "03 04 04 00 00 02 40 00 50 00 00 00 00 00 00 00 \
             80 00 00 00 00 00 00 00 08 00 00 00 00 00 00 00 ee ff c0 00 00 00 00 00 \
             00 01 00 00 00 00 00 00 08 00 00 00 00 00 00 00 ee ff c0 00 00 00 00 00",
            write(
                &[place(0x80, 8, 0x00c0_ffee), place(0x100, 8, 0x00c0_ffee)],
                true,
            ),
        ),
        (
            "03 02 00 00 00 01 28 00 28 00 00 00 00 00 00 00 \
             20 00 00 00 00 00 00 00 10 00 00 00 00 00 00 00 ee ff c0 00 00 00 00 00",
            Head::ReadRequest {
                places: RmaSegments::one(place(0x20, 16, 0x00c0_ffee)),
            },
        ),
    ]
}

#[test]
#[cfg(target_endian = "little")]
fn frames_are_libfabric_s_to_the_byte() {
    for (text, head) in seen() {
        let bytes = bytes(text);
        assert_eq!(parsed(&bytes), Ok(head.clone()), "{text}");
        assert_eq!(encoded(&head), bytes, "{text}");
    }
}

#[test]
#[cfg(target_endian = "little")]
fn what_libfabric_leaves_behind_in_fields_means_nothing() {
    // The count of places on a message, a version that is not looked at, a read response's echo.
    let stale = bytes("03 01 00 00 00 01 18 07 20 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00");
    assert_eq!(parsed(&stale), Ok(tagged(1, None, 8)));
    let version = bytes("07 06 00 00 01 00 10 00 10 00 00 00 00 00 00 00");
    assert_eq!(parsed(&version), Ok(Head::Clear { id: 1 }));
    let echo = bytes("03 03 00 00 00 01 10 00 20 00 00 00 00 00 00 00");
    assert_eq!(
        parsed(&echo),
        Ok(Head::ReadResponse {
            len: 16,
            is_checked: false
        })
    );
    // A header longer than it has to be.
    let slack = bytes(
        "03 01 00 00 00 00 20 00 28 00 00 00 00 00 00 00 \
         01 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff",
    );
    assert_eq!(parsed(&slack), Ok(tagged(1, None, 8)));
}

#[test]
#[cfg(target_endian = "little")]
fn headers_that_contradict_themselves_are_refused() {
    let table = [
        // Shorter than the base, longer than any, not made of words.
        "03 00 00 00 00 00 08 00 10 00 00 00 00 00 00 00",
        "03 00 00 00 00 00 80 00 80 00 00 00 00 00 00 00",
        "03 00 00 00 00 00 14 00 20 00 00 00 00 00 00 00",
        // A frame that ends before its header.
        "03 00 00 00 00 00 10 00 0f 00 00 00 00 00 00 00",
        // No tag; no data.
        "03 01 00 00 00 00 10 00 10 00 00 00 00 00 00 00",
        "03 00 01 00 00 00 10 00 10 00 00 00 00 00 00 00",
        // More bytes than memory has.
        "03 00 00 00 00 00 10 00 ff ff ff ff ff ff ff ff",
        // An acknowledgement with bytes.
        "03 00 00 00 02 00 10 00 11 00 00 00 00 00 00 00",
        // Five places; one that is not there.
        "03 02 00 00 00 05 10 00 10 00 00 00 00 00 00 00",
        "03 02 00 00 00 01 10 00 10 00 00 00 00 00 00 00",
        // A write of other bytes than its places have.
        "03 04 00 00 00 01 28 00 39 00 00 00 00 00 00 00 \
         20 00 00 00 00 00 00 00 10 00 00 00 00 00 00 00 ee ff c0 00 00 00 00 00",
        "03 04 00 00 00 00 10 00 11 00 00 00 00 00 00 00",
        // Kinds that nobody has, or that only Selvedge endpoints know.
        "03 08 00 00 00 00 10 00 10 00 00 00 00 00 00 00",
        "03 80 00 00 00 00 20 00 20 00 00 00 00 00 00 00",
    ];
    for text in table {
        let mut header = bytes(text);
        header.resize(HEADER_MAX, 0);
        parsed(&header).expect_err(text);
    }
}

#[test]
fn the_other_byte_order_says_the_same() {
    for (_, head) in seen() {
        let mut bytes = Vec::new();
        head.encode(Order::Network, 0, &mut bytes);
        let len = length(&bytes, Order::Network).unwrap();
        assert_eq!(Head::parse(&bytes[..len], Order::Network, false), Ok(head));
    }
}

fn wishes() -> impl Strategy<Value = Wish> {
    prop_oneof![Just(Wish::Never), Just(Wish::Arrived), Just(Wish::Received)]
}

fn heads() -> impl Strategy<Value = Head> {
    let len = 0..=isize::MAX as usize;
    let places = prop::collection::vec((any::<u64>(), 0..1_usize << 40, any::<u64>()), 1..=4)
        .prop_map(|list| {
            let list: Vec<_> = list.into_iter().map(|(a, l, k)| place(a, l, k)).collect();
            RmaSegments::new(&list).unwrap()
        });
    let targets = prop::collection::vec((any::<u64>(), 0..1_usize << 40, any::<u64>()), 1..=4)
        .prop_map(|list| {
            let target = |(addr, count, key)| RmaIoc { addr, count, key };
            list.into_iter().map(target).collect::<Vec<_>>()
        });
    let data = any::<Option<u64>>();
    prop_oneof![
        (any::<u64>(), data, wishes(), len).prop_map(|(tag, data, wish, len)| Head::Message {
            kind: Kind::Tagged,
            tag,
            data,
            wish,
            len: len - 32.min(len),
        }),
        (places.clone(), any::<Option<u64>>(), any::<bool>()).prop_map(
            |(places, data, wants_answer)| Head::Write {
                places,
                data,
                wants_answer,
            }
        ),
        places.prop_map(|places| Head::ReadRequest { places }),
        (any::<u64>(), any::<u32>()).prop_map(|(number, status)| Head::Answer { number, status }),
        any::<u32>().prop_map(|status| Head::Refused { status }),
        any::<u32>().prop_map(|status| Head::ReadEnd { status }),
        (
            any::<u64>(),
            any::<Option<u64>>(),
            targets,
            0..1_usize << 20
        )
            .prop_map(|(what, data, targets, len)| Head::Atomic {
                what,
                data,
                targets,
                len,
            }),
        (any::<u32>(), 0..1_usize << 20).prop_map(|(status, len)| Head::Outcome { status, len }),
    ]
}

proptest! {
    #[test]
    fn heads_survive_the_way(head in heads(), order in prop_oneof![
        Just(Order::Own), Just(Order::Network),
    ]) {
        let mut bytes = Vec::new();
        head.encode(order, 3, &mut bytes);
        prop_assert!(bytes.len() <= HEADER_MAX);
        prop_assert_eq!(length(&bytes, order), Ok(bytes.len()));
        prop_assert_eq!(Head::parse(&bytes, order, true), Ok(head));
    }

    #[test]
    fn any_bytes_are_a_head_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), HEADER_MAX),
        op in prop_oneof![0_u8..10, 0x7e_u8..0x86],
        size in prop_oneof![0_u64..300, any::<u64>()],
        knows in any::<bool>(),
    ) {
        bytes[1] = op;
        bytes[6] &= 0x78;
        bytes[8..16].copy_from_slice(&size.to_ne_bytes());
        if let Ok(len) = length(&bytes, Order::Own)
            && let Ok(head) = Head::parse(&bytes[..len], Order::Own, knows)
        {
            prop_assert_eq!(head.payload() as u64, size - len as u64);
        }
    }
}

#[test]
fn a_header_with_padding_says_the_same() {
    let message = Head::Message {
        kind: Kind::Tagged,
        tag: 7,
        data: Some(8),
        wish: Wish::Never,
        len: 5000,
    };
    let response = Head::ReadResponse {
        len: 5000,
        is_checked: false,
    };
    for order in [Order::Own, Order::Network] {
        for (head, knows, is_padded) in [
            (&message, false, true),
            (&message, true, true),
            (&response, true, true),
            // A libfabric has not been seen to skip it there.
            (&response, false, false),
        ] {
            let mut bytes = Vec::new();
            head.encode(order, 0, &mut bytes);
            let base = bytes.len();
            // As the place of the payload changes until the frame is sent.
            for by in [0, 8, 56, 16, 0, 48] {
                pad(&mut bytes, base, by, order, knows);
                let len = if is_padded { base + by } else { base };
                assert_eq!((bytes.len(), length(&bytes, order)), (len, Ok(len)));
                assert_eq!(Head::parse(&bytes, order, true).as_ref(), Ok(head));
            }
        }
    }
    let mut bytes = Vec::new();
    message.encode(Order::Own, 0, &mut bytes);
    let base = bytes.len();
    pad(&mut bytes, base, 96, Order::Own, true);
    assert_eq!(bytes.len(), base, "longer than any header is");
}
