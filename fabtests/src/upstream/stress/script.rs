//! What a client does: upstream's files, a comment in quotes and a list of JSON.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub(super) enum Step {
    /// Nothing.
    Noop,
    /// Says who it is; every client does so first.
    Hello,
    /// Says that it goes.
    Goodbye,
    /// Asks for a message.
    MsgReq { size: usize },
    /// Asks for a message, by inject.
    MsgInjectReq { size: usize },
    /// Waits for a message that it has asked for.
    MsgResp,
    /// Asks for a tagged message.
    TagReq { size: usize },
    /// Waits for the one that it has asked for first.
    TagResp,
    /// Has its memory read.
    ReadReq {
        size: usize,
        #[serde(default)]
        offset: usize,
    },
    /// Waits until it is.
    ReadResp,
    /// Has its memory written.
    WriteReq {
        size: usize,
        #[serde(default)]
        offset: usize,
    },
    /// Waits until it is.
    WriteResp,
    /// Does nothing for a while.
    Sleep { ms: u64 },
    /// Ends at once, whatever is under way.
    Exit,
}

/// The largest message or access.
pub(super) const MOST: usize = 12 << 20;

/// What clients do without a file.
pub(super) const OWN: &str = include_str!("mixed.json");

/// Reads a script.
///
/// # Errors
/// What of it is none, or too large.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<Step>> {
    let list = text.find("\n[").map_or(text, |at| &text[at..]);
    let steps: Vec<Step> = serde_json::from_str(list).context("this is no list of steps")?;
    for step in &steps {
        let size = step.size();
        ensure!(size <= MOST, "{step:?}: at most {MOST} bytes");
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

    /// How long to do nothing.
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
    fn upstreams_form_is_read() {
        let text = "\"\nA comment [with brackets].\n\"\n[\n\t{ \"op\" : \"msg_req\", \"size\" : 1000 },\n\
                    \t{ \"op\" : \"write_req\", \"size\" : 5, \"offset\" : 7 },\n\
                    \t{ \"op\" : \"sleep\", \"ms\" : 3 },\n\t{ \"op\" : \"exit\" }\n]\n";
        let steps = parse(text).unwrap();
        assert_eq!(steps[0], Step::MsgReq { size: 1000 });
        assert_eq!(steps[1], Step::WriteReq { size: 5, offset: 7 });
        assert_eq!(steps[2].pause(), Duration::from_millis(3));
        assert_eq!(steps[3], Step::Exit);
        parse(OWN).unwrap();
    }

    #[test]
    fn what_is_no_step_is_refused() {
        for text in [
            "[{\"op\": \"dance\"}]",
            "{}",
            "[{\"op\": \"tag_req\", \"size\": 99999999}]",
        ] {
            parse(text).unwrap_err();
        }
    }
}
