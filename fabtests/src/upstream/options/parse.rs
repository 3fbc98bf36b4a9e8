//! Parses a command line into [`Options`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context as _, bail};
use lexopt::{Arg, Parser, ValueExt as _};
use selvedge::info::{EpType, Progress, Threading};
use selvedge::{AddrFormat, OpFlags};

use super::{OUT_OF_BAND_PORT, OptionSet, Options, OutOfBand, Sizes, WaitMethod};

/// The reason why parsing returned no options.
#[derive(Debug)]
pub enum Refusal {
    /// Help was requested (`-h`).
    Help,
    /// The command line is invalid.
    Bad(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Bad(error.into())
    }
}

/// Whether an option takes a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HasArg {
    No,
    Required,
    Optional,
}

/// The long options of all programs, and whether they take a value.
const LONG: [(&str, bool); 12] = [
    ("pin-core", true),
    ("timeout", true),
    ("data-progress", true),
    ("control-progress", true),
    ("threading", true),
    ("max-msg-size", true),
    ("use-fi-more", false),
    ("no-rx-cq-data", false),
    ("sync-comp", true),
    ("expect-error", true),
    ("debug-assert", false),
    ("special", false),
];

/// Parses the arguments after the program's name.
///
/// # Errors
/// Help was requested, or an option or value is invalid.
pub fn parse(
    program: &'static str,
    option_set: &OptionSet,
    args: impl IntoIterator<Item = OsString>,
) -> Result<Options, Refusal> {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut options = Options::new(program, &args);
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h' | '?') => return Err(Refusal::Help),
            Arg::Long("help") => return Err(Refusal::Help),
            Arg::Short(option) => parse_short(&mut options, option_set, option, &mut parser)?,
            Arg::Long(name) => {
                let name = name.to_owned();
                parse_long(&mut options, option_set, &name, &mut parser)?;
            }
            Arg::Value(value) => options.arguments.push(value.string()?),
        }
    }
    options.server = options.arguments.first().cloned();
    Ok(options)
}

fn parse_short(
    options: &mut Options,
    option_set: &OptionSet,
    option: char,
    parser: &mut Parser,
) -> Result<(), Refusal> {
    let is_specific = has_arg_in(option_set.specific, option).is_some();
    let has_arg = has_arg_in(option_set.specific, option)
        .or_else(|| {
            option_set
                .common
                .iter()
                .find_map(|set| has_arg_in(set, option))
        })
        .with_context(|| format!("unknown option -{option}"))?;
    let value = match has_arg {
        HasArg::No => None,
        HasArg::Required => Some(parser.value()?.string()?),
        HasArg::Optional => parser.optional_value().map(|v| v.string()).transpose()?,
    };
    if is_specific {
        options
            .specific
            .insert(option.into(), value.unwrap_or_default());
        return Ok(());
    }
    let text = value.as_deref().unwrap_or_default();
    match has_arg {
        HasArg::No => set_switch(options, option),
        _ => set_value(options, option, text).with_context(|| format!("-{option} {text}"))?,
    }
    Ok(())
}

/// Returns whether a short option takes a value according to a getopt(3) string.
fn has_arg_in(set: &str, option: char) -> Option<HasArg> {
    let (_, rest) = set.split_once(option)?;
    Some(match rest {
        _ if rest.starts_with("::") => HasArg::Optional,
        _ if rest.starts_with(':') => HasArg::Required,
        _ => HasArg::No,
    })
}

fn set_switch(options: &mut Options, option: char) {
    match option {
        'm' => options.machine = true,
        'v' => options.verify = true,
        'k' => options.prefix = true,
        'K' => options.fork = true,
        'H' | 'R' => options.device_memory = true,
        // The other options have no effect: buffers are always page-aligned, and domains have no
        // queues.
        _ => {}
    }
}

fn set_value(options: &mut Options, option: char, text: &str) -> anyhow::Result<()> {
    let owned = || Some(text.to_owned());
    match option {
        'p' => options.provider = owned(),
        'f' => options.fabric = owned(),
        'd' => options.domain = owned(),
        's' => options.source = owned(),
        'B' => options.source_port = owned(),
        'P' => options.port = owned(),
        'O' => options.out_of_band_host = owned(),
        'o' => options.operation = owned(),
        'b' | 'E' => options.out_of_band = Some(parse_out_of_band(options, option == 'b', text)?),
        'e' => options.ep_type = Some(parse_ep_type(text)?),
        'F' => options.addr_format = text.parse::<AddrFormat>()?,
        'C' => options.connections = text.parse()?,
        'I' => options.iterations = Some(text.parse()?),
        'w' => options.warmup = text.parse()?,
        'S' => options.sizes = Sizes::parse(text)?,
        'W' => options.window = parse_positive(text)?,
        'j' => options.inject = Some(text.parse()?),
        't' => {
            options.counters = parse_word(
                text,
                &[("queue", false), ("comp", false), ("counter", true)],
            )?
        }
        'c' => options.waiting = parse_word(text, WAITING)?,
        'M' => options.without_mr_local = parse_word(text, &[("mr_local", true)])?,
        'D' => options.device_memory = text != "system",
        // The other options name address vectors and devices, which are not supported.
        _ => {}
    }
    Ok(())
}

const WAITING: &[(&str, WaitMethod)] = &[
    ("spin", WaitMethod::Spin),
    ("sread", WaitMethod::Sread),
    ("fd", WaitMethod::Fd),
    ("yield", WaitMethod::Yield),
];

fn parse_positive(text: &str) -> anyhow::Result<usize> {
    match text.parse()? {
        0 => bail!("must be positive"),
        number => Ok(number),
    }
}

/// Parses `-b` or `-E`. `-b` includes `-E`, in either order.
fn parse_out_of_band(options: &Options, sync: bool, text: &str) -> anyhow::Result<OutOfBand> {
    let before = options.out_of_band;
    let port = match text {
        "" => before.map_or(OUT_OF_BAND_PORT, |before| before.port),
        port => port.parse()?,
    };
    let sync = sync || before.is_some_and(|before| before.sync);
    Ok(OutOfBand { port, sync })
}

fn parse_ep_type(text: &str) -> anyhow::Result<EpType> {
    let types = [
        ("msg", EpType::Msg),
        ("rdm", EpType::Rdm),
        ("dgram", EpType::Dgram),
    ];
    parse_word(&text.to_ascii_lowercase(), &types)
}

fn parse_word<T: Copy>(text: &str, words: &[(&str, T)]) -> anyhow::Result<T> {
    let found = words.iter().find(|(word, _)| *word == text);
    let names = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>();
    match found {
        Some((_, value)) => Ok(*value),
        None => bail!("unknown value {text:?}; use one of {}", names().join(", ")),
    }
}

fn parse_long(
    options: &mut Options,
    option_set: &OptionSet,
    name: &str,
    parser: &mut Parser,
) -> Result<(), Refusal> {
    let specific = option_set
        .long
        .iter()
        .find(|specific| specific.trim_end_matches('=') == name);
    if let Some(specific) = specific {
        let value = if specific.ends_with('=') {
            parser.value()?.string()?
        } else {
            String::new()
        };
        options.specific.insert(name.to_owned(), value);
        return Ok(());
    }
    let common = LONG.iter().find(|(long, _)| *long == name);
    let (_, takes_value) = common.with_context(|| format!("unknown option --{name}"))?;
    let value = if *takes_value {
        parser.value()?.string()?
    } else {
        String::new()
    };
    set_long(options, name, &value).with_context(|| format!("--{name} {value}"))?;
    Ok(())
}

fn set_long(options: &mut Options, name: &str, text: &str) -> anyhow::Result<()> {
    match name {
        "pin-core" => {
            let cores: Result<_, _> = text.split(',').map(str::parse).collect();
            options.cores = cores?;
        }
        "timeout" => {
            // A timeout of -1 is upstream's default: no limit.
            let seconds: i64 = text.parse()?;
            options.timeout = u64::try_from(seconds).ok().map(Duration::from_secs);
        }
        "data-progress" => options.data_progress = parse_progress(text)?,
        "control-progress" => options.control_progress = parse_progress(text)?,
        "threading" => options.threading = parse_word(text, THREADING)?,
        "max-msg-size" => options.max_msg_size = Some(text.parse()?),
        "use-fi-more" => options.more = true,
        "no-rx-cq-data" => options.without_rx_cq_data = true,
        "sync-comp" => options.sync_level = parse_word(text, LEVELS)?,
        "expect-error" => options.expected_error = Some(text.parse()?),
        "debug-assert" => options.stops_on_failure = true,
        _ => options.special = true,
    }
    Ok(())
}

const THREADING: &[(&str, Threading)] = &[
    ("safe", Threading::Safe),
    ("completion", Threading::Completion),
    ("domain", Threading::Domain),
];

const LEVELS: &[(&str, OpFlags)] = &[
    ("transmit", OpFlags::TRANSMIT_COMPLETE),
    ("delivery", OpFlags::DELIVERY_COMPLETE),
    ("commit", OpFlags::COMMIT_COMPLETE),
];

fn parse_progress(text: &str) -> anyhow::Result<Progress> {
    let words = [
        ("auto", Progress::Auto),
        ("manual", Progress::Manual),
        ("unified", Progress::ControlUnified),
    ];
    parse_word(text, &words)
}

impl Options {
    fn new(program: &'static str, args: &[OsString]) -> Self {
        let words = args.iter().map(|arg| arg.to_string_lossy().into_owned());
        Self {
            program,
            command_line: std::iter::once(program.to_owned()).chain(words).collect(),
            server: None,
            arguments: Vec::new(),
            provider: None,
            fabric: None,
            domain: None,
            ep_type: None,
            source: None,
            source_port: None,
            port: None,
            addr_format: AddrFormat::Unspec,
            out_of_band: None,
            out_of_band_host: None,
            connections: 1,
            iterations: None,
            warmup: 10,
            sizes: Sizes::Few,
            window: 64,
            machine: false,
            counters: false,
            waiting: WaitMethod::Spin,
            operation: None,
            verify: false,
            prefix: false,
            inject: None,
            device_memory: false,
            without_mr_local: false,
            fork: false,
            timeout: None,
            threading: Threading::Domain,
            data_progress: Progress::Unspec,
            control_progress: Progress::Unspec,
            max_msg_size: None,
            more: false,
            without_rx_cq_data: false,
            sync_level: OpFlags::DELIVERY_COMPLETE,
            expected_error: None,
            cores: Vec::new(),
            stops_on_failure: false,
            special: false,
            specific: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ADDRESS, BENCHMARK, FABRIC, INFO, PAIR};
    use super::*;

    const OPTIONS: OptionSet = OptionSet {
        common: &[ADDRESS, FABRIC, INFO, PAIR, BENCHMARK],
        specific: "UA:Q",
        long: &["no-tx-shared-ctx", "ep-count="],
    };

    fn parse_line(line: &str) -> Result<Options, Refusal> {
        parse(
            "fi_test",
            &OPTIONS,
            line.split_whitespace().map(OsString::from),
        )
    }

    #[test]
    fn options_and_arguments_parse_in_any_order() {
        let line = "-p shm host -I 5 -S64 -v -UE=3001 -b --timeout 7 -A x -Q --ep-count 9";
        let options = parse_line(line).unwrap();
        assert_eq!(options.provider.as_deref(), Some("shm"));
        assert_eq!(options.server.as_deref(), Some("host"));
        assert_eq!(
            (options.iterations, options.sizes.one()),
            (Some(5), Some(64))
        );
        assert!(options.verify && options.has("U") && options.has("Q"));
        let expected = OutOfBand {
            port: 3001,
            sync: true,
        };
        assert_eq!(options.out_of_band, Some(expected));
        assert_eq!(options.timeout, Some(Duration::from_secs(7)));
        assert_eq!(
            (options.text("A"), options.number("ep-count", 4).ok()),
            (Some("x"), Some(9))
        );
        assert_eq!(options.command_line[1..].join(" "), line);
    }

    /// The common options of libfabric 2.6's suite, with a value for each option that takes one.
    const COMMON: &str = "-p shm -f fabric -d domain -e rdm -s here -B 1 -P 2 -F fi_addr_str -b=3001 \
        -E=3001 -O there -C 2 -I 5 -w 2 -S all -W 8 -l -m -t counter -c fd -o write -v -k -j 16 \
        -M mr_local -K -Q -a name -D cuda -i 0 -H -R --pin-core 0 --timeout 5 \
        --data-progress auto --control-progress manual --threading completion \
        --max-msg-size 4096 --use-fi-more --no-rx-cq-data --sync-comp transmit \
        --expect-error 61 --debug-assert";

    #[test]
    fn every_common_upstream_option_is_accepted() {
        let options = parse_line(COMMON).unwrap();
        assert!(options.stops_on_failure && options.more && options.counters);
        assert_eq!(options.max_msg_size, Some(4096));
        assert_eq!(options.expected_error, Some(61));
    }

    #[test]
    fn defaults_are_those_of_upstream() {
        let options = parse_line("").unwrap();
        assert_eq!((options.warmup, options.window), (10, 64));
        assert_eq!(options.threading, Threading::Domain);
        assert_eq!(options.sync_level, OpFlags::DELIVERY_COMPLETE);
        assert_eq!((super::super::PORT, OUT_OF_BAND_PORT), ("9228", 3000));
        let sizes = options.sizes.list(usize::MAX);
        assert_eq!(sizes, [64, 256, 1024, 4096, 65536, 1 << 20]);
    }

    #[test]
    fn errors_name_the_invalid_option() {
        for (line, word) in [
            ("-Z", "-Z"),
            ("--nonsense", "--nonsense"),
            ("-e token", "token"),
            ("-c sleep", "sleep"),
            ("-W 0", "-W 0"),
            ("-I many", "-I many"),
            ("-I", "-I"),
            ("-b=70000", "70000"),
            ("--threading none", "none"),
        ] {
            let Err(Refusal::Bad(error)) = parse_line(line) else {
                panic!("{line} is accepted");
            };
            let text = format!("{error:#}");
            assert!(text.contains(word), "{line}: {text}");
        }
        assert!(matches!(parse_line("-h"), Err(Refusal::Help)));
    }
}
