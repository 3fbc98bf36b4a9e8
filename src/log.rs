//! Log output, filtered by `FI_LOG_LEVEL`, `FI_LOG_PROV` and `FI_LOG_SUBSYS`.
//!
//! The library logs through the `log` crate and does not install a logger: a program with its own
//! logger receives the messages. Tools call [`init`], which installs a logger.
//!
//! The target of a message is `selvedge::<provider>::<subsystem>`, such as
//! `selvedge::shm::ep_ctrl`. The provider in the core's targets is `core`. A message without such a
//! target belongs to the subsystem `core` of its crate.

use std::fmt;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::param::{Filter, Params};
use crate::{Errno, Error};

/// The subsystems of a provider that log messages.
pub const SUBSYSTEMS: [&str; 10] = [
    "core", "fabric", "domain", "ep_ctrl", "ep_data", "av", "cq", "eq", "mr", "cntr",
];

/// Installs a logger that prints messages to standard error, unless the program has a logger.
///
/// The default level prints warnings and errors.
///
/// # Errors
/// [`Errno::Inval`] for an invalid value of a variable.
pub fn init() -> Result<(), Error> {
    static DISPATCHER: OnceLock<Dispatcher> = OnceLock::new();
    let dispatcher = Dispatcher::new(&Params::from_env())?;
    let dispatcher = DISPATCHER.get_or_init(|| dispatcher);
    if log::set_logger(dispatcher).is_ok() {
        log::set_max_level(dispatcher.max_level());
    }
    Ok(())
}

/// A function that prints a message. Its arguments are the level, and the text with the prefix
/// `<provider>:<subsystem>:` and without a line terminator.
pub type Output = fn(Level, &str);

/// Sets the output of the logger that [`init`] installs; `None` for standard error. The call has no
/// effect in a program with its own logger.
pub fn set_output(output: Option<Output>) {
    *OUTPUT.write().unwrap_or_else(PoisonError::into_inner) = output;
}

static OUTPUT: RwLock<Option<Output>> = RwLock::new(None);

/// Logs a message of a provider whose name is known only at run time. The message is formatted only
/// if its level is enabled; the check is one load.
#[inline]
pub fn log_as(level: Level, provider: &str, subsystem: &str, message: fmt::Arguments<'_>) {
    if level <= log::max_level() {
        log_to(level, provider, subsystem, message);
    }
}

#[cold]
fn log_to(level: Level, provider: &str, subsystem: &str, message: fmt::Arguments<'_>) {
    let target = format!("selvedge::{provider}::{subsystem}");
    log::log!(target: &target, level, "{message}");
}

/// The logger that [`init`] installs.
#[derive(Debug)]
struct Dispatcher {
    rank: u8,
    providers: Filter,
    subsystems: Filter,
}

impl Dispatcher {
    fn new(params: &Params) -> Result<Self, Error> {
        let subsystems = params.text("FI_LOG_SUBSYS")?;
        Ok(Self {
            rank: rank_of_name(&params.text("FI_LOG_LEVEL")?),
            providers: Filter::parse(&params.text("FI_LOG_PROV")?),
            subsystems: parse_subsystems(&subsystems)?,
        })
    }

    /// Returns the maximum level that the macros of `log` pass to this logger.
    fn max_level(&self) -> LevelFilter {
        match self.rank {
            OFF => LevelFilter::Off,
            ERROR => LevelFilter::Error,
            WARN => LevelFilter::Warn,
            _ => LevelFilter::Trace,
        }
    }

    fn admits(&self, level: Level, target: &str) -> bool {
        let Some((provider, subsystem)) = origin(target) else {
            return false;
        };
        rank(level) <= self.rank
            && self.providers.admits(provider)
            && self.subsystems.admits(subsystem)
    }
}

impl Log for Dispatcher {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.admits(metadata.level(), metadata.target())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // The lock is released before the call, because an output may log, too.
        let output = *OUTPUT.read().unwrap_or_else(PoisonError::into_inner);
        match output {
            Some(print) => print(record.level(), &format_text(record)),
            None => eprintln!("{}", format_line(record)),
        }
    }

    fn flush(&self) {}
}

/// Formats `selvedge:<pid>:<seconds>:<provider>:<subsystem>:<level>: <text>`. The process id is
/// queried for each message, because the process may have forked.
fn format_line(record: &Record<'_>) -> String {
    let (provider, subsystem) = origin(record.target()).unwrap_or(("core", "core"));
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    format!(
        "selvedge:{}:{seconds}:{provider}:{subsystem}:{}: {}",
        std::process::id(),
        record.level().as_str().to_ascii_lowercase(),
        record.args()
    )
}

/// Formats `<provider>:<subsystem>: <text>`.
fn format_text(record: &Record<'_>) -> String {
    let (provider, subsystem) = origin(record.target()).unwrap_or(("core", "core"));
    format!("{provider}:{subsystem}: {}", record.args())
}

/// Returns the provider and subsystem of a target, or `None` for a target of another library.
fn origin(target: &str) -> Option<(&str, &str)> {
    let (krate, path) = target.split_once("::").unwrap_or((target, ""));
    if krate == "selvedge" {
        let (provider, subsystem) = path.split_once("::").unwrap_or(("core", "core"));
        let known = SUBSYSTEMS.contains(&subsystem);
        return Some(if known {
            (provider, subsystem)
        } else {
            ("core", "core")
        });
    }
    if krate == "fabtests" {
        return Some((krate, "core"));
    }
    Some((krate.strip_prefix("selvedge_")?, "core"))
}

fn parse_subsystems(text: &str) -> Result<Filter, Error> {
    let filter = Filter::parse(text);
    if let Some(unknown) = filter.layers().find(|name| !SUBSYSTEMS.contains(name)) {
        let message = format!(
            "FI_LOG_SUBSYS={text:?}: {unknown:?} is not one of {}",
            SUBSYSTEMS.join(", ")
        );
        return Err(Error::new(Errno::Inval, message));
    }
    Ok(filter)
}

/// Returns the rank of a level in libfabric's order, in which traces come before information. A
/// message is printed if its rank is at most the rank of `FI_LOG_LEVEL`.
fn rank(level: Level) -> u8 {
    match level {
        Level::Error => ERROR,
        Level::Warn => WARN,
        Level::Trace => TRACE,
        Level::Info => INFO,
        Level::Debug => DEBUG,
    }
}

fn rank_of_name(name: &str) -> u8 {
    match name {
        "off" => OFF,
        "error" => ERROR,
        "trace" => TRACE,
        "info" => INFO,
        "debug" => DEBUG,
        _ => WARN,
    }
}

const OFF: u8 = 0;
const ERROR: u8 = 1;
const WARN: u8 = 2;
const TRACE: u8 = 3;
const INFO: u8 = 4;
const DEBUG: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatcher(env: &[(&str, &str)]) -> Result<Dispatcher, Error> {
        Dispatcher::new(&env.iter().copied().collect())
    }

    #[test]
    fn levels_have_the_order_of_libfabric() {
        use Level::{Debug, Error, Info, Trace, Warn};
        let table: &[(&str, &[Level])] = &[
            ("off", &[]),
            ("error", &[Error]),
            ("warn", &[Error, Warn]),
            ("WARN", &[Error, Warn]),
            ("trace", &[Error, Warn, Trace]),
            ("info", &[Error, Warn, Trace, Info]),
            ("debug", &[Error, Warn, Trace, Info, Debug]),
        ];
        for (word, printed) in table {
            let dispatcher = dispatcher(&[("FI_LOG_LEVEL", word)]).unwrap();
            for level in Level::iter() {
                let admits = dispatcher.admits(level, "selvedge::shm::cq");
                assert_eq!(admits, printed.contains(&level), "{word} {level}");
                assert!(!admits || level <= dispatcher.max_level());
            }
        }
    }

    #[test]
    fn warnings_are_printed_by_default() {
        let dispatcher = dispatcher(&[]).unwrap();
        assert!(dispatcher.admits(Level::Warn, "selvedge::shm::cq"));
        assert!(!dispatcher.admits(Level::Info, "selvedge::shm::cq"));
    }

    #[test]
    fn providers_and_subsystems_filter_messages() {
        let table = [
            ("FI_LOG_PROV", "shm", "selvedge::shm::cq", true),
            ("FI_LOG_PROV", "tcp,udp", "selvedge::shm::cq", false),
            ("FI_LOG_PROV", "^shm", "selvedge::shm::cq", false),
            ("FI_LOG_PROV", "^tcp", "selvedge::shm::cq", true),
            ("FI_LOG_PROV", "shm", "selvedge_shm::endpoint", true),
            ("FI_LOG_PROV", "core", "selvedge::registry", true),
            ("FI_LOG_SUBSYS", "ep_ctrl,av", "selvedge::shm::av", true),
            ("FI_LOG_SUBSYS", "^av", "selvedge::shm::av", false),
            ("FI_LOG_SUBSYS", "core", "selvedge_shm::endpoint", true),
            ("FI_LOG_SUBSYS", "", "hyper::client", false),
        ];
        for (name, value, target, printed) in table {
            let dispatcher = dispatcher(&[(name, value)]).unwrap();
            let admits = dispatcher.admits(Level::Warn, target);
            assert_eq!(admits, printed, "{name}={value} {target}");
        }
    }

    #[test]
    fn bad_values_are_reported() {
        let level = dispatcher(&[("FI_LOG_LEVEL", "loud")]).unwrap_err();
        assert_eq!(
            level.message(),
            "FI_LOG_LEVEL=\"loud\": expected one of off, error, warn, trace, info, debug"
        );
        let subsystem = dispatcher(&[("FI_LOG_SUBSYS", "av,cqs")]).unwrap_err();
        assert_eq!(
            subsystem.message(),
            "FI_LOG_SUBSYS=\"av,cqs\": \"cqs\" is not one of core, fabric, domain, ep_ctrl, \
             ep_data, av, cq, eq, mr, cntr"
        );
    }

    #[test]
    fn a_line_names_its_process_provider_and_subsystem() {
        let record = Record::builder()
            .level(Level::Warn)
            .target("selvedge::shm::ep_ctrl")
            .args(format_args!("a peer has failed"))
            .build();
        let line = format_line(&record);
        assert!(
            line.starts_with(&format!("selvedge:{}:", std::process::id())),
            "{line}"
        );
        assert!(
            line.ends_with(":shm:ep_ctrl:warn: a peer has failed"),
            "{line}"
        );
    }
}
