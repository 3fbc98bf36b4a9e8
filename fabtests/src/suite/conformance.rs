//! The conformance tests as entries: each for every endpoint type and face that it runs with.

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use selvedge::info::EpType;
use selvedge_hook::CALLS;

use super::catalogue::Wanted;
use super::control::Control;
use super::cx::{Face, Player, Test, timeout};
use super::entry::{Entry, Process, Set};
use super::flaw;
use super::tests;

/// Arguments of a process of a conformance test.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    provider: String,
    ep_type: EpType,
    face: Face,
    test: String,
    #[arg(long)]
    set: Set,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    me: usize,
}

/// Plays one process of a test.
///
/// # Errors
/// When there is no such test, or no runner.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let test = tests::all().find(|(name, _)| *name == args.test);
    let (_, test) = test.with_context(|| format!("there is no test {}", args.test))?;
    let control = Control::find()?;
    ensure!(control.is_run(), "this is a part of `fabtests run`");
    let player = Player {
        test,
        provider: args.provider.clone(),
        ep_type: args.ep_type,
        face: args.face,
        set: args.set,
        seed: args.seed,
        me: args.me,
    };
    player.play(control)
}

/// Every test for a provider.
pub(super) fn entries(wanted: &Wanted, provider: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, test) in tests::all() {
        for &ep_type in test.ep_types {
            // The safe layer has no connected endpoints.
            let faces = test.faces.iter();
            let faces = faces.filter(|face| ep_type != EpType::Msg || **face == Face::Raw);
            entries.extend(faces.map(|&face| entry(wanted, provider, &name, test, ep_type, face)));
        }
    }
    entries
}

/// Every test over the provider with each of the defects that it must notice, over one face.
pub(super) fn mutants(wanted: &Wanted, provider: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, test) in tests::all() {
        for flaw in test.flaws {
            let (ep_type, face) = (test.ep_types[0], test.faces[0]);
            let mut entry = entry(wanted, provider, &name, test, ep_type, face);
            let flaw = word(flaw);
            entry.name = format!("{}~{flaw}", entry.name);
            entry.must_fail = true;
            for process in &mut entry.processes {
                process.env.push((flaw::VARIABLE.to_owned(), flaw.clone()));
                process
                    .env
                    .push((timeout::VARIABLE.to_owned(), MUTANT_PATIENCE.to_owned()));
            }
            entries.push(entry);
        }
    }
    entries
}

/// Every test with each call of its first process in turn made to fail when it is made for the
/// `nth` time, over one face. It may fail then, but nothing may hang, crash or be left behind.
pub(super) fn hook_faults(wanted: &Wanted, provider: &str, nth: u32) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, test) in tests::all() {
        for call in CALLS.iter().filter(|call| !call.ends_with("_close")) {
            let (ep_type, face) = (test.ep_types[0], test.faces[0]);
            let mut entry = entry(wanted, provider, &name, test, ep_type, face);
            entry.name = format!("{}!{call}", entry.name);
            entry.may_fail = true;
            let fault = format!("{call}:error=IO@{nth}");
            for process in &mut entry.processes {
                let patience = (timeout::VARIABLE.to_owned(), MUTANT_PATIENCE.to_owned());
                process.env.push(patience);
            }
            let hook = [("FI_HOOK", "fault"), ("FI_HOOK_FAULT", fault.as_str())];
            let hook = hook.map(|(name, value)| (name.to_owned(), value.to_owned()));
            entry.processes[0].env.extend(hook);
            entries.push(entry);
        }
    }
    entries
}

fn entry(
    wanted: &Wanted,
    provider: &str,
    name: &str,
    test: &Test,
    ep_type: EpType,
    face: Face,
) -> Entry {
    let ep_word = ep_word(ep_type);
    let process = |me: usize| {
        Process::new([
            "conform".to_owned(),
            provider.to_owned(),
            ep_type.to_string(),
            face.to_string(),
            name.to_owned(),
            format!("--set={}", word(&wanted.set)),
            format!("--seed={}", wanted.seed),
            format!("--me={me}"),
        ])
    };
    let processes = (0..test.processes).map(process).collect();
    let path = format!("{ep_word}/{face}/{name}");
    Entry {
        set: test.set,
        timeout: match wanted.set {
            Set::Quick => test.timeout,
            Set::Standard | Set::All => test.timeout * 5,
        },
        counts_checks: true,
        ..Entry::new(provider, path, processes)
    }
}

/// The endpoint type in the path of a test.
fn ep_word(ep_type: EpType) -> &'static str {
    match ep_type {
        EpType::Msg => "msg",
        EpType::Dgram => "dgram",
        _ => "rdm",
    }
}

fn word(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Seconds that a mutant waits for what does not come.
const MUTANT_PATIENCE: &str = "2";
