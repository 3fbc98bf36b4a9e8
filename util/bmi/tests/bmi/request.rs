//! The pattern of BMI's programs: a request that nobody expected, its acknowledgement, and data in
//! both directions, contiguous and in lists.

use std::borrow::Borrow;
use std::time::Duration;

use selvedge_bmi::{Bmi, Config};

use crate::common::{End, SCHEMES, bytes, pattern, server_at, unexpected, until};
use crate::process::{Process, say};

/// Bytes of the data: more than any provider sends without asking.
pub(crate) const DATA: usize = 300_000;
const TAG: i32 = 17;

/// Serves one client at a free port of the scheme.
pub(crate) fn serve(scheme: &str) {
    let (bmi, url) = server_at(scheme);
    say(&url);
    let request = until("a request", || unexpected(&bmi, 0));
    let context = bmi.open_context().unwrap();
    let end = End {
        bmi,
        context,
        peer: request.addr,
    };
    let tag = request.tag;
    assert_eq!(&*request.buffer, b"data, please");
    let ack = end.send(b"here it comes", tag);
    assert_eq!(end.end(ack).outcome, Ok(13));
    let sent = end.send(&pattern(DATA, 1), tag);
    end.end(sent).outcome.unwrap();
    // In other pieces than it was sent in.
    let pieces = vec![vec![0; 100_000], vec![0; 1], vec![0; 0], vec![0; DATA]];
    let taken = end.bmi.post_recv(end.post(pieces, tag));
    assert_eq!(bytes(&end.end(taken)), pattern(DATA, 2));
    end.end(end.send(b"", tag)).outcome.unwrap();
}

/// Asks the server at a URL.
pub(crate) fn ask(url: &str) {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    let context = bmi.open_context().unwrap();
    let peer = bmi.addr_lookup(url).unwrap();
    ask_through(&End { bmi, context, peer });
}

/// Asks an end's peer.
pub(crate) fn ask_through<B: Borrow<Bmi>>(end: &End<B>) {
    let ack = end.recv(64, TAG);
    let asked = end
        .bmi()
        .post_sendunexpected(end.post(b"data, please".to_vec(), TAG), 0);
    end.end(asked).outcome.unwrap();
    assert_eq!(bytes(&end.end(ack)), b"here it comes");
    let data = end.end(end.recv(2 * DATA, TAG));
    assert_eq!(bytes(&data), pattern(DATA, 1));
    let whole = pattern(DATA, 2);
    let pieces: Vec<_> = whole.chunks(DATA / 6).map(<[u8]>::to_vec).collect();
    end.end(end.bmi().post_send(end.post(pieces, TAG)))
        .outcome
        .unwrap();
    let last = end.recv(0, TAG);
    assert_eq!(end.end(last).outcome, Ok(0));
    // What is orderly is told by nobody else any more.
    assert_eq!(
        end.bmi()
            .testcontext(9, Duration::ZERO, end.context, |_| ()),
        Ok(0)
    );
}

#[test]
fn a_server_and_a_client_talk_from_two_processes() {
    for scheme in SCHEMES {
        let mut server = Process::start("server", scheme);
        let client = Process::start("client", &server.says());
        client.ends_well();
        server.ends_well();
    }
}
