//! Messages that `Listener::serve` drops.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::thread;

use futures::future::select;
use selvedge_service::run;

use crate::{bounded, connected, name};

/// The warnings about dropped messages.
struct Warnings(Mutex<Vec<String>>);

static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() == log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        if self.enabled(record.metadata()) && text.contains("without a request") {
            let warnings = &self.0;
            let mut warnings = warnings.lock().unwrap_or_else(PoisonError::into_inner);
            warnings.push(text);
        }
    }

    fn flush(&self) {}
}

#[test]
fn serve_counts_messages_without_a_request_and_warns_of_them_rarely() {
    log::set_logger(&WARNINGS).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    bounded(|| {
        let (listener, connection) = connected(&name());
        thread::scope(|scope| {
            let client = scope.spawn(move || {
                for number in 0..100_u8 {
                    connection.send(&[number]).wait().unwrap();
                }
                // The request comes after the messages: its response shows that they were taken.
                assert_eq!(&*connection.request(b"ping").wait().unwrap(), b"ping");
            });
            let serve = listener.serve(async |request| request.respond(&request));
            let is_done = std::future::poll_fn(|cx| {
                if client.is_finished() {
                    return std::task::Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                std::task::Poll::Pending
            });
            run(select(pin!(serve), is_done)).unwrap();
            client.join().unwrap();
        });
    });
    let warnings = WARNINGS.0.lock().unwrap();
    let counts = warnings.iter().map(|text| {
        let count = text.split([':', ',']).nth(1).unwrap().trim();
        count.parse::<u64>().unwrap()
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
}
