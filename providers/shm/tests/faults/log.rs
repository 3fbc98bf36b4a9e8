//! The lines that a program without faults logs: discovery, names, connections, protocols,
//! fallbacks.

use std::sync::{Mutex, PoisonError};

use log::{LevelFilter, Log, Metadata, Record};
use selvedge::alloc;
use selvedge_testkit::skip::{Need, skip};

use crate::denial::{deny, receive_large};
use crate::endpoint::{Kind, NumberedEndpoint};
use crate::process::{PeerProcess, alone};

/// A logger that keeps every line of this process.
pub(crate) struct KeptLines(Mutex<Vec<String>>);

pub(crate) static LINES: KeptLines = KeptLines(Mutex::new(Vec::new()));

impl Log for KeptLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = format!("{} {} {}", record.level(), record.target(), record.args());
        self.kept().push(line);
    }

    fn flush(&self) {}
}

impl KeptLines {
    pub(crate) fn install() {
        log::set_logger(&LINES).unwrap();
        log::set_max_level(LevelFilter::Debug);
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of lines that start with `begin`.
    pub(crate) fn count(&self, begin: &str) -> usize {
        let lines = self.kept();
        lines.iter().filter(|line| line.starts_with(begin)).count()
    }

    /// Whether a line starts with `begin` and ends with `end`.
    fn has(&self, begin: &str, end: &str) -> bool {
        let lines = self.kept();
        let is_match = |line: &String| line.starts_with(begin) && line.ends_with(end);
        lines.iter().any(is_match)
    }

    #[track_caller]
    fn expect(&self, begin: &str, end: &str) {
        assert!(
            self.has(begin, end),
            "no {begin}..{end} in {:#?}",
            self.kept()
        );
    }
}

const EP_CTRL: &str = "INFO selvedge::shm::ep_ctrl ";
const EP_DATA: &str = "INFO selvedge::shm::ep_data ";

#[test]
fn the_provider_the_names_and_the_connections_of_a_program_are_logged() {
    alone(|| {
        KeptLines::install();
        let mut side = NumberedEndpoint::new();
        let local_name = side.name();
        let peer_name = format!("{}p", std::process::id());
        let peer_addr = side.insert(&peer_name);
        side.send(Kind::Msg, peer_addr, 8, 1).unwrap();
        side.drive();
        let local_name = local_name.trim_start_matches("fi_shm://");
        LINES.expect("INFO selvedge::core::core discovery: shm: taken: ", "");
        LINES.expect("INFO selvedge::shm::domain ", " control progress");
        LINES.expect(EP_CTRL, &format!("endpoint {local_name} is open"));
        LINES.expect(
            EP_CTRL,
            &format!("{local_name}: no endpoint has the name {peer_name} yet"),
        );
        let mut peer_process = PeerProcess::named(&peer_name);
        peer_process.request("drive on");
        side.next().ok();
        side.until(|_| LINES.has(EP_CTRL, &format!("{local_name}: connected to {peer_name}")));
        side.recv(Kind::Msg, peer_addr, 8, 2).unwrap();
        peer_process.kill();
        side.next().errno();
        LINES.expect(
            &format!("{EP_CTRL}{local_name}: lost the connection to {peer_name} ("),
            ")",
        );
        LINES.expect("DEBUG selvedge::shm::ep_data ", "");
        drop(side);
        LINES.expect(EP_CTRL, &format!("endpoint {local_name} is closed"));
    });
}

#[test]
fn the_measured_protocol_times_are_logged() {
    alone(|| {
        KeptLines::install();
        let mut side = NumberedEndpoint::new();
        let mut peer_process = PeerProcess::named(&format!("{}p", std::process::id()));
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        receive_large(&mut side, &mut peer_process, &side_addr, 1..100);
        if LINES.has(EP_CTRL, "large messages are bounced") {
            return skip(
                Need::System,
                "no cross-memory attach, so only one protocol is possible",
            );
        }
        LINES.expect(&format!("{EP_DATA}messages of "), " ns by bounce segments");
    });
}

#[test]
fn fallbacks_are_logged() {
    alone(|| {
        KeptLines::install();
        deny("process_vm_readv", libc::EPERM);
        deny("membarrier", libc::ENOSYS);
        let mut side = NumberedEndpoint::new();
        let mut peer_process = PeerProcess::named(&format!("{}p", std::process::id()));
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        receive_large(&mut side, &mut peer_process, &side_addr, 1..3);
        LINES.expect(EP_CTRL, "; large messages are bounced");
        LINES.expect(&format!("{EP_CTRL}no membarrier(2)"), "");
        let mut attr = alloc::Attr::default();
        attr.huge_pages = true;
        drop(side.domain().alloc(4 << 20, &attr).unwrap());
        let free =
            std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
        let has_reserved = free.is_ok_and(|text| text.trim() != "0");
        if !has_reserved {
            LINES.expect("INFO selvedge::shm::mr no reserved huge pages", "");
        }
    });
}

#[test]
fn the_log_states_the_number_of_injected_messages_that_closing_discards() {
    alone(|| {
        KeptLines::install();
        let (mut side, peer_name) = (NumberedEndpoint::new(), format!("{}n", std::process::id()));
        let local_name = side.name();
        let local_name = local_name.trim_start_matches("fi_shm://");
        let peer_addr = side.insert(&peer_name);
        side.send(Kind::Tagged, peer_addr, 8, 1).unwrap();
        for number in 2..5 {
            side.send(Kind::TaggedInject, peer_addr, 8, number).unwrap();
        }
        drop(side);
        let lost = format!(
            "{local_name} closes, and injected messages for {peer_name} are lost (it was not connected): 3"
        );
        LINES.expect("WARN selvedge::shm::ep_ctrl ", &lost);
    });
}
