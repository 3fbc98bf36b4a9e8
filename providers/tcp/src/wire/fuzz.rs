//! What peers send, from anywhere, into the parsers.

use selvedge_kit::auth::AuthKey;
use selvedge_testkit::fuzz::fuzz;

use super::Order;
use super::frame::{BASE, Head, length};
use super::hello::{Card, Hello};
use super::proof::Called;

/// The first byte of an input says what the connection has agreed on, the rest is a header.
#[test]
fn a_frame_of_any_bytes_is_parsed_or_rejected() {
    let corpus = include_str!("../../corpus/frames.txt");
    fuzz("frames", corpus, |input| {
        let (&[terms], bytes) = input.split_first_chunk()?;
        let order = [Order::Own, Order::Network][usize::from(terms >> 1 & 1)];
        let knows = terms & 1 != 0;
        let base = bytes.get(..BASE)?;
        let len = match length(base, order) {
            Ok(len) => len,
            Err(nonsense) => return Some(nonsense.0.to_owned()),
        };
        match Head::parse(bytes.get(..len)?, order, knows) {
            Ok(head) => {
                let mut encoded = Vec::new();
                head.encode(order, 0, &mut encoded);
                assert_eq!(length(&encoded, order), Ok(encoded.len()));
                assert_eq!(Head::parse(&encoded, order, true), Ok(head));
                Some(format!("{:x?}", [bytes[1], bytes[5].min(5), knows.into()]))
            }
            Err(nonsense) => Some(nonsense.0.to_owned()),
        }
    });
}

#[test]
fn greetings_of_any_bytes_are_read_or_refused() {
    let corpus = include_str!("../../corpus/greetings.txt");
    fuzz("greetings", corpus, |input| match Hello::parse(input) {
        Ok(Some((hello, len))) => {
            assert!(len <= input.len());
            let card = Card::parse(&hello.data).map(|card| (card.version, card.features));
            let what = (hello.kind, hello.order, hello.introduction.is_some());
            format!("{what:?} {card:?}")
        }
        Ok(None) => "more".to_owned(),
        Err(nonsense) => nonsense.0.to_owned(),
    });
}

/// A listener takes what it needs of an input twice: the question, and the proof.
#[test]
fn proofs_of_any_bytes_are_read_or_refused() {
    let corpus = include_str!("../../corpus/proofs.txt");
    let key = AuthKey::new(b"key").unwrap();
    fuzz("proofs", corpus, |input| {
        let mut called = Called::of(&key);
        let mut said = input.to_vec();
        let mut hear = || match called.hear(&key, &mut said) {
            Ok(answer) => format!("{:?}", answer.map(|bytes| bytes.len())),
            Err(nonsense) => nonsense.0.to_owned(),
        };
        [hear(), hear()]
    });
}
