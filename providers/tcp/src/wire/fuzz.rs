//! Fuzz targets of the parsers.

use selvedge_kit::auth::AuthKey;
use selvedge_testkit::fuzz::fuzz;

use super::ByteOrder;
use super::frame::{BASE_LEN, Header, header_len};
use super::hello::{Hello, RdmData};
use super::proof::Server;

/// The first byte of an input encodes the negotiated parameters, the rest is a header.
#[test]
fn a_frame_of_any_bytes_is_parsed_or_rejected() {
    let corpus = include_str!("../../corpus/frames.txt");
    fuzz("frames", corpus, |input| {
        let (&[negotiated], bytes) = input.split_first_chunk()?;
        let order = [ByteOrder::Native, ByteOrder::Network][usize::from(negotiated >> 1 & 1)];
        let has_extensions = negotiated & 1 != 0;
        let base = bytes.get(..BASE_LEN)?;
        let len = match header_len(base, order) {
            Ok(len) => len,
            Err(error) => return Some(error.0.to_owned()),
        };
        match Header::parse(bytes.get(..len)?, order, has_extensions) {
            Ok(header) => {
                let mut encoded = Vec::new();
                header.encode(order, 0, &mut encoded);
                assert_eq!(header_len(&encoded, order), Ok(encoded.len()));
                assert_eq!(Header::parse(&encoded, order, true), Ok(header));
                Some(format!(
                    "{:x?}",
                    [bytes[1], bytes[5].min(5), has_extensions.into()]
                ))
            }
            Err(error) => Some(error.0.to_owned()),
        }
    });
}

#[test]
fn hellos_of_any_bytes_are_parsed_or_rejected() {
    let corpus = include_str!("../../corpus/greetings.txt");
    fuzz("greetings", corpus, |input| match Hello::parse(input) {
        Ok(Some((hello, len))) => {
            assert!(len <= input.len());
            let rdm_data =
                RdmData::parse(&hello.data).map(|rdm_data| (rdm_data.version, rdm_data.features));
            let header = (hello.kind, hello.order, hello.extension.is_some());
            format!("{header:?} {rdm_data:?}")
        }
        Ok(None) => "more".to_owned(),
        Err(error) => error.0.to_owned(),
    });
}

/// A server consumes input twice: the first bytes, and the proof.
#[test]
fn proofs_of_any_bytes_are_parsed_or_rejected() {
    let corpus = include_str!("../../corpus/proofs.txt");
    let key = AuthKey::new(b"key").unwrap();
    fuzz("proofs", corpus, |input| {
        let mut server = Server::new(&key);
        let mut received = input.to_vec();
        let mut receive = || match server.receive(&key, &mut received) {
            Ok(response) => format!("{:?}", response.map(|bytes| bytes.len())),
            Err(error) => error.0.to_owned(),
        };
        [receive(), receive()]
    });
}
