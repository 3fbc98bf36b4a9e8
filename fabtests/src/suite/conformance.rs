//! Makes the entries of the conformance tests: one for each endpoint type and API of a test.

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use selvedge::info::EpType;
use selvedge_hook::CALLS;

use super::context::{Api, Test, TestProcess, timeout};
use super::control::Control;
use super::defect;
use super::entry::{Entry, Process, Selection, Set};
use super::tests;

/// Arguments of a process of a conformance test.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    provider: String,
    ep_type: EpType,
    api: Api,
    test: String,
    #[arg(long)]
    set: Set,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    me: usize,
}

/// Runs one process of a test.
///
/// # Errors
/// The test does not exist, or no runner has started this process.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let test = tests::all().find(|(name, _)| *name == args.test);
    let (_, test) = test.with_context(|| format!("there is no test named {}", args.test))?;
    let control = Control::find()?;
    ensure!(
        control.is_run(),
        "no runner was found: `fabtests run` starts this command"
    );
    let process = TestProcess {
        test,
        provider: args.provider.clone(),
        ep_type: args.ep_type,
        api: args.api,
        set: args.set,
        seed: args.seed,
        me: args.me,
    };
    process.run(control)
}

/// Returns every test for a provider.
pub(super) fn entries(selection: &Selection, provider: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, test) in tests::all() {
        for &ep_type in test.ep_types {
            // The safe layer has no connected endpoints.
            let apis = test.apis.iter();
            let apis = apis.filter(|api| ep_type != EpType::Msg || **api == Api::Raw);
            entries.extend(apis.map(|&api| entry(selection, provider, &name, test, ep_type, api)));
        }
    }
    entries
}

/// Returns every test once for each defect that the test must detect, over one API.
pub(super) fn mutants(selection: &Selection, provider: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, test) in tests::all() {
        for defect in test.defects {
            let (ep_type, api) = (test.ep_types[0], test.apis[0]);
            let mut entry = entry(selection, provider, &name, test, ep_type, api);
            let defect = value_name(defect);
            entry.name = format!("{}~{defect}", entry.name);
            entry.must_fail = true;
            for process in &mut entry.processes {
                process
                    .env
                    .push((defect::VARIABLE.to_owned(), defect.clone()));
                process
                    .env
                    .push((timeout::VARIABLE.to_owned(), MUTANT_TIMEOUT.to_owned()));
            }
            entries.push(entry);
        }
    }
    entries
}

/// Returns every test over one API, once for each call of the test's first process. In each run,
/// that call fails when it is made for the `nth` time. The test may fail, but it may not hang,
/// crash or leave anything behind.
pub(super) fn hook_faults(selection: &Selection, provider: &str, nth: u32) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, test) in tests::all() {
        for call in CALLS.iter().filter(|call| !call.ends_with("_close")) {
            let (ep_type, api) = (test.ep_types[0], test.apis[0]);
            let mut entry = entry(selection, provider, &name, test, ep_type, api);
            entry.name = format!("{}!{call}", entry.name);
            entry.may_fail = true;
            let fault = format!("{call}:error=IO@{nth}");
            for process in &mut entry.processes {
                let timeout = (timeout::VARIABLE.to_owned(), MUTANT_TIMEOUT.to_owned());
                process.env.push(timeout);
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
    selection: &Selection,
    provider: &str,
    name: &str,
    test: &Test,
    ep_type: EpType,
    api: Api,
) -> Entry {
    let ep_type_in_path = ep_type_in_path(ep_type);
    let process = |me: usize| {
        Process::new([
            "conform".to_owned(),
            provider.to_owned(),
            ep_type.to_string(),
            api.to_string(),
            name.to_owned(),
            format!("--set={}", value_name(&selection.set)),
            format!("--seed={}", selection.seed),
            format!("--me={me}"),
        ])
    };
    let processes = (0..test.processes).map(process).collect();
    let path = format!("{ep_type_in_path}/{api}/{name}");
    Entry {
        set: test.set,
        timeout: match selection.set {
            Set::Quick => test.timeout,
            Set::Standard | Set::All => test.timeout * 5,
        },
        counts_checks: true,
        ..Entry::new(provider, path, processes)
    }
}

/// Returns the name of the endpoint type in the path of a test.
fn ep_type_in_path(ep_type: EpType) -> &'static str {
    match ep_type {
        EpType::Msg => "msg",
        EpType::Dgram => "dgram",
        _ => "rdm",
    }
}

fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Time limit, in seconds, of a wait over a provider with a defect.
const MUTANT_TIMEOUT: &str = "2";
