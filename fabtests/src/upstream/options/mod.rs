//! The command lines of upstream's programs: getopt's short options, and long options.
//!
//! A program declares its short options as for getopt(3). Common options are parsed into
//! [`Options`]; a program's own options stay strings. An undeclared option is an error.

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

/// The options for addresses and ports.
pub(super) const ADDRESS: &str = "B:P:s:a:b::E::C:F:O:";
/// The options for the fabric, the domain and device memory.
pub(super) const FABRIC: &str = "f:d:p:KD:i:HR";
/// The further options for discovery.
pub(super) const INFO: &str = "e:M:";
/// The options of programs with a server and a client.
pub(super) const PAIR: &str = "I:QS:mc:t:w:l";
/// The options of benchmarks.
pub(super) const BENCHMARK: &str = "o:vkj:W:";

/// The options of a program.
#[derive(Clone, Copy, Debug)]
pub struct OptionSet {
    /// The common short options.
    pub common: &'static [&'static str],
    /// The program's own short options, which override common options of the same name.
    pub specific: &'static str,
    /// The program's own long options, with a final `=` if they take a value.
    pub long: &'static [&'static str],
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the program.
    pub program: &'static str,
    /// The command line as written.
    pub command_line: Vec<String>,
    /// The server to connect to; without it, the program is the server.
    pub server: Option<String>,
    /// The positional arguments.
    pub arguments: Vec<String>,
    /// `-p`.
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
    /// `--debug-assert`: a program that fails stops, so that a debugger can attach.
    pub stops_on_failure: bool,
    /// `--special`: buffers are in special memory.
    pub special: bool,
    /// The values of the program's own options; empty for an option without a value.
    specific: BTreeMap<String, String>,
}

/// The out-of-band connection, over which addresses are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBand {
    /// The TCP port.
    pub port: u16,
    /// Whether barriers also use the connection (`-b`).
    pub sync: bool,
}

/// The default TCP port of `-b` and `-E`.
pub const OUT_OF_BAND_PORT: u16 = 3000;
/// The default port of `-B` and `-P`.
pub const PORT: &str = "9228";

impl Options {
    /// Returns whether this process is the client.
    pub fn is_client(&self) -> bool {
        self.server.is_some()
    }

    /// Returns whether one of the program's own options is present.
    pub fn has(&self, option: &str) -> bool {
        self.specific.contains_key(option)
    }

    /// Returns the value of one of the program's own options.
    pub fn text(&self, option: &str) -> Option<&str> {
        self.specific.get(option).map(String::as_str)
    }

    /// Returns the number in one of the program's own options.
    ///
    /// # Errors
    /// The value is no number in range.
    pub fn number<T: FromStr>(&self, option: &str, default: T) -> anyhow::Result<T> {
        let Some(text) = self.text(option) else {
            return Ok(default);
        };
        match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => bail!("option {option}: {text:?} is no number in the valid range"),
        }
    }

    /// Returns the value of `-o`, which must be one of `words`; without `-o`, the first word.
    ///
    /// # Errors
    /// The value is not one of the words.
    pub fn operation_of<'a>(&self, words: &[&'a str]) -> anyhow::Result<&'a str> {
        let Some(text) = &self.operation else {
            return Ok(words[0]);
        };
        let found = words.iter().find(|word| **word == text.as_str());
        match found {
            Some(word) => Ok(word),
            None => bail!(
                "-o {text:?}: unknown operation; {} has {}",
                self.program,
                words.join(", ")
            ),
        }
    }
}
