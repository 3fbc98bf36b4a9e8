//! `trace`: every call as a line of JSON.

use std::time::Instant;

use selvedge::Result;

use super::call::{Call, Next};
use super::output::Output;

#[derive(Debug)]
pub(crate) struct Trace {
    output: Output,
    start: Instant,
}

impl Trace {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            output,
            start: Instant::now(),
        }
    }

    pub(crate) fn intercept(&self, call: &mut Call<'_>, next: Next<'_>) -> Result {
        let args = call.args();
        let begin = Instant::now();
        let result = next(call);
        let took = begin.elapsed();
        let Call { name, object, .. } = call;
        let time = begin.duration_since(self.start);
        let code = match &result {
            Ok(()) => 0,
            Err(errno) => -errno.as_raw(),
        };
        let returned = call.returned.take().unwrap_or_default();
        let comma = if returned.is_empty() { "" } else { "," };
        self.output.write(&format!(
            "{{\"pid\":{},\"us\":{:.3},\"call\":\"{name}\",\"object\":{object},\"args\":{{{args}}},\
             \"result\":{code}{comma}{returned},\"ns\":{}}}\n",
            std::process::id(),
            time.as_secs_f64() * 1e6,
            took.as_nanos(),
        ));
        result
    }
}
