//! Programs with the names of libfabric's fabtests. Their options, roles, exit codes and output
//! tables are upstream's, so that scripts can drive them; their checks are stricter.
//!
//! `fabtests fi_rdm_pingpong ...` runs a program, and so does a link to `fabtests` with the
//! program's name.

mod bench;
mod channel;
mod data;
mod entries;
mod functional;
mod multinode;
pub mod options;
mod programs;
mod setup;
mod uber;
mod unit;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::signal::{Signal, raise};
use selvedge_testkit::failure::exit_code;

use options::{OptionSet, Options, Refusal};

use crate::suite::control::Control;

pub use programs::links::{LinksArgs, create_links, list_programs};

/// A program with upstream's name.
#[derive(Debug)]
struct Program {
    name: &'static str,
    about: &'static str,
    option_set: OptionSet,
    run: fn(&Options) -> anyhow::Result<()>,
}

macro_rules! programs {
    ($($name:literal $about:literal $option_set:expr => $run:path,)+) => {
        &[$(Program { name: $name, about: $about, option_set: $option_set, run: $run },)+]
    };
}

/// The generic programs of upstream's suite, by its folders. Not included are `sock_test`, which
/// measures the system's sockets only, the programs for device memory (`dmabuf-rdma`,
/// `fi_cuda_check_dmabuf`), and those of single providers.
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
    // multinode, ubertest and others
    "fi_multinode",
    "fi_multinode_coll",
    "fi_ubertest",
    "sighandler_test",
];

const PROGRAMS: &[Program] = programs! {
    "fi_rdm_pingpong" "round trips of messages" bench::OPTIONS => bench::rdm_pingpong,
    "fi_rdm_tagged_pingpong" "round trips of tagged messages" bench::OPTIONS
        => bench::rdm_tagged_pingpong,
    "fi_rdm_cntr_pingpong" "round trips of messages with counters" bench::OPTIONS
        => bench::rdm_cntr_pingpong,
    "fi_dgram_pingpong" "round trips of datagrams" bench::DGRAM_PINGPONG_OPTIONS => bench::dgram_pingpong,
    "fi_rdm_bw" "messages in one direction" bench::OPTIONS => bench::rdm_bw,
    "fi_rdm_tagged_bw" "tagged messages in one direction" bench::OPTIONS => bench::rdm_tagged_bw,
    "fi_rdm_bw_mt" "messages from several threads" bench::THREADS => bench::rdm_bw_mt,
    "fi_msg_pingpong" "round trips over a connection" bench::OPTIONS => bench::msg_pingpong,
    "fi_msg_bw" "messages in one direction over a connection" bench::OPTIONS => bench::msg_bw,
    "fi_rma_bw" "remote writes and reads, a window at a time" bench::OPTIONS => bench::rma_bw,
    "fi_rma_pingpong" "round trips of remote writes" bench::OPTIONS => bench::rma_pingpong,
    "fi_rma_tx_completion" "time from a remote write to its completion" bench::OPTIONS
        => bench::rma_tx_completion,

    "fi_pingpong" "round trips, compatible with libfabric's tool of this name" pingpong::OPTIONS => pingpong::run,

    "fi_rdm" "a message" functional::option_set("U") => functional::rdm,
    "fi_dgram" "a datagram" functional::option_set("") => functional::dgram,
    "fi_msg" "a message over a connection" functional::option_set("") => functional::msg,
    "fi_msg_epoll" "a message over a connection, waiting on file descriptors" functional::option_set("") => functional::msg_epoll,
    "fi_msg_sockets" "a message over a connection between addresses bound in advance" functional::option_set("") => functional::msg_sockets,
    "fi_loopback" "a message of an endpoint to itself" functional::option_set("") => functional::loopback,
    "fi_cm_data" "data in connection requests and responses" functional::option_set("q:") => functional::cm_data,
    "fi_poll" "poll sets" functional::option_set("") => functional::poll,
    "fi_cq_data" "remote completion data" functional::option_set("") => functional::cq_data,
    "fi_inject_test" "injected messages" functional::option_set("A:N") => functional::inject_test,
    "fi_flood" "unexpected messages in large numbers" functional::option_set("T:UW:") => functional::flood,
    "fi_recv_cancel" "cancelled receives" functional::option_set("V") => functional::recv_cancel,
    "fi_rdm_tagged_peek" "peeking at, claiming and discarding messages" functional::option_set("") => functional::rdm_tagged_peek,
    "fi_unexpected_msg" "messages before their receives and addresses" functional::option_set("M:CU") => functional::unexpected_msg,
    "fi_av_xfer" "removal and insertion of peers" functional::option_set("") => functional::av_xfer,
    "fi_multi_recv" "multi-receive buffers" functional::MULTI_RECV => functional::multi_recv,
    "fi_multi_ep" "several endpoints of one domain" functional::option_set("c:AQ") => functional::multi_ep,
    "fi_multi_mr" "counters of memory regions" functional::option_set("c:V") => functional::multi_mr,
    "fi_rdm_multi_client" "successive clients" functional::option_set("RU") => functional::rdm_multi_client,
    "fi_rdm_multi_domain" "several domains of one process" functional::option_set("c:V") => functional::rdm_multi_domain,
    "fi_rdm_atomic" "atomic operations" functional::option_set("Uz:") => functional::rdm_atomic,
    "fi_rdm_rma_event" "counters of remote accesses" functional::option_set("") => functional::rdm_rma_event,
    "fi_resmgmt_test" "full queues" functional::RESOURCES => functional::resmgmt_test,
    "fi_mcast" "a datagram to a multicast group" functional::MULTICAST => functional::mcast,
    "fi_unmap_mem" "buffers whose pages are replaced" functional::option_set("") => functional::unmap_mem,

    "fi_getinfo_test" "discovery" unit::option_set("") => unit::getinfo_test,
    "fi_av_test" "address vectors" unit::option_set("g:n:G:") => unit::av_test,
    "fi_dom_test" "domains" unit::option_set("n:") => unit::dom_test,
    "fi_eq_test" "event queues" unit::option_set("") => unit::eq_test,
    "fi_cq_test" "completion queues" unit::option_set("L:") => unit::cq_test,
    "fi_mr_test" "memory registration" unit::option_set("") => unit::mr_test,
    "fi_cntr_test" "counters" unit::option_set("") => unit::cntr_test,
    "fi_setopt_test" "endpoint options" unit::option_set("") => unit::setopt_test,
    "sighandler_test" "signal handlers with an open endpoint" unit::SIGNALS => unit::sighandler_test,

    "fi_rdm_stress" "clients that connect, send requests and leave" stress::OPTIONS => stress::rdm_stress,
    "fi_ubertest" "a matrix of test configurations" uber::OPTIONS => uber::ubertest,
    "fi_multinode" "communication patterns of at least three processes" multinode::OPTIONS => multinode::multinode,
    "fi_multinode_coll" "collectives of at least three processes" multinode::OPTIONS
        => multinode_coll::multinode_coll,

    "fi_rdm_deferred_wq" "deferred work queues" functional::DEFERRED => functional::rdm_deferred_wq,
    "fi_rdm_rma_trigger" "triggered operations" functional::option_set("") => functional::rdm_rma_trigger,
    "fi_rdm_shared_av" "shared address vectors" functional::SHARED_AV => functional::rdm_shared_av,
    "fi_scalable_ep" "scalable endpoints" functional::CONTEXTS => functional::scalable_ep,
    "fi_shared_ctx" "shared contexts" functional::SHARED_CONTEXTS => functional::shared_ctx,
    "fi_mr_cache_evict" "registration caches" functional::ABSENT => functional::mr_cache_evict,
    "fi_check_hmem" "device memory" functional::ABSENT => functional::check_hmem,
};

/// Runs a program of this suite if the command line names one, by the name of the executable or by
/// the first argument.
pub fn run_named(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter();
    let invoked = args.next()?;
    let name = Path::new(&invoked)
        .file_name()?
        .to_string_lossy()
        .into_owned();
    if let Some(program) = find_program(&name) {
        return Some(run(program, args));
    }
    let first = args.next()?;
    let program = find_program(&first.to_string_lossy())?;
    Some(run(program, args))
}

fn find_program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

fn run(program: &Program, args: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match options::parse(program.name, &program.option_set, args) {
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
    // In a run of the suite, this process ends with its runner.
    let result = Control::find().and_then(|_| (program.run)(&options));
    let code = match &result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}: {error:#}", program.name);
            if options.stops_on_failure {
                stop_for_debugger();
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

/// Stops this process until a debugger or `SIGCONT` continues it.
fn stop_for_debugger() {
    eprintln!("process {} has stopped for a debugger", std::process::id());
    // If the process cannot stop, it exits as without the option.
    let _ = raise(Signal::SIGSTOP);
}

/// Returns the usage text of a program.
fn usage(program: &Program) -> String {
    let Program {
        name,
        about,
        option_set,
        ..
    } = program;
    let common = option_set.common.concat();
    let mut text = format!("{name}: {about}\n\n  {name} [OPTIONS]           the server\n");
    text += &format!(
        "  {name} [OPTIONS] SERVER    the client\n\noptions: -{common}{}\n",
        option_set.specific
    );
    for long in option_set.long {
        text += &format!("  --{long}\n");
    }
    text + "docs/FABTESTS-REFERENCE.md documents the options; an option with : takes a value\n"
}

/// Binds the process to a core of `--pin-core`: the server to the first, the client to the last.
fn pin(options: &Options) -> anyhow::Result<()> {
    let core = match options.is_client() {
        true => options.cores.last(),
        false => options.cores.first(),
    };
    core.map_or(Ok(()), |core| selvedge_bench::cpu::pin(*core))
}
