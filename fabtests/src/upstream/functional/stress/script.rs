//! The script of a client of `fi_rdm_stress`, in upstream's file format: a comment in quotes, then
//! a JSON list of steps.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// A step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub(super) enum Step {
    /// Does nothing.
    Noop,
    /// Introduces the client to the server; every client does so first.
    Hello,
    /// Announces to the server that the client leaves.
    #[serde(rename = "goodbye")]
    Leave,
    /// Requests a message.
    MsgReq { size: usize },
    /// Requests a message with an injected request.
    MsgInjectReq { size: usize },
    /// Waits for a message that was requested and has not arrived.
    MsgResp,
    /// Requests a tagged message.
    TagReq { size: usize },
    /// Waits for the tagged message that was requested first of those that have not arrived.
    TagResp,
    /// Requests that the server read the client's memory.
    ReadReq {
        size: usize,
        #[serde(default)]
        offset: usize,
    },
    /// Waits for the end of the read.
    ReadResp,
    /// Requests that the server write to the client's memory.
    WriteReq {
        size: usize,
        #[serde(default)]
        offset: usize,
    },
    /// Waits for the end of the write.
    WriteResp,
    /// Sleeps.
    Sleep { ms: u64 },
    /// Exits immediately, with requests in flight.
    Exit,
}

/// Maximum size of a message, and maximum end of an access, in bytes.
pub(super) const MAX_SIZE: usize = 12 << 20;

/// The script of clients that are given no script file.
pub(super) const DEFAULT_SCRIPT: &str = include_str!("mixed.json");

/// Parses a script.
///
/// # Errors
/// The text is not a list of steps, or a size is too large.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<Step>> {
    let list = text.find("\n[").map_or(text, |at| &text[at..]);
    let steps: Vec<Step> =
        serde_json::from_str(list).context("the script is not a JSON list of steps")?;
    for step in &steps {
        let size = step.size();
        ensure!(
            size <= MAX_SIZE,
            "{step:?} is too large: the limit is {MAX_SIZE} bytes"
        );
    }
    Ok(steps)
}

impl Step {
    fn size(self) -> usize {
        match self {
            Self::MsgReq { size } | Self::MsgInjectReq { size } | Self::TagReq { size } => size,
            Self::ReadReq { size, offset } | Self::WriteReq { size, offset } => {
                size.saturating_add(offset)
            }
            _ => 0,
        }
    }

    /// The length of a sleep.
    pub(super) fn pause(self) -> Duration {
        match self {
            Self::Sleep { ms } => Duration::from_millis(ms),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_in_the_format_of_upstream_are_parsed() {
        let text = "\"\nA comment [with brackets].\n\"\n[\n\t{ \"op\" : \"msg_req\", \"size\" : 1000 },\n\
                    \t{ \"op\" : \"write_req\", \"size\" : 5, \"offset\" : 7 },\n\
                    \t{ \"op\" : \"sleep\", \"ms\" : 3 },\n\t{ \"op\" : \"exit\" }\n]\n";
        let steps = parse(text).unwrap();
        assert_eq!(steps[0], Step::MsgReq { size: 1000 });
        assert_eq!(steps[1], Step::WriteReq { size: 5, offset: 7 });
        assert_eq!(steps[2].pause(), Duration::from_millis(3));
        assert_eq!(steps[3], Step::Exit);
        parse(DEFAULT_SCRIPT).unwrap();
    }

    #[test]
    fn invalid_steps_are_refused() {
        for text in [
            "[{\"op\": \"dance\"}]",
            "{}",
            "[{\"op\": \"tag_req\", \"size\": 99999999}]",
        ] {
            parse(text).unwrap_err();
        }
    }
}
