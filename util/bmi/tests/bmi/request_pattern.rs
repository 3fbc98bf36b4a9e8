//! The pattern of BMI programs: an unexpected request, its acknowledgement, and data in both
//! directions, contiguous and in lists.

use std::borrow::Borrow;
use std::time::Duration;

use selvedge_bmi::{Bmi, Config};

use crate::common::{SCHEMES, Side, bytes, pattern, server_at, unexpected, until};
use crate::process::{Process, report_line};

/// Size of the data in bytes: more than any provider sends eagerly.
pub(crate) const DATA: usize = 300_000;
const TAG: i32 = 17;

/// Serves one client at a free port of the scheme.
pub(crate) fn serve(scheme: &str) {
    let (bmi, url) = server_at(scheme);
    report_line(&url);
    let request = until("a request", || unexpected(&bmi, 0));
    let context = bmi.open_context().unwrap();
    let side = Side {
        bmi,
        context,
        peer: request.addr,
    };
    let tag = request.tag;
    assert_eq!(&*request.buffer, b"data, please");
    let ack = side.send(b"here it comes", tag);
    assert_eq!(side.wait(ack).outcome, Ok(13));
    let sent = side.send(&pattern(DATA, 1), tag);
    side.wait(sent).outcome.unwrap();
    // The segment boundaries differ from those of the send.
    let segments = vec![vec![0; 100_000], vec![0; 1], vec![0; 0], vec![0; DATA]];
    let received = side.bmi.post_recv(side.post(segments, tag));
    assert_eq!(bytes(&side.wait(received)), pattern(DATA, 2));
    side.wait(side.send(b"", tag)).outcome.unwrap();
}

/// Connects to the server at a URL and runs the client's part.
pub(crate) fn client(url: &str) {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    let context = bmi.open_context().unwrap();
    let peer = bmi.addr_lookup(url).unwrap();
    run_client(&Side { bmi, context, peer });
}

/// The client's part, with a connected peer.
pub(crate) fn run_client<B: Borrow<Bmi>>(side: &Side<B>) {
    let ack = side.recv(64, TAG);
    let sent = side
        .bmi()
        .post_sendunexpected(side.post(b"data, please".to_vec(), TAG), 0);
    side.wait(sent).outcome.unwrap();
    assert_eq!(bytes(&side.wait(ack)), b"here it comes");
    let data = side.wait(side.recv(2 * DATA, TAG));
    assert_eq!(bytes(&data), pattern(DATA, 1));
    let data_to_send = pattern(DATA, 2);
    let segments: Vec<_> = data_to_send.chunks(DATA / 6).map(<[u8]>::to_vec).collect();
    side.wait(side.bmi().post_send(side.post(segments, TAG)))
        .outcome
        .unwrap();
    let last = side.recv(0, TAG);
    assert_eq!(side.wait(last).outcome, Ok(0));
    // Every completion was collected by its own wait.
    assert_eq!(
        side.bmi()
            .testcontext(9, Duration::ZERO, side.context, |_| ()),
        Ok(0)
    );
}

#[test]
fn a_server_and_a_client_exchange_data_between_two_processes() {
    for scheme in SCHEMES {
        let mut server = Process::start("server", scheme);
        let client = Process::start("client", &server.read_line());
        client.expect_success();
        server.expect_success();
    }
}
