//! The command lines of upstream's programs: getopt's letters, and the long options.
//!
//! A program names the letters that it takes, as for getopt(3): those that many have in common are
//! read into [`Options`], its own stay texts. A letter that it does not take is an error.

mod parse;
mod sizes;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use selvedge::info::{EpType, Progress, Threading};
use selvedge::{AddrFormat, OpFlags};
pub use selvedge_testkit::domain::WaitMethod;

pub use parse::{Refusal, parse};
pub use sizes::{Sizes, iterations};

/// Addresses and ports.
pub(super) const ADDRESS: &str = "B:P:s:a:b::E::C:F:O:";
/// Fabric and domain, device memory.
pub(super) const FABRIC: &str = "f:d:p:KD:i:HR";
/// What discovery is asked besides.
pub(super) const INFO: &str = "e:M:";
/// What programs with a server and a client have.
pub(super) const PAIR: &str = "I:QS:mc:t:w:l";
/// What benchmarks have.
pub(super) const BENCHMARK: &str = "o:vkj:W:";

/// The letters of a program.
#[derive(Clone, Copy, Debug)]
pub struct Letters {
    /// Those in common.
    pub common: &'static [&'static str],
    /// Its own, which hide those of the same name.
    pub own: &'static str,
    /// Its own long options: with `=` behind those that take a value.
    pub long: &'static [&'static str],
}

/// What a command line asks for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub program: &'static str,
    /// The command line, as it was written.
    pub command_line: Vec<String>,
    /// The server to go to; without one the program is the server.
    pub server: Option<String>,
    /// All that stands without a letter.
    pub arguments: Vec<String>,
    /// `-p`, `-f`, `-d`.
    pub provider: Option<String>,
    /// `-f`.
    pub fabric: Option<String>,
    /// `-d`.
    pub domain: Option<String>,
    /// `-e`.
    pub ep_type: Option<EpType>,
    /// `-s`.
    pub source: Option<String>,
    /// `-B`.
    pub source_port: Option<String>,
    /// `-P`.
    pub port: Option<String>,
    /// `-F`.
    pub addr_format: AddrFormat,
    /// `-b`, `-E`.
    pub out_of_band: Option<OutOfBand>,
    /// `-O`.
    pub out_of_band_host: Option<String>,
    /// `-C`.
    pub connections: usize,
    /// `-I`.
    pub iterations: Option<usize>,
    /// `-w`.
    pub warmup: usize,
    /// `-S`.
    pub sizes: Sizes,
    /// `-W`.
    pub window: usize,
    /// `-m`.
    pub machine: bool,
    /// `-t counter`.
    pub counters: bool,
    /// `-c`.
    pub waiting: WaitMethod,
    /// `-o`.
    pub operation: Option<String>,
    /// `-v`.
    pub verify: bool,
    /// `-k`.
    pub prefix: bool,
    /// `-j`.
    pub inject: Option<usize>,
    /// `-H`, `-D`, `-R`.
    pub device_memory: bool,
    /// `-M mr_local`: buffers are not registered for local use.
    pub without_mr_local: bool,
    /// `-K`.
    pub fork: bool,
    /// `--timeout`.
    pub timeout: Option<Duration>,
    /// `--threading`.
    pub threading: Threading,
    /// `--data-progress`.
    pub data_progress: Progress,
    /// `--control-progress`.
    pub control_progress: Progress,
    /// `--max-msg-size`.
    pub max_msg_size: Option<usize>,
    /// `--use-fi-more`.
    pub more: bool,
    /// `--no-rx-cq-data`.
    pub without_rx_cq_data: bool,
    /// `--sync-comp`.
    pub sync_level: OpFlags,
    /// `--expect-error`.
    pub expected_error: Option<i32>,
    /// `--pin-core`.
    pub cores: Vec<usize>,
    /// `--debug-assert`: a program that has failed stops, so that a debugger can be attached.
    pub stops_on_failure: bool,
    /// `--special`: buffers are special memory.
    pub special: bool,
    own: BTreeMap<String, String>,
}

/// How addresses are exchanged beside the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBand {
    /// The TCP port.
    pub port: u16,
    /// Barriers go this way, too (`-b`).
    pub sync: bool,
}

/// The TCP port of `-b` and `-E` without one.
pub const OUT_OF_BAND_PORT: u16 = 3000;
/// The port of `-B` and `-P`, if they are not there.
pub const PORT: &str = "9228";

impl Options {
    /// Whether this process is the client.
    pub fn is_client(&self) -> bool {
        self.server.is_some()
    }

    /// Whether a letter or a long option of the program's own is there.
    pub fn has(&self, own: &str) -> bool {
        self.own.contains_key(own)
    }

    /// The text behind an option of the program's own.
    pub fn text(&self, own: &str) -> Option<&str> {
        self.own.get(own).map(String::as_str)
    }

    /// The number behind an option of the program's own.
    ///
    /// # Errors
    /// When it is none.
    pub fn number<T: FromStr>(&self, own: &str, default: T) -> anyhow::Result<T> {
        let Some(text) = self.text(own) else {
            return Ok(default);
        };
        match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => bail!("option {own}: {text:?} is no number in range"),
        }
    }

    /// One of some words behind `-o`, or the first of them.
    ///
    /// # Errors
    /// When it is another one.
    pub fn choice<'a>(&self, words: &[&'a str]) -> anyhow::Result<&'a str> {
        let Some(text) = &self.operation else {
            return Ok(words[0]);
        };
        let found = words.iter().find(|word| **word == text.as_str());
        match found {
            Some(word) => Ok(word),
            None => bail!("-o {text:?}: {} has {}", self.program, words.join(", ")),
        }
    }
}
