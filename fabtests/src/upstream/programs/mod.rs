//! The table of the programs, with their names, options and functions.

pub(super) mod absent;
pub(super) mod links;

use super::bench::{self, fi_pingpong};
use super::options::{OptionSet, Options};
use super::{functional, multinode, uber, unit};

/// A program with upstream's name.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) option_set: OptionSet,
    pub(super) run: fn(&Options) -> anyhow::Result<()>,
}

macro_rules! programs {
    ($($name:literal $about:literal $option_set:expr => $run:path,)+) => {
        &[$(Program { name: $name, about: $about, option_set: $option_set, run: $run },)+]
    };
}

pub(super) const PROGRAMS: &[Program] = programs! {
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

    "fi_pingpong" "round trips, compatible with libfabric's tool of this name" fi_pingpong::OPTIONS => fi_pingpong::run,

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

    "fi_rdm_stress" "clients that connect, send requests and leave" functional::STRESS => functional::rdm_stress,
    "fi_ubertest" "a matrix of test configurations" uber::OPTIONS => uber::ubertest,
    "fi_multinode" "communication patterns of at least three processes" multinode::OPTIONS => multinode::multinode,
    "fi_multinode_coll" "collectives of at least three processes" multinode::OPTIONS
        => multinode::multinode_coll,

    "fi_rdm_deferred_wq" "deferred work queues" functional::DEFERRED => functional::rdm_deferred_wq,
    "fi_rdm_rma_trigger" "triggered operations" functional::option_set("") => functional::rdm_rma_trigger,
    "fi_rdm_shared_av" "shared address vectors" functional::SHARED_AV => functional::rdm_shared_av,
    "fi_scalable_ep" "scalable endpoints" functional::CONTEXTS => functional::scalable_ep,
    "fi_shared_ctx" "shared contexts" functional::SHARED_CONTEXTS => functional::shared_ctx,
    "fi_mr_cache_evict" "registration caches" absent::ABSENT => absent::mr_cache_evict,
    "fi_check_hmem" "device memory" absent::ABSENT => absent::check_hmem,
};

#[cfg(test)]
pub(super) mod tests;
