//! Programs under the names that libfabric's suite has made known: their options, roles, exit codes
//! and tables are upstream's, so that scripts drive them, and their checks are stronger.
//!
//! `fabtests fi_rdm_pingpong ...` runs one; so does a link to `fabtests` with its name.

mod atomics;
mod bench;
pub mod catalogue;
mod channel;
mod connect;
mod discover;
#[cfg(test)]
mod facts;
mod functional;
mod ground;
mod links;
mod meet;
mod multinode;
mod multinode_coll;
pub mod mutants;
mod oob;
pub mod options;
mod payload;
mod perf;
mod pingpong;
mod stress;
mod uber;
mod unit;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::signal::{Signal, raise};
use selvedge_testkit::failure::exit_code;

use options::{Letters, Options, Refusal};

use crate::suite::control::Control;

pub use links::{LinksArgs, links, list};

/// A program.
#[derive(Debug)]
struct Program {
    name: &'static str,
    about: &'static str,
    letters: Letters,
    run: fn(&Options) -> anyhow::Result<()>,
}

macro_rules! programs {
    ($($name:literal $about:literal $letters:expr => $run:path,)+) => {
        &[$(Program { name: $name, about: $about, letters: $letters, run: $run },)+]
    };
}

/// Those of upstream's suite that are about libfabric and no provider's own: of sections like its
/// folders. Not here: `sock_test`, which times the system's sockets alone, the programs for devices'
/// memory (`dmabuf-rdma`, `fi_cuda_check_dmabuf`), and those of single providers.
#[cfg(test)]
const GENERIC: &[&str] = &[
    // functional
    "fi_av_xfer",
    "fi_cm_data",
    "fi_cq_data",
    "fi_dgram",
    "fi_flood",
    "fi_inject_test",
    "fi_loopback",
    "fi_mcast",
    "fi_msg",
    "fi_msg_epoll",
    "fi_msg_sockets",
    "fi_multi_ep",
    "fi_multi_mr",
    "fi_multi_recv",
    "fi_rdm",
    "fi_rdm_atomic",
    "fi_rdm_deferred_wq",
    "fi_rdm_multi_client",
    "fi_rdm_multi_domain",
    "fi_rdm_rma_event",
    "fi_rdm_rma_trigger",
    "fi_rdm_shared_av",
    "fi_rdm_stress",
    "fi_rdm_tagged_peek",
    "fi_recv_cancel",
    "fi_resmgmt_test",
    "fi_scalable_ep",
    "fi_shared_ctx",
    "fi_unexpected_msg",
    "fi_unmap_mem",
    // benchmarks
    "fi_dgram_pingpong",
    "fi_msg_bw",
    "fi_msg_pingpong",
    "fi_rdm_bw",
    "fi_rdm_bw_mt",
    "fi_rdm_cntr_pingpong",
    "fi_rdm_pingpong",
    "fi_rdm_tagged_bw",
    "fi_rdm_tagged_pingpong",
    "fi_rma_bw",
    "fi_rma_pingpong",
    "fi_rma_tx_completion",
    // unit
    "fi_av_test",
    "fi_check_hmem",
    "fi_cntr_test",
    "fi_cq_test",
    "fi_dom_test",
    "fi_eq_test",
    "fi_getinfo_test",
    "fi_mr_cache_evict",
    "fi_mr_test",
    "fi_setopt_test",
    // and the others
    "fi_multinode",
    "fi_multinode_coll",
    "fi_ubertest",
    "sighandler_test",
];

const PROGRAMS: &[Program] = programs! {
    "fi_rdm_pingpong" "round trips of messages" bench::LETTERS => bench::rdm_pingpong,
    "fi_rdm_tagged_pingpong" "round trips of tagged messages" bench::LETTERS
        => bench::rdm_tagged_pingpong,
    "fi_rdm_cntr_pingpong" "round trips of messages, told of by counters" bench::LETTERS
        => bench::rdm_cntr_pingpong,
    "fi_dgram_pingpong" "round trips of datagrams" bench::DATAGRAMS => bench::dgram_pingpong,
    "fi_rdm_bw" "messages in one direction" bench::LETTERS => bench::rdm_bw,
    "fi_rdm_tagged_bw" "tagged messages in one direction" bench::LETTERS => bench::rdm_tagged_bw,
    "fi_rdm_bw_mt" "messages of several threads" bench::THREADS => bench::rdm_bw_mt,
    "fi_msg_pingpong" "round trips over a connection" bench::LETTERS => bench::msg_pingpong,
    "fi_msg_bw" "messages in one direction over a connection" bench::LETTERS => bench::msg_bw,
    "fi_rma_bw" "remote writes and reads, a window at a time" bench::LETTERS => bench::rma_bw,
    "fi_rma_pingpong" "round trips of remote writes" bench::LETTERS => bench::rma_pingpong,
    "fi_rma_tx_completion" "from a remote write to its completion" bench::LETTERS
        => bench::rma_tx_completion,

    "fi_pingpong" "round trips with libfabric's own tool of this name" pingpong::LETTERS => pingpong::run,

    "fi_rdm" "a message" functional::letters("U") => functional::rdm,
    "fi_dgram" "a datagram" functional::letters("") => functional::dgram,
    "fi_msg" "a message over a connection" functional::letters("") => functional::msg,
    "fi_msg_epoll" "the same, waiting at descriptors" functional::letters("") => functional::msg_epoll,
    "fi_msg_sockets" "the same from addresses that were taken before" functional::letters("") => functional::msg_sockets,
    "fi_loopback" "a message to oneself" functional::letters("") => functional::loopback,
    "fi_cm_data" "data with connections" functional::letters("q:") => functional::cm_data,
    "fi_poll" "queues of a poll set" functional::letters("") => functional::poll,
    "fi_cq_data" "remote completion data" functional::letters("") => functional::cq_data,
    "fi_inject_test" "buffers that may be overwritten" functional::letters("A:N") => functional::inject_test,
    "fi_flood" "messages without receives" functional::letters("T:UW:") => functional::flood,
    "fi_recv_cancel" "receives that are taken back" functional::letters("V") => functional::recv_cancel,
    "fi_rdm_tagged_peek" "looking at, claiming and dropping messages" functional::letters("") => functional::rdm_tagged_peek,
    "fi_unexpected_msg" "messages before their receives and their senders' addresses" functional::letters("M:CU") => functional::unexpected_msg,
    "fi_av_xfer" "peers that are removed and inserted" functional::letters("") => functional::av_xfer,
    "fi_multi_recv" "buffers that take many messages" functional::MULTI_RECV => functional::multi_recv,
    "fi_multi_ep" "endpoints of one domain" functional::letters("c:AQ") => functional::multi_ep,
    "fi_multi_mr" "counters of regions" functional::letters("c:V") => functional::multi_mr,
    "fi_rdm_multi_client" "clients, one after the other" functional::letters("RU") => functional::rdm_multi_client,
    "fi_rdm_multi_domain" "domains of one process" functional::letters("c:V") => functional::rdm_multi_domain,
    "fi_rdm_atomic" "atomic operations" functional::letters("Uz:") => functional::rdm_atomic,
    "fi_rdm_rma_event" "counters of the target" functional::letters("") => functional::rdm_rma_event,
    "fi_resmgmt_test" "queues that are full" functional::RESOURCES => functional::resmgmt_test,
    "fi_mcast" "a datagram to a group" functional::MULTICAST => functional::mcast,
    "fi_unmap_mem" "pages that change below a buffer" functional::letters("") => functional::unmap_mem,

    "fi_getinfo_test" "discovery" unit::letters("") => unit::getinfo_test,
    "fi_av_test" "address vectors" unit::letters("g:n:G:") => unit::av_test,
    "fi_dom_test" "domains" unit::letters("n:") => unit::dom_test,
    "fi_eq_test" "event queues" unit::letters("") => unit::eq_test,
    "fi_cq_test" "completion queues" unit::letters("L:") => unit::cq_test,
    "fi_mr_test" "registration" unit::letters("") => unit::mr_test,
    "fi_cntr_test" "counters" unit::letters("") => unit::cntr_test,
    "fi_setopt_test" "options of endpoints" unit::letters("") => unit::setopt_test,
    "sighandler_test" "signals beside an open endpoint" unit::SIGNALS => unit::sighandler_test,

    "fi_rdm_stress" "clients that come, ask and go" stress::LETTERS => stress::rdm_stress,
    "fi_ubertest" "a matrix of configurations" uber::LETTERS => uber::ubertest,
    "fi_multinode" "patterns among three processes and more" multinode::LETTERS => multinode::multinode,
    "fi_multinode_coll" "collectives of three processes and more" multinode::LETTERS
        => multinode_coll::multinode_coll,

    "fi_rdm_deferred_wq" "deferred work" functional::DEFERRED => functional::rdm_deferred_wq,
    "fi_rdm_rma_trigger" "triggered operations" functional::letters("") => functional::rdm_rma_trigger,
    "fi_rdm_shared_av" "shared address vectors" functional::SHARED_AV => functional::rdm_shared_av,
    "fi_scalable_ep" "scalable endpoints" functional::CONTEXTS => functional::scalable_ep,
    "fi_shared_ctx" "shared contexts" functional::SHARED_CONTEXTS => functional::shared_ctx,
    "fi_mr_cache_evict" "caches of registrations" functional::ABSENT => functional::mr_cache_evict,
    "fi_check_hmem" "memory of devices" functional::ABSENT => functional::check_hmem,
};

/// Runs a program of this suite if the command line is one: by the name that it is called by, or by
/// its first argument.
pub fn called(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter();
    let called = args.next()?;
    let name = Path::new(&called)
        .file_name()?
        .to_string_lossy()
        .into_owned();
    if let Some(program) = find(&name) {
        return Some(run(program, args));
    }
    let first = args.next()?;
    let program = find(&first.to_string_lossy())?;
    Some(run(program, args))
}

fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

fn run(program: &Program, args: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match options::parse(program.name, &program.letters, args) {
        Ok(options) => options,
        Err(Refusal::Help) => {
            eprint!("{}", usage(program));
            return ExitCode::FAILURE;
        }
        Err(Refusal::Bad(error)) => {
            eprintln!("{}: {error:#}\n{}", program.name, usage(program));
            return ExitCode::FAILURE;
        }
    };
    // In a run of the suite this process ends with its runner.
    let result = Control::find().and_then(|_| (program.run)(&options));
    let code = match &result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}: {error:#}", program.name);
            if options.stops_on_failure {
                stop_for_a_debugger();
            }
            exit_code(error)
        }
    };
    match options.expected_error {
        Some(expected) if expected.unsigned_abs() == u32::from(code) => ExitCode::SUCCESS,
        Some(_) if code == 0 => ExitCode::FAILURE,
        _ => ExitCode::from(code),
    }
}

/// Stops this process until a debugger, or `SIGCONT`, has it go on.
fn stop_for_a_debugger() {
    eprintln!("process {} has stopped for a debugger", std::process::id());
    // A process that cannot stop ends as it does without the option.
    let _ = raise(Signal::SIGSTOP);
}

/// How a program is called.
fn usage(program: &Program) -> String {
    let Program {
        name,
        about,
        letters,
        ..
    } = program;
    let common = letters.common.concat();
    let mut text = format!("{name}: {about}\n\n  {name} [OPTIONS]           the server\n");
    text += &format!(
        "  {name} [OPTIONS] SERVER    the client\n\noptions: -{common}{}\n",
        letters.own
    );
    for long in letters.long {
        text += &format!("  --{long}\n");
    }
    text + "docs/FABTESTS-REFERENCE.md has what they mean; a letter with : takes a value\n"
}

/// Binds the process to the cores of `--pin-core`: the server to the first, the client to the last.
fn pin(options: &Options) -> anyhow::Result<()> {
    let core = match options.is_client() {
        true => options.cores.last(),
        false => options.cores.first(),
    };
    core.map_or(Ok(()), |core| selvedge_bench::cpu::pin(*core))
}
