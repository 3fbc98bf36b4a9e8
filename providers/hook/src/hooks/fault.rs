//! `fault`: the faults that `FI_HOOK_FAULT` describes.
//!
//! Rules are separated by semicolons: `CALL:ACTION@WHEN`. The call is a method's name, or `*` for
//! all. The action is `error=NAME` (an error number by its name without `FI_E` or `E`, in any
//! case), `drop` (the call succeeds and has no effect), `delay=TIME` or `kill`. The condition is
//! `N` for the N-th call, `N+` for all calls from the N-th on, or `1/N` for one call in N at
//! random, from the seed `FI_HOOK_SEED`. A rule without a condition applies to every call.
//!
//! `tsendmsg:error=NOMEM@3;cq_read:delay=1ms@1/100;*:kill@500`

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use selvedge::param::{Params, nearest};
use selvedge::{Errno, Error, Result};

use super::call::{CALLS, Call, Next};

#[derive(Debug)]
pub(crate) struct Fault {
    rules: Vec<Rule>,
    random: AtomicU64,
}

#[derive(Debug)]
struct Rule {
    call: String,
    action: Action,
    when: When,
    seen: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Fail(Errno),
    Drop,
    Delay(Duration),
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    Nth(u64),
    From(u64),
    OneIn(u64),
}

impl Fault {
    /// # Errors
    /// [`Errno::Inval`] for an invalid rule, which the error quotes.
    pub(crate) fn parse(params: &Params) -> Result<Self, Error> {
        let text = params.text("FI_HOOK_FAULT")?;
        let seed = params.int("FI_HOOK_SEED")?;
        let rules = text
            .split(';')
            .map(str::trim)
            .filter(|rule| !rule.is_empty());
        let rules = rules.map(|text| {
            let rule =
                Rule::parse(text).ok_or_else(|| "is not of the form CALL:ACTION@WHEN".to_owned());
            rule.and_then(Rule::checked).map_err(|reason| {
                Error::new(Errno::Inval, format!("FI_HOOK_FAULT: {text:?} {reason}"))
            })
        });
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            random: AtomicU64::new(seed.cast_unsigned()),
        })
    }

    pub(crate) fn intercept(&self, call: &mut Call<'_>, next: Next<'_>) -> Result {
        for rule in self.rules.iter().filter(|rule| rule.is_for(call.name)) {
            if !self.is_time(rule) {
                continue;
            }
            log::info!(target: "selvedge::hook::core", "{:?} at {}", rule.action, call.name);
            match rule.action {
                Action::Fail(errno) => return Err(errno),
                Action::Drop => return Ok(()),
                Action::Delay(time) => thread::sleep(time),
                Action::Kill => {
                    // The call does not return.
                    let _ = raise(Signal::SIGKILL);
                }
            }
        }
        next(call)
    }

    fn is_time(&self, rule: &Rule) -> bool {
        let seen = rule.seen.fetch_add(1, Ordering::Relaxed) + 1;
        match rule.when {
            When::Always => true,
            When::Nth(number) => seen == number,
            When::From(number) => seen >= number,
            When::OneIn(chance) => self.next().is_multiple_of(chance),
        }
    }

    /// The next number of the sequence of the seed (SplitMix64).
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let word = self
            .random
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

impl Rule {
    fn parse(rule: &str) -> Option<Self> {
        let (call, rest) = rule.split_once(':')?;
        let (action, when) = match rest.split_once('@') {
            Some((action, when)) => (action, When::parse(when)?),
            None => (rest, When::Always),
        };
        Some(Self {
            call: call.trim().to_owned(),
            action: Action::parse(action.trim())?,
            when,
            seen: AtomicU64::new(0),
        })
    }

    /// The rule, if its call exists.
    fn checked(self) -> Result<Self, String> {
        if CALLS.iter().any(|call| self.is_for(call)) {
            return Ok(self);
        }
        Err(match nearest(&self.call, CALLS.into_iter()) {
            Some(call) => format!("names an unknown call; did you mean {call}?"),
            None => "names an unknown call: calls have the names that trace writes".to_owned(),
        })
    }

    fn is_for(&self, name: &str) -> bool {
        self.call == "*" || self.call == name
    }
}

impl Action {
    fn parse(text: &str) -> Option<Self> {
        Some(match text.split_once('=') {
            Some(("error", name)) => Self::Fail(errno(name)?),
            Some(("delay", time)) => Self::Delay(duration(time)?),
            None if text == "drop" => Self::Drop,
            None if text == "kill" => Self::Kill,
            _ => return None,
        })
    }
}

impl When {
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.parse().ok().filter(|&number| number > 0);
        Some(if let Some(text) = text.strip_suffix('+') {
            Self::From(number(text)?)
        } else if let Some(text) = text.strip_prefix("1/") {
            Self::OneIn(number(text)?)
        } else {
            Self::Nth(number(text)?)
        })
    }
}

/// An error number by its name or its number.
fn errno(name: &str) -> Option<Errno> {
    if let Ok(number) = name.parse() {
        return Errno::try_from_raw(number);
    }
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("FI_E").unwrap_or(&name);
    let name = name.strip_prefix('E').unwrap_or(name);
    let named = |errno: &&Errno| format!("{errno:?}").to_ascii_uppercase() == name;
    Errno::ALL.iter().find(named).copied()
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|char: char| !char.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed_into_call_action_and_condition() {
        let parsed = |rule: &str| Rule::parse(rule).map(|rule| (rule.action, rule.when));
        let no_mem = Action::Fail(Errno::NoMem);
        assert_eq!(
            parsed("tsendmsg:error=NOMEM@3"),
            Some((no_mem, When::Nth(3)))
        );
        assert_eq!(
            parsed("*:error=FI_ENOMEM@3+"),
            Some((no_mem, When::From(3)))
        );
        assert_eq!(parsed("read:error=12"), Some((no_mem, When::Always)));
        let delay = Action::Delay(Duration::from_millis(2));
        assert_eq!(
            parsed("cq_read:delay=2ms@1/7"),
            Some((delay, When::OneIn(7)))
        );
        assert_eq!(parsed("a:drop"), Some((Action::Drop, When::Always)));
        assert_eq!(parsed("a:kill@1"), Some((Action::Kill, When::Nth(1))));
        for wrong in [
            "",
            "a",
            "a:b",
            "a:error=NOTHING",
            "a:drop@0",
            "a:delay=5",
            "a:kill@x",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn random_faults_repeat_with_the_same_seed() {
        let draw = |seed| {
            let fault = Fault {
                rules: Vec::new(),
                random: AtomicU64::new(seed),
            };
            (0..1000)
                .filter(|_| fault.next().is_multiple_of(10))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(4), draw(4));
        assert_ne!(draw(4), draw(5));
        assert!((50..200).contains(&draw(4).len()));
    }
}
