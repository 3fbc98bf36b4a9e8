//! Configuration of a controller: from the program's arguments, from the environment, or in code.

use std::env;
use std::time::Duration;

use crate::{Error, Result};

/// How the contexts of a program are started, and which providers they use.
///
/// # Examples
/// ```no_run
/// use selvedge_cheetah::{Config, Controller};
///
/// let controller = Controller::open(&Config::new().fork(4).fabric("shm"))?;
/// println!("context {} of {}", controller.mycontext(), controller.ncontexts());
/// # Ok::<(), selvedge_cheetah::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Number of contexts to fork; `None` if a launcher starts them.
    pub fork: Option<usize>,
    /// The provider. If this and `near` are empty, discovery chooses; contexts of a launcher then
    /// use tcp, and shm on the same host.
    pub fabric: String,
    /// The provider for contexts of the same host; `fabric` is used for the others.
    pub near: String,
    /// Starts a thread in the library that progresses operations and rings bells.
    pub has_thread: bool,
    /// The rank of this context among the contexts of a launcher; `None` if no launcher started it.
    pub launch: Option<Launch>,
    /// Time limit of a wait or barrier; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Time limit for the start: until all contexts are connected.
    pub start_timeout: Option<Duration>,
}

/// The rank of a context that a launcher started, and the rendezvous with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// Number of this context.
    pub rank: usize,
    /// Number of contexts.
    pub size: usize,
    /// Identifies the run: equal for all its contexts, and for no others.
    pub job: String,
    /// The rendezvous at which the contexts exchange their addresses.
    pub rendezvous: Rendezvous,
}

/// The rendezvous at which contexts of a launcher exchange their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rendezvous {
    /// No exchange: the run has one context.
    #[default]
    Single,
    /// `host:port`, where context 0 listens.
    Host(String),
    /// `host:port`, where the launcher listens: `cheetahrun`.
    Server(String),
    /// A file in which context 0 writes its listening address.
    File(String),
    /// The descriptor of a process manager with the PMI-1 protocol: `mpiexec`.
    Pmi(i32),
}

/// The options that a program's arguments may have, each with one or two dashes.
const NETWORKS: [(&str, &str); 4] = [
    ("shmem", "shm"),
    ("tcp", "tcp"),
    // Any provider: the launcher configures it.
    ("mpi", ""),
    // User-level messaging: the first provider of discovery.
    ("ulm", ""),
];
/// Maximum number of forked contexts.
const MAX_CONTEXTS: usize = 1024;

impl Config {
    /// One context, with any provider.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forks the process into `contexts` contexts.
    #[must_use]
    pub fn fork(mut self, contexts: usize) -> Self {
        self.fork = Some(contexts);
        self
    }

    /// Uses this provider.
    #[must_use]
    pub fn fabric(mut self, provider: &str) -> Self {
        provider.clone_into(&mut self.fabric);
        self
    }

    /// Uses this provider for contexts of the same host, in addition to the one for all others.
    #[must_use]
    pub fn near(mut self, provider: &str) -> Self {
        provider.clone_into(&mut self.near);
        self
    }

    /// Starts a thread in the library that progresses operations and rings bells.
    #[must_use]
    pub fn with_thread(mut self) -> Self {
        self.has_thread = true;
        self
    }

    /// Sets the time limit of waits and barriers.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Sets the rank of this context in a run of several processes.
    #[must_use]
    pub fn launched(mut self, rank: usize, size: usize, job: &str, rendezvous: Rendezvous) -> Self {
        self.launch = Some(Launch {
            rank,
            size,
            job: job.to_owned(),
            rendezvous,
        });
        self
    }

    /// Removes the controller's options from a program's arguments and applies them; other
    /// arguments stay. A process that a launcher started, according to the environment, is not
    /// forked.
    ///
    /// | option | meaning |
    /// |---|---|
    /// | `-shmem` | shared memory of this machine |
    /// | `-tcp` | TCP |
    /// | `-mpi` | started by a launcher: `cheetahrun`, `mpiexec`, or by hand; otherwise an error, unless N is 1 |
    /// | `-ulm` | the first provider of discovery |
    /// | `-fabric PROVIDER` | this provider |
    /// | `-np N` | N contexts |
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid or conflicting option, with its value. `args` is unchanged.
    pub fn from_args(args: &mut Vec<String>) -> Result<Self> {
        Self::from_args_with_env(args, &|name| env::var(name).ok())
    }

    fn from_args_with_env(args: &mut Vec<String>, env: &EnvLookup<'_>) -> Result<Self> {
        let mut config = Self::read(env)?;
        let (options, remaining) = Options::take(args)?;
        config.fabric = match options.fabric {
            Some(name) => name,
            None => config.fabric,
        };
        if options.requires_launcher && config.launch.is_none() && options.contexts != Some(1) {
            return Err(missing_launcher(args, options.contexts));
        }
        match (&config.launch, options.contexts) {
            (Some(launch), Some(contexts)) if launch.size != contexts => {
                let message = format!("-np {contexts}, but {} contexts were started", launch.size);
                return Err(Error::usage(message));
            }
            (Some(_), _) => {}
            (None, contexts) => config.fork = contexts,
        }
        *args = remaining;
        Ok(config)
    }

    /// Reads the configuration from the environment:
    ///
    /// | variable | meaning |
    /// |---|---|
    /// | `CHEETAH_RANK`, `CHEETAH_SIZE` | number of this context, number of contexts |
    /// | `CHEETAH_JOB` | identifies the run |
    /// | `CHEETAH_RENDEZVOUS` | where the contexts exchange addresses: `host:port`, or the path of a file |
    /// | `CHEETAH_SERVER` | `host:port` of a launcher that serves the rendezvous |
    /// | `PMI_FD`, `PMI_RANK`, `PMI_SIZE` | as set by `mpiexec` |
    /// | `CHEETAH_FABRIC` | the provider |
    /// | `CHEETAH_NEAR` | the provider for contexts of the same host |
    /// | `CHEETAH_TIMEOUT` | time limit of a wait or barrier, with its unit: `500ms`, `30s`, `2m`; 0 for no limit |
    /// | `CHEETAH_START_TIMEOUT` | time limit of the start, with its unit |
    /// | `CHEETAH_THREAD` | 1 for a thread in the library |
    ///
    /// Contexts of a launcher without a provider in their configuration use tcp between hosts and
    /// shm on each host.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid value, with its variable.
    pub fn from_env() -> Result<Self> {
        Self::read(&|name| env::var(name).ok())
    }

    fn read(env: &EnvLookup<'_>) -> Result<Self> {
        Ok(Self {
            fork: None,
            fabric: env("CHEETAH_FABRIC").unwrap_or_default(),
            near: env("CHEETAH_NEAR").unwrap_or_default(),
            has_thread: env("CHEETAH_THREAD").is_some_and(|value| value == "1"),
            launch: read_launch(env)?,
            timeout: read_time(env, "CHEETAH_TIMEOUT")?.filter(|time| !time.is_zero()),
            start_timeout: read_time(env, "CHEETAH_START_TIMEOUT")?,
        })
    }
}

type EnvLookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

fn read_launch(env: &EnvLookup<'_>) -> Result<Option<Launch>> {
    let explicit = ["CHEETAH_RANK", "CHEETAH_SIZE"].map(env);
    let pmi = ["PMI_RANK", "PMI_SIZE", "PMI_FD"].map(env);
    let (rank, size, rendezvous) = match (explicit, pmi) {
        ([Some(rank), Some(size)], _) => (rank, size, read_rendezvous(env)),
        ([None, None], [Some(rank), Some(size), Some(fd)]) => {
            let fd = parse_number("PMI_FD", &fd)?;
            (rank, size, Rendezvous::Pmi(fd as i32))
        }
        ([None, None], _) => return Ok(None),
        _ => {
            let message = "set both CHEETAH_RANK and CHEETAH_SIZE, or neither";
            return Err(Error::usage(message));
        }
    };
    let (rank, size) = (parse_number("rank", &rank)?, parse_number("size", &size)?);
    if size == 0 || rank >= size {
        return Err(Error::usage(format!("rank {rank} of {size} contexts")));
    }
    if size > 1 && rendezvous == Rendezvous::Single {
        let message = format!("{size} contexts, but neither CHEETAH_RENDEZVOUS nor CHEETAH_SERVER");
        return Err(Error::usage(message));
    }
    let job = env("CHEETAH_JOB").unwrap_or_default();
    if job.contains(char::is_whitespace) {
        return Err(Error::usage(format!("CHEETAH_JOB={job:?} is not one word")));
    }
    Ok(Some(Launch {
        rank,
        size,
        job,
        rendezvous,
    }))
}

fn read_rendezvous(env: &EnvLookup<'_>) -> Rendezvous {
    if let Some(server) = env("CHEETAH_SERVER") {
        return Rendezvous::Server(server);
    }
    match env("CHEETAH_RENDEZVOUS") {
        None => Rendezvous::Single,
        Some(path) if path.contains('/') => Rendezvous::File(path),
        Some(address) => Rendezvous::Host(address),
    }
}

fn parse_number(name: &str, text: &str) -> Result<usize> {
    let parsed = text.parse();
    parsed.map_err(|_| Error::usage(format!("{name} {text:?} is not a number")))
}

fn read_time(env: &EnvLookup<'_>, name: &str) -> Result<Option<Duration>> {
    let Some(text) = env(name) else {
        return Ok(None);
    };
    match selvedge::param::time(&text) {
        Some(time) => Ok(Some(time)),
        None => Err(Error::usage(format!(
            "{name}={text:?}: expected a time with its unit, such as 500ms, 30s or 2m"
        ))),
    }
}

/// The error for `-mpi` in a process that no launcher has started.
fn missing_launcher(args: &[String], contexts: Option<usize>) -> Error {
    let program = args.first().map_or("PROGRAM", String::as_str);
    let count = contexts.map_or_else(|| "N".to_owned(), |contexts| contexts.to_string());
    Error::usage(format!(
        "-mpi: no launcher has started this process as one of several contexts. Start it with \
         `cheetahrun -n {count} {program}` or `mpiexec -n {count} {program}`, or fork the contexts \
         with -shmem -np {count} instead of -mpi"
    ))
}

#[derive(Debug, Default)]
struct Options {
    fabric: Option<String>,
    contexts: Option<usize>,
    requires_launcher: bool,
}

impl Options {
    /// Parses the options. Returns the options and the remaining arguments.
    fn take(args: &[String]) -> Result<(Self, Vec<String>)> {
        let mut options = Self::default();
        let mut remaining = Vec::new();
        let mut args = args.iter();
        remaining.extend(args.next().cloned());
        while let Some(arg) = args.next() {
            let name = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'));
            match name {
                // Arguments after `--` belong to the program.
                Some("") if arg == "--" => {
                    remaining.push(arg.clone());
                    remaining.extend(args.by_ref().cloned());
                }
                Some("np") => options.contexts = Some(contexts(args.next())?),
                Some("fabric") => {
                    let name = args.next().filter(|name| !name.starts_with('-'));
                    let name = name.ok_or_else(|| Error::usage("-fabric needs a provider"))?;
                    options.set_fabric(name)?;
                }
                Some(name) => match NETWORKS.iter().find(|network| network.0 == name) {
                    Some(&(option, provider)) => {
                        options.requires_launcher |= option == "mpi";
                        options.set_fabric(provider)?;
                    }
                    None => remaining.push(arg.clone()),
                },
                None => remaining.push(arg.clone()),
            }
        }
        Ok((options, remaining))
    }

    fn set_fabric(&mut self, name: &str) -> Result {
        match self.fabric.replace(name.to_owned()) {
            Some(other) if other != name => {
                let message = format!("two fabrics, {other:?} and {name:?}: name one");
                Err(Error::usage(message))
            }
            _ => Ok(()),
        }
    }
}

fn contexts(value: Option<&String>) -> Result<usize> {
    let text = value.ok_or_else(|| Error::usage("-np needs a number of contexts"))?;
    match text.parse() {
        Ok(contexts @ 1..=MAX_CONTEXTS) => Ok(contexts),
        _ => Err(Error::usage(format!(
            "-np {text}: a number of contexts from 1 to {MAX_CONTEXTS}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str, env: &[(&str, &str)]) -> Result<(Config, String)> {
        let mut args: Vec<_> = args.split(' ').map(str::to_owned).collect();
        let lookup = |name: &str| {
            let variable = env.iter().find(|variable| variable.0 == name);
            variable.map(|variable| variable.1.to_owned())
        };
        let config = Config::from_args_with_env(&mut args, &lookup)?;
        Ok((config, args.join(" ")))
    }

    #[test]
    fn options_are_removed_and_other_arguments_stay() -> Result {
        let table = [
            ("p -shmem -np 4 in.dat", Some(4), "shm", "p in.dat"),
            ("p -v -np 2 --tcp -x", Some(2), "tcp", "p -v -x"),
            ("p -fabric verbs -np 1 -n 3", Some(1), "verbs", "p -n 3"),
            ("p -ulm -np 3", Some(3), "", "p"),
            ("p a b", None, "", "p a b"),
            ("p -np 2 -- -np 7", Some(2), "", "p -- -np 7"),
        ];
        for (args, fork, fabric, rest) in table {
            let (config, remaining) = parse(args, &[])?;
            assert_eq!(
                (config.fork, &*config.fabric, &*remaining),
                (fork, fabric, rest),
                "{args}"
            );
        }
        Ok(())
    }

    #[test]
    fn invalid_options_are_refused_by_option_and_value() {
        let table = [
            ("p -np 0", "-np 0"),
            ("p -np -1", "-np -1"),
            ("p -np 1000000", "-np 1000000"),
            ("p -np", "-np needs"),
            ("p -np four", "-np four"),
            ("p -fabric", "-fabric needs"),
            ("p -shmem -tcp -np 2", "two fabrics"),
            ("p -mpi", "-mpi: no launcher has started this process"),
            ("p -mpi -np 2", "cheetahrun -n 2 p"),
            ("p -np 2 -mpi", "mpiexec -n 2 p"),
            ("p -mpi -np 2", "-shmem -np 2"),
        ];
        for (args, part) in table {
            let text = parse(args, &[]).expect_err(args).to_string();
            assert!(text.contains(part), "{args}: {text}");
        }
    }

    #[test]
    fn the_environment_sets_rank_and_size_of_a_context() -> Result {
        let explicit = [
            ("CHEETAH_RANK", "1"),
            ("CHEETAH_SIZE", "3"),
            ("CHEETAH_JOB", "j"),
            ("CHEETAH_RENDEZVOUS", "node1:7000"),
        ];
        let (config, _) = parse("p -shmem -np 3", &explicit)?;
        let launch = config.launch.expect("a launch");
        assert_eq!((launch.rank, launch.size, &*launch.job), (1, 3, "j"));
        assert_eq!(launch.rendezvous, Rendezvous::Host("node1:7000".to_owned()));
        assert_eq!(config.fork, None);
        let pmi = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_FD", "5")];
        let launch = parse("p", &pmi)?.0.launch.expect("a launch");
        assert_eq!(launch.rendezvous, Rendezvous::Pmi(5));
        Ok(())
    }

    #[test]
    fn times_of_the_environment_need_a_unit() -> Result {
        let limit = |text| parse("p", &[("CHEETAH_TIMEOUT", text)]).map(|parsed| parsed.0.timeout);
        assert_eq!(limit("1500ms")?, Some(Duration::from_millis(1500)));
        assert_eq!(limit("2s")?, Some(Duration::from_secs(2)));
        assert_eq!(limit("0")?, None);
        for name in ["CHEETAH_TIMEOUT", "CHEETAH_START_TIMEOUT"] {
            for text in ["5", "5000", "0.5", "-1s", "soon", "", "5 parsecs"] {
                let refused = parse("p", &[(name, text)]).expect_err(text).to_string();
                let reason = format!("{name}={text:?}: expected a time with its unit");
                assert!(refused.contains(&reason), "{refused}");
            }
        }
        Ok(())
    }

    #[test]
    fn an_invalid_environment_is_refused() {
        type Case = (
            &'static str,
            &'static [(&'static str, &'static str)],
            &'static str,
        );
        let table: [Case; 5] = [
            ("p", &[("CHEETAH_RANK", "1")], "set both CHEETAH_RANK"),
            (
                "p",
                &[("CHEETAH_RANK", "3"), ("CHEETAH_SIZE", "3")],
                "rank 3 of 3",
            ),
            (
                "p",
                &[("CHEETAH_RANK", "x"), ("CHEETAH_SIZE", "3")],
                "\"x\"",
            ),
            (
                "p",
                &[("CHEETAH_RANK", "0"), ("CHEETAH_SIZE", "3")],
                "CHEETAH_RENDEZVOUS",
            ),
            (
                "p -np 4",
                &[("CHEETAH_RANK", "0"), ("CHEETAH_SIZE", "1")],
                "-np 4, but 1",
            ),
        ];
        for (args, env, part) in table {
            let text = parse(args, env).expect_err(part).to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
