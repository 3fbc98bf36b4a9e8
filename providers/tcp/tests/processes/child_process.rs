//! Starts a test again as a child process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use selvedge::info::EpType;
use selvedge::{Caps, Hints, Registry};

use crate::endpoint::CopyingEndpoint;

/// The environment variable that is set in a child process.
const CHILD: &str = "SELVEDGE_TCP_TEST_OTHER";

/// Opens the side of a child process and prints its address. Returns `None` in the parent.
pub(crate) fn child_side() -> Option<CopyingEndpoint> {
    std::env::var_os(CHILD)?;
    let registry = Registry::new().with(&selvedge_tcp::PROVIDER);
    let hints = Hints::new()
        .caps(Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV)
        .ep_type(EpType::Rdm)
        .src_addr("127.0.0.1:0".parse().unwrap());
    let side = CopyingEndpoint::open(&registry.infos(&hints).unwrap()[0]);
    println!("at {}", side.addr());
    Some(side)
}

/// Starts the test as a child process. Returns the process, the address of the child's side, and
/// the further output lines of the child.
pub(crate) fn start(test: &str) -> (Child, String, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(crate::child_variables())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let addr = lines.find_map(|line| {
        line.split_once("at 127")
            .map(|(_, remainder)| format!("127{remainder}"))
    });
    (child, addr.unwrap(), lines)
}
