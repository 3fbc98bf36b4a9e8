//! `trace`: every call as a line of JSON.

use std::time::Instant;

use selvedge::Result;

use crate::call::{Call, Next};
use crate::out::Out;

#[derive(Debug)]
pub(crate) struct Trace {
    out: Out,
    start: Instant,
}

impl Trace {
    pub(crate) fn new(out: Out) -> Self {
        Self {
            out,
            start: Instant::now(),
        }
    }

    pub(crate) fn around(&self, call: &mut Call<'_>, next: Next<'_>) -> Result {
        let args = call.args();
        let begin = Instant::now();
        let answer = next(call);
        let took = begin.elapsed();
        let Call { name, object, .. } = call;
        let at = begin.duration_since(self.start);
        let result = match &answer {
            Ok(()) => 0,
            Err(errno) => -errno.as_raw(),
        };
        let gave = call.gave.take().unwrap_or_default();
        let comma = if gave.is_empty() { "" } else { "," };
        self.out.write(&format!(
            "{{\"pid\":{},\"us\":{:.3},\"call\":\"{name}\",\"object\":{object},\"args\":{{{args}}},\
             \"result\":{result}{comma}{gave},\"ns\":{}}}\n",
            std::process::id(),
            at.as_secs_f64() * 1e6,
            took.as_nanos(),
        ));
        answer
    }
}
