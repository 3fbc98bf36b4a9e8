//! `Unacked`: the sent frames that request an acknowledgement.

use std::collections::VecDeque;

use selvedge_kit::Report;

use crate::wire::ProtocolError;

/// The local frames that request an acknowledgement, in send order.
#[derive(Debug, Default)]
pub(crate) struct Unacked {
    frames: VecDeque<UnackedFrame>,
    /// The number of the first frame.
    first: u64,
}

#[derive(Debug)]
struct UnackedFrame {
    /// `None` after the acknowledgement.
    report: Option<Report>,
    /// Whether the frame was sent, so that the caller's memory is no longer read.
    is_sent: bool,
}

impl Unacked {
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Adds a frame and returns its number.
    pub(crate) fn push(&mut self, report: Report, is_sent: bool) -> u64 {
        self.frames.push_back(UnackedFrame {
            report: Some(report),
            is_sent,
        });
        self.first + self.frames.len() as u64 - 1
    }

    /// Marks the frame with this number as sent.
    pub(crate) fn mark_sent(&mut self, number: u64) {
        if let Some(frame) = self.get_mut(number) {
            frame.is_sent = true;
        }
    }

    /// Acknowledges the oldest frame and returns its report.
    ///
    /// # Errors
    /// When no frame was sent, or the oldest frame is already acknowledged.
    pub(crate) fn ack_oldest(&mut self) -> Result<Report, ProtocolError> {
        self.ack(self.first)
    }

    /// Acknowledges the frame with this number and returns its report.
    ///
    /// # Errors
    /// When no frame with this number was sent, or the frame is already acknowledged.
    pub(crate) fn ack(&mut self, number: u64) -> Result<Report, ProtocolError> {
        let frame = self.get_mut(number).filter(|frame| frame.is_sent);
        let report = frame.and_then(|frame| frame.report.take());
        let report = report.ok_or(ProtocolError(
            "an acknowledgement that matches no unacknowledged frame",
        ))?;
        while self
            .frames
            .pop_front_if(|frame| frame.report.is_none())
            .is_some()
        {
            self.first += 1;
        }
        Ok(report)
    }

    /// Removes all frames after a disconnect, and returns the reports of the unacknowledged ones.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Report> + use<> {
        let frames = std::mem::take(&mut self.frames);
        frames.into_iter().filter_map(|frame| frame.report)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut UnackedFrame> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.frames.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use selvedge::{CompletionFlags, Context, OpFlags};

    use super::*;

    fn report(number: u64) -> Report {
        Report {
            kind: CompletionFlags::SEND,
            context: Context(number),
            flags: OpFlags::empty(),
            reports_success: true,
            len: 0,
        }
    }

    fn acked(unacked: &mut Unacked, number: u64) -> Option<u64> {
        unacked.ack(number).ok().map(|report| report.context.0)
    }

    #[test]
    fn frames_are_acknowledged_in_any_order_and_only_once() {
        let mut unacked = Unacked::default();
        for number in 0..4 {
            assert_eq!(unacked.push(report(number), true), number);
        }
        assert_eq!(acked(&mut unacked, 2), Some(2));
        assert_eq!(acked(&mut unacked, 2), None);
        assert_eq!(acked(&mut unacked, 0), Some(0));
        assert_eq!(unacked.len(), 3);
        assert_eq!(acked(&mut unacked, 1), Some(1));
        assert_eq!(unacked.len(), 1);
        assert_eq!(acked(&mut unacked, 0), None);
        assert_eq!(acked(&mut unacked, 4), None);
        assert_eq!(unacked.push(report(4), true), 4);
        assert_eq!(unacked.ack_oldest().unwrap().context, Context(3));
        assert_eq!(unacked.take().count(), 1);
    }

    #[test]
    fn unsent_frames_cannot_be_acknowledged() {
        let mut unacked = Unacked::default();
        let number = unacked.push(report(0), false);
        unacked.ack_oldest().unwrap_err();
        unacked.mark_sent(number);
        unacked.ack_oldest().unwrap();
        unacked.ack_oldest().unwrap_err();
    }
}
