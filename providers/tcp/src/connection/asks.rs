//! `Asks`: the frames of ours that want an answer.

use std::collections::VecDeque;

use selvedge_kit::Report;

use crate::wire::Nonsense;

/// Frames of ours that want an answer, in the order in which they are sent.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    list: VecDeque<Ask>,
    /// The number of the first.
    first: u64,
}

#[derive(Debug)]
struct Ask {
    /// Nothing when it has been answered.
    report: Option<Report>,
    /// The frame is out: nothing reads the caller's memory any more.
    is_sent: bool,
}

impl Asks {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds one; its number.
    pub(crate) fn push(&mut self, report: Report, is_sent: bool) -> u64 {
        self.list.push_back(Ask {
            report: Some(report),
            is_sent,
        });
        self.first + self.list.len() as u64 - 1
    }

    /// The frame of this number is out.
    pub(crate) fn sent(&mut self, number: u64) {
        if let Some(ask) = self.get(number) {
            ask.is_sent = true;
        }
    }

    /// Answers the oldest one.
    ///
    /// # Errors
    /// When there is none that could be answered.
    pub(crate) fn answer_oldest(&mut self) -> Result<Report, Nonsense> {
        self.answer(self.first)
    }

    /// Answers the one of this number.
    ///
    /// # Errors
    /// When there is none that could be answered.
    pub(crate) fn answer(&mut self, number: u64) -> Result<Report, Nonsense> {
        let ask = self.get(number).filter(|ask| ask.is_sent);
        let report = ask.and_then(|ask| ask.report.take());
        let report = report.ok_or(Nonsense("an answer to what was not asked"))?;
        while self.list.pop_front_if(|ask| ask.report.is_none()).is_some() {
            self.first += 1;
        }
        Ok(report)
    }

    /// The peer is gone: those that it has not answered.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Report> + use<> {
        let list = std::mem::take(&mut self.list);
        list.into_iter().filter_map(|ask| ask.report)
    }

    fn get(&mut self, number: u64) -> Option<&mut Ask> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.list.get_mut(place)
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

    fn answered(asks: &mut Asks, number: u64) -> Option<u64> {
        asks.answer(number).ok().map(|report| report.context.0)
    }

    #[test]
    fn answers_come_in_any_order_and_only_once() {
        let mut asks = Asks::default();
        for number in 0..4 {
            assert_eq!(asks.push(report(number), true), number);
        }
        assert_eq!(answered(&mut asks, 2), Some(2));
        assert_eq!(answered(&mut asks, 2), None);
        assert_eq!(answered(&mut asks, 0), Some(0));
        assert_eq!(asks.len(), 3);
        assert_eq!(answered(&mut asks, 1), Some(1));
        assert_eq!(asks.len(), 1);
        assert_eq!(answered(&mut asks, 0), None);
        assert_eq!(answered(&mut asks, 4), None);
        assert_eq!(asks.push(report(4), true), 4);
        assert_eq!(asks.answer_oldest().unwrap().context, Context(3));
        assert_eq!(asks.take().count(), 1);
    }

    #[test]
    fn nothing_is_answered_before_it_was_sent() {
        let mut asks = Asks::default();
        let number = asks.push(report(0), false);
        asks.answer_oldest().unwrap_err();
        asks.sent(number);
        asks.answer_oldest().unwrap();
        asks.answer_oldest().unwrap_err();
    }
}
