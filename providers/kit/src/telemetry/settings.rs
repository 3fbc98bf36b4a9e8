//! The `FI_SIGHT_*` parameters: the events at which a process writes its telemetry pages to a file,
//! and the directory of that file.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use selvedge::param::Params;
use selvedge::{Errno, Error};

/// The values of the `FI_SIGHT_*` parameters.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the process writes its pages to a file when it crashes.
    pub crash: bool,
    /// The signal at which the process writes its pages to a file; `None` for no signal.
    pub signal: Option<Signal>,
    /// The directory of the file.
    pub dir: PathBuf,
}

impl Settings {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`Errno::Inval`] for the first invalid value; the error names it.
    pub fn read(params: &Params) -> Result<Self, Error> {
        Ok(Self {
            crash: params.flag("FI_SIGHT_CRASH")?,
            signal: signal(&params.text("FI_SIGHT_SIGNAL")?)?,
            dir: params.text("FI_SIGHT_DIR")?.into(),
        })
    }
}

/// Parses the name of a signal, with or without `SIG`, or its number. Empty text means no signal.
///
/// # Errors
/// [`Errno::Inval`] for any other text, and for `SIGKILL` and `SIGSTOP`, which cannot be caught.
fn signal(text: &str) -> Result<Option<Signal>, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let name = text.to_ascii_uppercase();
    let by_number = text
        .parse()
        .ok()
        .and_then(|it: i32| Signal::try_from(it).ok());
    let signal = by_number
        .or_else(|| name.parse().ok())
        .or_else(|| format!("SIG{name}").parse().ok())
        .filter(|it| !matches!(it, Signal::SIGKILL | Signal::SIGSTOP));
    signal.map(Some).ok_or_else(|| {
        let message = format!(
            "FI_SIGHT_SIGNAL={text:?}: expected a signal that can be caught, such as USR2 or 12"
        );
        Error::new(Errno::Inval, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_with_or_without_sig_or_a_number_and_the_error_quotes_any_other()
    -> Result<(), Error> {
        for text in ["USR2", "sigusr2", "12", " usr2 "] {
            assert_eq!(signal(text)?, Some(Signal::SIGUSR2), "{text}");
        }
        assert_eq!(signal("")?, None);
        for text in ["KILL", "SIGSTOP", "9", "0", "usr3", "-1"] {
            let error = signal(text).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        Ok(())
    }
}
