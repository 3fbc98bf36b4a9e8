//! `cargo xtask plant`: inserts known defects in the source, one at a time, and checks that the
//! tests named for each defect fail.
//!
//! The defects cover code that the mutation list of docs/FABTESTS.md does not reach: code outside
//! of providers, and internal paths. The task works in a copy of the last commit,
//! `target/planted`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::environment::workspace;

/// A planted defect.
struct Plant {
    description: &'static str,
    file: &'static str,
    /// The original text, which occurs once in the file.
    original: &'static str,
    replacement: &'static str,
    /// The package and the target of the tests that must fail.
    package: &'static str,
    target: &'static str,
    tests: &'static [&'static str],
}

macro_rules! plants {
    ($($file:literal: $package:literal $target:literal {
        $($description:literal: $original:literal => $replacement:literal fails $($test:literal),+;)+
    })+) => {
        &[$($(Plant {
            description: $description,
            file: $file,
            original: $original,
            replacement: $replacement,
            package: $package,
            target: $target,
            tests: &[$($test),+],
        },)+)+]
    };
}

const PLANTS: &[Plant] = plants! {
    "xtask/src/package/wheel.rs": "xtask" "--bin=xtask" {
        "the wheel has the library under another name": "Some(folder.join(\"libfabric.so.1\"))," => "Some(file.to_owned()),"
            fails "a_wheel_has_the_files_of_running_programs";
    }
    "src/queues/poll.rs": "selvedge-shm" "--test=messages" {
        "every member of a poll set is ready": "filter(|(member, _)| member.is_ready())" => "filter(|_| true)"
            fails "a_poll_set_names_ready_members_until_they_are_read";
        "a wait on a poll set succeeds after its timeout": "return Err(Errno::TimedOut);" => "return Ok(());"
            fails "a_wait_for_a_set_ends_with_a_ready_member_or_the_timeout";
    }
    "src/owned/endpoint/mod.rs": "selvedge" "--test=owned" {
        "a wait ends with an access of a peer": "if self.core.wait_for_entry(deadline)? == WaitEnd::Ended {" => "{ let _ = self.core.wait_for_entry(deadline)?;"
            fails "a_wait_goes_on_after_an_access_of_a_peer";
        "a wait with a full list parks": "len > before || done.is_full()" => "len > before"
            fails "a_wait_with_completions_or_a_full_list_does_not_park";
    }
    "src/owned/endpoint/waiting.rs": "selvedge" "--test=owned" {
        "an error entry fails a wait": "Ok(_) | Err(Errno::Avail) =>" => "Ok(_) =>"
            fails "a_wait_delivers_an_error";
    }
    "providers/hook/src/hooks/mod.rs": "selvedge-hook" "--test=layers" {
        "the innermost layer is the outermost": "hooks.split_first()" => "hooks.split_last()"
            fails "faults_follow_their_rules_and_outer_layers_see_them", "inner_layers_do_not_see_calls_that_outer_layers_fail";
        "an unknown layer is ignored": "let hooks = names.split(';').map(hook).collect::<Result<_, _>>()?;" => "let hooks = names.split(';').map(hook).filter_map(Result::ok).collect();"
            fails "the_error_for_an_invalid_variable_quotes_the_value";
        "the file is created without a layer": "let names = params.text(\"FI_HOOK\")?;" => "let names = params.text(\"FI_HOOK\")?;\n        let _ = Output::open(&params.text(\"FI_HOOK_FILE\")?)?;"
            fails "without_fi_hook_there_is_no_layer";
        "the close of an object is not reported to layers": "let _ = self.call::<(), Errno>((name, object)" => "let _ = || self.call::<(), Errno>((name, object)"
            fails "a_trace_has_a_line_for_each_call_from_the_first_to_the_last";
    }
    "providers/hook/src/hooks/perf.rs": "selvedge-hook" "--test=layers" {
        "errors are not counted": "u64::from(result.is_err())" => "u64::from(result.is_err()) * 0"
            fails "perf_counts_calls_errors_and_time";
    }
    "providers/hook/src/recorder/records.rs": "selvedge-hook" "--test=layers" {
        "a receive is timed with length 0": "(entry.len, entry.tag)," => "(0, entry.tag),"
            fails "perf_times_operations_by_kind_and_size_until_they_are_read";
        "latencies of closed endpoints are lost": "totals.add(latency.histograms());" => "totals.add(Vec::new());"
            fails "perf_times_operations_by_kind_and_size_until_they_are_read";
    }
    "providers/hook/src/layers/shared.rs": "selvedge-hook" "--test=layers" {
        "posts of shared receives bypass the layers": "recorder::pass(&post, &self.point, self.recorder(), run)" => "{ let _ = post; run() }"
            fails "posts_of_shared_receives_pass_each_layer";
    }
    "providers/hook/src/layers/endpoint.rs": "selvedge-hook" "--test=layers" {
        "outstanding shared receives are lost with their handle": "_shared: shared," => "_shared: shared.filter(|_| false),"
            fails "perf_times_shared_receives_at_every_endpoint_that_completes_them";
    }
    "providers/hook/src/recorder/mod.rs": "selvedge-hook" "--test=layers" {
        "shared receives without a completion are awaited": "if bound.rx.is_selective() {" => "if bound.rx.is_selective() && false {"
            fails "an_unreported_shared_receive_is_not_matched_with_a_reported_one";
    }
    "util/top/src/processes.rs": "selvedge-top" "--test=processes" {
        "calls of objects without a page are omitted": "pages.iter().any(|stats| is_of(header, stats))" => "pages.iter().any(|stats| is_of(header, stats) || true)"
            fails "the_dump_shows_calls_of_shared_receives", "json_has_the_calls_of_shared_receives";
    }
    "providers/hook/src/recorder/open_ops.rs": "selvedge-hook" "--test=layers" {
        "a queue does not find shared receives": "local.or_else(|| self.take_shared(key, is_last))" => "local"
            fails "perf_times_shared_receives_at_every_endpoint_that_completes_them", "flight_records_posts_of_shared_receives_and_their_outcomes";
        "a send is recorded as a receive": "tagged(TimedOp::TaggedSend, TimedOp::Send)" => "tagged(TimedOp::TaggedReceive, TimedOp::Receive)"
            fails "perf_times_operations_by_kind_and_size_until_they_are_read";
    }
    "providers/hook/src/layers/endpoint.rs": "selvedge-top" "--test=processes" {
        "the hooks keep a handle of every endpoint": "if has_events {" => "if has_events || true {"
            fails "latencies_are_shown_by_operation_and_size_while_the_program_runs";
    }
    "providers/kit/src/telemetry/latency.rs": "selvedge-kit" "--lib" {
        "a quantile is computed for half the fraction": "self.count() as f64 * fraction).max(1.0)" => "self.count() as f64 * fraction / 2.0).max(1.0)"
            fails "quantiles_are_right_to_the_width_of_a_class";
        "latency classes are half a doubling wide": "& 3;" => "& 2;"
            fails "every_time_is_in_the_class_whose_bounds_are_around_it";
    }
    "providers/kit/src/telemetry/calls.rs": "selvedge-kit" "--lib" {
        "a call ends in the slot of another call": "if words[AT_NUMBER].load(Ordering::Relaxed) == number + 1 {" => "{"
            fails "the_outcome_of_a_call_whose_slot_was_reused_is_dropped";
        "every retry is recorded as a call": "is(AT_OUTCOME, outcome_word(Err(Errno::Again)))" => "is(AT_OUTCOME, u64::MAX)"
            fails "retries_of_a_call_are_one_record";
    }
    "providers/hook/src/hooks/fault.rs": "selvedge-hook" "--lib" {
        "error names are not normalised": "let name = name.strip_prefix(\"FI_E\").unwrap_or(&name);" => "let name = &*name;"
            fails "rules_are_parsed_into_call_action_and_condition";
        "the random sequence ignores its seed": ".fetch_add(STEP, Ordering::Relaxed)\n            .wrapping_add(STEP);" => ".swap(STEP, Ordering::Relaxed)\n            .wrapping_mul(0).wrapping_add(STEP);"
            fails "random_faults_repeat_with_the_same_seed";
    }
    "providers/hook/src/layers/objects.rs": "selvedge-hook" "--test=layers" {
        "a region is bound to the wrapped counter": "let cntr = HookLayers::counter(cntr);" => "let _ = HookLayers::counter; let cntr = Arc::clone(cntr);"
            fails "a_region_is_bound_to_the_counter_below_its_layers";
    }
    "providers/kit/src/layer/named.rs": "selvedge-hook" "--test=layers" {
        "errors refer to the endpoint below a layer": "error.ep = error.ep.map(|ep| ENDPOINTS.layered_or_below::<L>(ep));" => "let _ = &mut error.ep;"
            fails "an_event_names_the_applications_endpoint_when_its_fabric_is_open_twice";
    }
    "providers/kit/src/layer/calls.rs": "selvedge-kit" "--lib" {
        "a layer does not forward a call": "fn set_err(value: u64);" => "fn set_err(value: u64) = { let _ = value; };"
            fails "every_call_of_the_contract_reaches_the_object_below_a_layer_that_changes_nothing";
    }
    "providers/kit/src/layer/layered.rs": "selvedge-kit" "--lib" {
        "an endpoint is bound to the wrapped shared receives": "bind.srx = bind.srx.as_ref().map(srx);" => "let _ = srx;"
            fails "every_call_of_the_contract_reaches_the_object_below_a_layer_that_changes_nothing";
    }
    "providers/kit/src/memory/mr/counts.rs": "selvedge-shm" "--test=rma" {
        "each segment counts as an event": "Some((_, sum)) => *sum += len," => "Some((_, sum)) if len > 1 << 40 => *sum += len,\n                Some(_) => regions.push((key, len)),"
            fails "an_operation_is_one_event_for_each_region_that_it_touches";
        "counters of regions do not drive existing endpoints": "endpoints.try_for_each(|ops| ops.add_driver(&cntr))?;" => "endpoints.try_for_each(|_| Ok::<(), Error>(()))?;"
            fails "each_region_counts_accesses_by_every_protocol", "a_thread_parked_at_a_region_counter_is_woken_by_writes_and_reads";
        "counters of regions do not drive later endpoints": "cntrs.try_for_each(|cntr| endpoint.add_driver(&cntr))" => "cntrs.try_for_each(|_| Ok(()))"
            fails "reading_a_region_counter_progresses_the_endpoints_that_serve_the_region";
        "a second counter replaces the first": "(0..EVENTS.len()).any(is_taken)" => "(0..0).any(is_taken)"
            fails "counters_that_cannot_be_bound_are_refused_by_name";
        "counters remain bound to a reused key": "self.0.remove(&key)" => "let _ = key; None"
            fails "a_reused_key_does_not_count_for_the_old_counter";
    }
    "providers/kit/src/memory/mr/counts.rs": "selvedge-tcp" "--test=one_process" {
        "a counter of both counts an access twice": "read.is_none_or(|read| !Arc::ptr_eq(read, write))" => "read.is_none_or(|read| Arc::ptr_eq(read, write))"
            fails "a_counter_bound_to_reads_and_writes_counts_a_fetching_atomic_once";
    }
    "providers/shm/src/rma/direct.rs": "selvedge-shm" "--test=rma" {
        "counted special memory is accessed directly": "|| entry.is_counted()" => "|| entry.is_counted() && entry.len == 0"
            fails "each_region_counts_accesses_by_every_protocol", "direct_accesses_are_counted_once_the_region_has_a_counter";
    }
    "providers/shm/src/rma/read.rs": "selvedge-shm" "--test=rma" {
        "counted memory is copied directly": "if grant.entry.is_counted() {" => "if grant.entry.is_counted() && segment.len == 0 {"
            fails "each_region_counts_accesses_by_every_protocol";
        "reads within commands are not counted": ".count_segments(read.segments.all(), MrAccess::REMOTE_READ);" => ".count_segments(&[], MrAccess::REMOTE_READ);"
            fails "each_region_counts_accesses_by_every_protocol";
    }
    "providers/shm/src/peers/ops.rs": "selvedge-shm" "--test=rma" {
        "segmented reads are not counted": "keys.count_segments(self.segments.all(), MrAccess::REMOTE_READ);" => "let _ = (keys, &self.segments);"
            fails "each_region_counts_accesses_by_every_protocol";
    }
    "providers/shm/src/smr/memory/keys.rs": "selvedge-shm" "--test=rma" {
        "a changed key entry keeps its generation": "self.generations[index] += 2;" => "self.generations[index] += 0;"
            fails "direct_accesses_are_counted_once_the_region_has_a_counter";
    }
    "providers/shm/src/transfers/destination.rs": "selvedge-shm" "--test=rma" {
        "large writes are not counted": "keys.count_segments(memory.segments.all(), MrAccess::REMOTE_WRITE);" => "let _ = keys;"
            fails "each_region_counts_accesses_by_every_protocol";
    }
    "providers/tcp/src/connection/one_sided.rs": "selvedge-tcp" "--test=one_process" {
        "writes are not counted": "self.keys.count(segments, MrAccess::REMOTE_WRITE);" => "let _ = segments;"
            fails "each_region_counts_its_accesses";
        "reads are not counted": "self.keys.count(read.into_iter(), MrAccess::REMOTE_READ);" => "drop(read);"
            fails "each_region_counts_its_accesses";
        "atomics are not counted": "self.keys.count(targets, atomic.kernel.access());" => "drop(targets);"
            fails "each_region_counts_its_accesses";
        "a fetching atomic counts as a write only": "let is_read = atomic.kernel.has_result();" => "let is_read = atomic.kernel.op() == Op::AtomicRead;"
            fails "a_fetching_atomic_counts_as_a_read_at_the_target";
    }
    "providers/tcp/src/socket/tls/identity.rs": "selvedge-tcp" "--test=tls" {
        "clients show no certificate": ".with_client_cert_verifier(verifier)" => ".with_no_client_auth()"
            fails "clients_without_a_certificate_or_with_an_older_tls_version_are_rejected";
        "clients may have any name": "verify_server_name(&ParsedCertificate::try_from(end_entity)?, &self.name)?;" => "let _ = verify_server_name(&ParsedCertificate::try_from(end_entity)?, &self.name);"
            fails "certificates_on_both_sides_must_have_the_configured_name";
    }
    "providers/tcp/src/connection/mod.rs": "selvedge-tcp" "--test=tls" {
        "a parked thread ignores buffered input": "|| self.is_draining || self.has_buffered_input()" => "|| self.is_draining"
            fails "a_thread_does_not_park_with_buffered_tls_input";
    }
    "providers/tcp/src/connection/tx.rs": "selvedge-tcp" "--test=tls" {
        "a header changes after part of it is encrypted": "if !socket.is_encrypted() {" => "if socket.is_encrypted() || negotiated.order == ByteOrder::Native {"
            fails "messages_delayed_by_backpressure_arrive_unchanged";
    }
    "providers/tcp/src/state/application.rs": "selvedge-tcp" "--test=one_process" {
        "an endpoint connects from an arbitrary address": "Some(socket) => socket.connect(dest_addr, &self.config.socket_options)?," => "Some(_) => Socket::connect(src_ip.unwrap_or(any), dest_addr, &self.config.socket_options)?,"
            fails "an_endpoint_connects_from_the_address_of_a_passive_endpoint";
    }
    "providers/tcp/src/endpoint/passive.rs": "selvedge-tcp" "--test=one_process" {
        "an endpoint that takes over an address binds another one": "PassiveState::Bound(socket, addr) => return Ok((socket, addr))," => "PassiveState::Bound(_, addr) => return self.shared.bind_at(SocketAddr::new(addr.ip(), 0)),"
            fails "an_endpoint_connects_from_the_address_of_a_passive_endpoint", "a_passive_endpoint_listens_at_its_own_address_or_at_one_it_takes_over";
        "a second address replaces the first": "if !matches!(&*state, PassiveState::Unbound(_)) {" => "if matches!(&*state, PassiveState::Listening(_)) {"
            fails "an_endpoint_connects_from_the_address_of_a_passive_endpoint";
    }
    "util/capi/fabric/src/export/discover.rs": "selvedge-fabric-c" "--test=programs" {
        "the handle of hints is lost": "info::allocate_list(&infos, handle)?" => "info::allocate_list(&infos, ptr::null_mut::<Fid>().min(handle))?"
            fails "addresses_in_c_are_bound_before_listen_and_connect";
    }
    "util/top/src/units.rs": "selvedge-top" "--bin=fi_top" {
        "a number has four digits": "value >= 999.5 &&" => "value >= 1000.5 &&"
            fails "numbers_have_at_most_three_digits";
    }
    "util/top/src/live.rs": "selvedge-top" "--bin=fi_top" {
        "the live view does not show the quit key": "q quit  up/down choose" => "up/down choose"
            fails "the_view_is_readable_at_80_columns_and_draws_at_fewer";
    }
    "util/top/src/json.rs": "selvedge-top" "--test=processes" {
        "sent messages are reported as received": "protocol.is_sent() == is_sent" => "protocol.is_sent() != is_sent"
            fails "messages_are_counted_by_protocol_and_visible_to_fi_top";
    }
    "util/top/src/dump.rs": "selvedge-top" "--test=processes" {
        "a peer is listed without its process": "format!(\"{} (process {})\", peer.name, other.pid)" => "format!(\"{} {}\", peer.name, other.pid)"
            fails "the_dump_of_a_hanging_job_describes_both_sides";
        "a one-sided wait is reported as a deadlock": "if waits_for(one, other) && waits_for(other, one)" => "if waits_for(one, other) && !waits_for(other, one)"
            fails "endpoints_that_wait_for_each_other_are_reported";
        "a stopped process is not recognised": "Some('T' | 't') =>" => "Some('t') =>"
            fails "an_absent_and_a_stopped_peer_are_reported";
    }
    "util/top/src/main.rs": "selvedge-top" "--test=processes" {
        "a terminated process is not reported": "if !all.iter().any(|stats| stats.pid == *pid) {" => "if all.is_empty() && *pid == 0 {"
            fails "the_page_of_a_killed_process_disappears";
    }
    "util/top/src/table.rs": "selvedge-top" "--test=processes" {
        "a long name is not truncated": "cut(&command, 9)," => "cut(&command, 90),"
            fails "a_table_fits_80_columns";
    }
    "providers/kit/src/coll/endpoint.rs": "selvedge-top" "--test=processes" {
        "the collectives layer is reported as an endpoint": "Ep::resolve_without_telemetry(bind, info, base.id())?" => "Ep::resolve(bind, info, base.id())?"
            fails "an_endpoint_with_a_layer_has_one_page";
    }
    "providers/shm/src/transfers/protocol_selector/mean.rs": "selvedge-shm" "--lib" {
        "a delayed message decides a probe": "nanos.clamp(low, high)" => "nanos"
            fails "delays_of_single_messages_do_not_change_the_selection";
    }
    "providers/shm/src/transfers/protocol_selector/mod.rs": "selvedge-shm" "--lib" {
        "messages of recent buffers are measured with others": "SIZE_CLASSES * usize::from(is_recent)" => "SIZE_CLASSES * usize::from(is_recent && false)"
            fails "classes_are_separate";
        "a protocol that was given up is not probed again soon": "self.started + RECHECK_AFTER" => "self.exploitation_len"
            fails "a_protocol_that_was_given_up_is_probed_again_soon";
        "recent buffers switch at small differences": "state.cma_preference = CMA_PREFERENCE_RECENT" => "state.cma_preference = CMA_PREFERENCE"
            fails "bounce_segments_must_be_much_faster_for_recent_buffers";
    }
    "providers/shm/src/transfers/protocol_selector/runs.rs": "selvedge-shm" "--lib" {
        "messages after a pause are measured": "self.len > self.unsettled" => "self.len > 0"
            fails "messages_after_a_pause_do_not_decide";
    }
    "providers/shm/src/transfers/protocol_selector/sources.rs": "selvedge-shm" "--lib" {
        "only the last buffer is recent": "(self.oldest + 1) % RECENT" => "self.oldest % RECENT"
            fails "a_buffer_that_is_sent_again_soon_is_recent";
    }
    "providers/shm/src/endpoint/coll_channel.rs": "selvedge-shm" "--lib" {
        "a sender does not see that the receiver of a message is parked": "Ok(self.peer.may_be_parked())" => "Ok(self.peer.may_be_parked() && false)"
            fails "try_send_reports_that_the_peer_may_be_parked";
        "slots of a channel are returned before they are read": "self.published = self.rx.position();" => "self.published = self.rx.position() + 8;"
            fails "messages_of_every_length_pass_while_there_is_room";
        "a channel accepts a message of any length": "if len > SMALL_MESSAGE_MAX {" => "if len > SMALL_MESSAGE_MAX + 1 {"
            fails "a_malformed_slot_or_credit_of_a_channel_is_an_error";
    }
    "providers/shm/src/provider/setup.rs": "selvedge-shm" "--test=collectives" {
        "the end of a member is not counted": "self.ended_incarnations.fetch_add(1, Ordering::Relaxed);" => "self.ended_incarnations.fetch_add(0, Ordering::Relaxed);"
            fails "a_failed_member_ends_the_barrier_of_all_others";
    }
    "providers/shm/src/endpoint/coll_channel.rs": "selvedge-shm" "--test=collectives" {
        "a parked receiver is not woken by a message of a channel": "            peer.wake();" => "            let _ = peer;"
            fails "a_killed_member_ends_the_collectives_of_parked_members";
    }
    "providers/kit/src/coll/fast_collective.rs": "selvedge-shm" "--test=collectives" {
        "a fast-path round waits for the wrong member": "receive_channel: channel(receive.peer, receive.span.len)?" => "receive_channel: channel(send.peer, receive.span.len)?"
            fails "repeated_barriers_hold_every_member_until_the_last_arrives";
    }
    "providers/kit/src/coll/engine/fast_path.rs": "selvedge-shm" "--test=collectives" {
        "fast-path collectives are not published": ".set_next_sequence(group.stats_slot, group.next_sequence);" => ".set_next_sequence(group.stats_slot, 1);"
            fails "fast_path_collectives_are_counted_in_telemetry";
        "a fast-path collective ends a round early": "fast_collective.rounds.get(fast_run.round) else" => "fast_collective.rounds.get(fast_run.round + usize::from(fast_run.round > 0)) else"
            fails "repeated_barriers_hold_every_member_until_the_last_arrives";
    }
    "providers/kit/src/coll/members.rs": "selvedge-kit" "--lib" {
        "an endpoint is two members of a group": "if let Some(other) = ranks.insert(address, rank) {" => "if let Some(other) = ranks.insert(address, rank).filter(|_| false) {"
            fails "the_error_for_an_invalid_set_names_the_reason";
    }
    "providers/kit/src/coll/members.rs": "selvedge-shm" "--test=collectives" {
        "a set of another address vector is accepted": "Some(vector) if vector == local => Ok(())," => "Some(vector) if vector == local || vector != local => Ok(()),"
            fails "a_set_of_another_address_vector_is_refused";
    }
    "providers/kit/src/os/seal.rs": "selvedge-kit" "--lib" {
        "sealed memory is not checked": "is_whole.then_some(()).ok_or(Errno::ESTALE)" => "is_whole.then_some(()).or(Some(())).ok_or(Errno::ESTALE)"
            fails "a_size_change_or_hole_made_before_sealing_is_detected";
    }
    "providers/shm/src/connect/connection.rs": "selvedge-shm" "--lib" {
        "a refused connection is read to its end": "(0..REFUSED_READS).any(" => "(0..REFUSED_READS << 20).any("
            fails "a_refused_connection_with_a_full_queue_is_read_a_limited_number_of_times";
    }
    "providers/shm/src/connect/discard.rs": "selvedge-shm" "--lib" {
        "every descriptor of a packet starts a thread": "None => drop_in_thread(fds)," => "None => fds.into_iter().for_each(drop_in_thread),"
            fails "descriptors_of_one_packet_take_one_thread_at_most";
    }
    "providers/shm/src/connect/connector/disconnect.rs": "selvedge-shm" "--test=faults" {
        "a closing endpoint does not wait for key proofs": "while state.peers.iter().any(is_awaited) {" => "while state.peers.iter().any(is_awaited) && false {"
            fails "injected_messages_before_a_proof_are_sent_when_their_endpoint_closes";
    }
    "providers/shm/src/transfers/sar.rs": "selvedge-shm" "--test=faults" {
        "announcements of segments are not retried": "Ok(()) | Err(ConnectError::Busy(_)) => Ok(())," => "Ok(()) => Ok(()),"
            fails "segments_are_announced_to_a_peer_with_a_full_socket_once_it_has_room";
    }
    "providers/shm/src/provider/av.rs": "selvedge-shm" "--test=collectives" {
        "a context in a group is taken for the first one": "let name = self.name(addr).ok_or(Errno::Inval)?;" => "let name = self.name(self.table.table().split(addr).0).ok_or(Errno::Inval)?;"
            fails "groups_of_contexts_and_endpoints_agree_with_the_oracle";
    }
    "providers/kit/src/peers/ip/av.rs": "selvedge-tcp" "--test=collectives" {
        "a context in a group has the port of the first one": "self.addr(addr).map(Address::Ip)" => "self.addr(self.table.table().split(addr).0).map(Address::Ip)"
            fails "groups_of_contexts_and_endpoints_agree_with_the_oracle";
    }
    "providers/kit/src/endpoint/sep.rs": "selvedge-shm" "--test=collectives" {
        "the error of a rejected context does not name it": "let message = format!(\"context {index} of {self:?}: {}\", error.message());" => "let message = error.message().to_owned();"
            fails "a_context_with_unsupported_collectives_is_refused_by_name";
    }
    "util/capi/fabric/src/ep/cm.rs": "selvedge-fabric-c" "--test=programs" {
        "a transmit context cannot join a group": "TX_CM: Table<OpsCm, Ep> = with_join(getname_table());" => "TX_CM: Table<OpsCm, Ep> = getname_table();"
            fails "contexts_in_c_join_groups_and_take_part_in_collectives";
    }
    "providers/kit/src/coll/engine/small_message.rs": "selvedge-shm" "--test=collectives" {
        "an early small message is lost": ".insert((channel, message.tag), *message)\n            .is_none()" => ".contains_key(&(channel, message.tag))"
            fails "a_message_of_one_group_waits_while_another_group_reads_the_channel";
    }
    "util/cheetah/src/core/mod.rs": "selvedge-cheetah" "--lib" {
        "events found outside of a poll do not prevent parking": "state.has_unpolled_events |= engine.progress();" => "engine.progress();"
            fails "events_found_outside_of_a_poll_prevent_parking";
    }
    "util/cheetah/src/core/finalize.rs": "selvedge-cheetah" "--lib" {
        "a completed stage of finalize waits": "Some(next) => state.stage = next," => "Some(next) => {\n                    state.stage = next;\n                    return Ok(false);\n                }"
            fails "a_single_context_finalizes_in_one_step";
    }
    "providers/kit/src/coll/engine/state.rs": "selvedge-top" "--test=processes" {
        "a waiting collective is not reported": "self.telemetry.groups.write_pending(&pending);" => "self.telemetry.groups.write_pending(&pending[..0]);"
            fails "waiting_members_name_the_missing_member";
        "a received message is still reported as awaited": "self.telemetry.groups.write_pending(&[]);" => "self.telemetry.groups.has_pending = false;"
            fails "waiting_members_name_the_missing_member";
    }
    "util/top/src/groups.rs": "selvedge-top" "--test=processes" {
        "receives of the layer are reported as the program's": "stats.posted.retain(|wait| wait.tag & LAYER == 0);" => "let _ = LAYER;"
            fails "waiting_members_name_the_missing_member";
    }
    "providers/kit/src/telemetry/groups.rs": "selvedge-kit" "--lib" {
        "a closed group keeps its slot": "if let Some(offset) = slot {\n            self.page.set(offset, 0);" => "if let Some(offset) = slot.filter(|offset| *offset == 0) {\n            self.page.set(offset, 0);"
            fails "a_group_shows_its_next_collective_until_it_is_left";
    }
    "providers/kit/src/telemetry/crash.rs": "selvedge-top" "--test=processes" {
        "a signal writes nothing": "    write_pages();\n    // SAFETY: as above.\n    unsafe { *errno = saved };" => "    // SAFETY: as above.\n    unsafe { *errno = saved };"
            fails "a_configured_signal_writes_a_flight_record_and_the_process_continues";
        "a crash writes nothing": "    write_pages();\n    let Some(previous)" => "    let Some(previous)"
            fails "a_crash_writes_a_flight_record_and_keeps_its_signal";
    }
    "providers/kit/src/telemetry/settings.rs": "selvedge-top" "--test=processes" {
        "crashes are caught without the variable": "crash: params.flag(\"FI_SIGHT_CRASH\")?," => "crash: params.flag(\"FI_SIGHT_CRASH\").is_ok(),"
            fails "signals_are_not_caught_by_default";
        "an unknown signal is ignored": "signal.map(Some).ok_or_else(|| {" => "Some(signal).ok_or_else(|| {"
            fails "a_signal_that_does_not_exist_is_refused_by_name";
    }
    "util/service/src/machine/sender.rs": "selvedge-service" "--lib" {
        "a message uses no credit": "        self.credit.messages -= 1;\n" => ""
            fails "every_message_arrives_once_in_order_and_every_request_has_one_response";
    }
    "util/service/src/machine/receiver.rs": "selvedge-service" "--lib" {
        "a peer may exceed the window in messages": "if self.used.messages > self.limits.messages || self.used.blocks" => "if self.used.blocks"
            fails "a_peer_that_exceeds_the_window_is_found";
    }
    "util/service/src/machine/mod.rs": "selvedge-service" "--lib" {
        "a cancelled request has a response": "if !self.receiver.finish(id) {" => "if !self.receiver.finish(id) && id == 0 {"
            fails "a_response_to_a_cancelled_request_is_not_sent";
        "a response without a request is taken": "if !is_awaited {" => "if !is_awaited && header.id > 4 {"
            fails "frames_that_violate_the_protocol_are_found";
        "a connection ends before everything that was sent has arrived": "self.receiver.awaits_payload_before(closing.payloads)" => "self.receiver.awaits_payload_before(0)"
            fails "a_connection_ends_when_everything_that_was_sent_has_arrived";
    }
    "util/service/src/port/sends.rs": "selvedge-service" "--lib" {
        "a completion of any send counts for the oldest": "self.done |= 1 << (slot % SENDS_MAX);" => "self.done |= 1 << (slot % SENDS_MAX) | self.oldest();"
            fails "a_send_has_completed_when_all_before_it_have";
    }
    "util/service/src/connection/response.rs": "selvedge-service" "--test=service" {
        "a dropped request is not cancelled": "            self.peer.hub.cancel(self.peer.shared.key, id);" => "            let _ = id;"
            fails "a_dropped_request_is_cancelled_and_its_response_is_dropped";
    }
    "util/service/src/connection/byte_stream.rs": "selvedge-service" "--test=service" {
        "a lost peer ends a stream of bytes": "Err(error) => return Some(Err(error)),\n            }" => "Err(_) => self.has_read_end = true,\n            }"
            fails "a_stream_whose_peer_dies_or_closes_is_no_complete_stream";
    }
    "util/service/src/topic/subscriber.rs": "selvedge-service" "--test=service" {
        "a slow subscriber is not told what it has lost": "number.saturating_sub(expected)" => "0 * expected"
            fails "a_slow_subscriber_loses_the_oldest_and_learns_their_number";
    }
    "util/service/src/hub/link/lending.rs": "selvedge-service" "--test=service" {
        "a subscriber may keep any number of the publisher's buffers": "self.lent < LENT_MAX" => "self.lent < 32 * LENT_MAX"
            fails "a_subscriber_that_keeps_publications_receives_copies_of_further_ones";
        "a buffer that was given back counts as lent": "self.lent = self.lent.saturating_sub(1);" => "self.lent = self.lent.saturating_sub(0);"
            fails "buffers_return_to_the_publisher_when_publications_are_dropped_or_their_holders_killed";
    }
    "util/service/src/topic/publisher.rs": "selvedge-service" "--test=service" {
        "a publisher ends while subscribers read its memory": "        self.listener.await_lent();" => ""
            fails "a_publisher_that_ends_waits_until_its_last_publications_are_read";
    }
    "util/service/src/hub/link/mod.rs": "selvedge-service" "--test=service" {
        "a lost peer is reported as one that has closed": "if self.machine.is_closing() {\n            End::Remote" => "if reason.len() < 9999 {\n            End::Remote"
            fails "an_idle_listener_reports_a_killed_client", "requests_fail_when_their_server_is_killed";
    }
    "util/heap/src/arena.rs": "selvedge-heap" "--test=allocator" {
        "parent and child share the heap after a fork": "let result = self.replace_mapping();" => "let result: nix::Result<()> = Ok(());"
            fails "parent_child_and_peer_keep_their_own_bytes_after_a_fork", "a_child_of_a_raw_clone_is_separated_when_it_enters_the_heap";
        "pages that are reused count as zero": "let dirty = self.used.saturating_sub(first).min(count);" => "let dirty = 0;"
            fails "zeroed_memory_is_zero_when_pages_are_reused";
        "an arena that has ended keeps its header": "if self.is_offered {\n            self.header()" => "if self.is_offered {\n            let _ = || self.header()"
            fails "an_arena_ends_with_its_last_allocation";
    }
    "util/heap/src/arena.rs": "selvedge-shm" "--test=heap" {
        "peers read from an arena after a fork": "self.header().store(0, Ordering::Release);\n        // No later" => "// No later"
            fails "reads_of_the_heap_need_no_call_of_the_target_and_see_its_memory_after_a_fork";
    }
    "providers/shm/src/matching/command_receiver.rs": "selvedge-shm" "--test=lent" {
        "an ordinary receive takes a lent message by reference": "|posted: &Posted| posted.flags.contains(OpFlags::LEND)" => "|posted: &Posted| !posted.flags.is_all()"
            fails "an_ordinary_receive_takes_a_copy_of_a_lent_message";
    }
    "providers/shm/src/matching/lent/handover.rs": "selvedge-shm" "--test=faults" {
        "a sender may use the number of a message that is lent": "|| peer.views.has(rts.msg_id)" => "|| peer.views.has(u32::MAX)"
            fails "a_second_loan_under_the_number_of_a_view_disconnects_its_sender";
    }
    "providers/kit/src/completion/idle_polls.rs": "selvedge-kit" "--lib" {
        "a thread yields again and again beside threads that compute": "if now < self.parks_until" => "if idle == u64::MAX && now < self.parks_until"
            fails "completion::idle_polls::tests::after_two_long_yields_in_a_row_a_thread_parks_for_many_times_as_long",
                "completion::cq::ring::tests::a_read_beside_threads_that_compute_parks_and_takes_the_entry_that_ends_the_park";
    }
};

/// The defects that one run plants.
#[derive(Default)]
pub(crate) struct Selection {
    /// Words of the description.
    pub(crate) only: Option<String>,
    /// The number of the first defect. Defects are numbered from 1 in the order of the list.
    pub(crate) from: Option<usize>,
    /// At most so many defects of one test target, chosen by the last commit.
    pub(crate) sample: Option<usize>,
    /// How often each test runs. It must fail each time.
    pub(crate) times: Option<usize>,
}

/// Plants the selected defects. Prints for each test whether it detected the defect. A defect whose
/// test could not be run does not end the list.
///
/// # Errors
/// Returns an error if a defect cannot be planted or is not detected, or if no defect is selected.
pub(crate) fn plant(selection: &Selection) -> anyhow::Result<String> {
    let selected = select(selection)?;
    let copy = copy()?;
    let mut missed = 0;
    for (number, plant) in selected {
        let outcomes = outcomes(&copy, plant, selection.times.unwrap_or(1));
        let outcomes = outcomes.unwrap_or_else(|error| vec![("ERROR   ", format!("{error:#}"))]);
        for (outcome, test) in outcomes {
            missed += usize::from(outcome != DETECTED);
            println!("{outcome} {number} {test}: {}", plant.description);
        }
    }
    ensure!(missed == 0, "{missed} defects were not detected");
    Ok("every defect was detected\n".to_owned())
}

const DETECTED: &str = "detected";

/// Plants a defect, runs each of its tests `times` times, and restores the file. Returns an outcome
/// for each test.
fn outcomes(
    copy: &Path,
    plant: &Plant,
    times: usize,
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let path = copy.join(plant.file);
    let source = fs::read_to_string(&path)?;
    fs::write(&path, planted(plant, &source)?)?;
    let outcomes = plant.tests.iter().map(|test| {
        for _ in 0..times {
            if !fails(copy, plant, test)? {
                return Ok(("MISSED  ", (*test).to_owned()));
            }
        }
        Ok((DETECTED, (*test).to_owned()))
    });
    let outcomes = outcomes.collect();
    fs::write(&path, source)?;
    outcomes
}

/// Checks that the source compiles with every defect. Inserts all defects together, except those
/// whose original text another defect has changed: these follow in a further pass.
///
/// # Errors
/// Returns the compiler's messages.
pub(crate) fn check() -> anyhow::Result<String> {
    let copy = copy()?;
    let mut remaining: Vec<_> = PLANTS.iter().collect();
    while !remaining.is_empty() {
        let count = remaining.len();
        let mut later = Vec::new();
        let mut sources = BTreeMap::new();
        for plant in remaining {
            let path = copy.join(plant.file);
            let original = fs::read_to_string(&path)?;
            let unchanged = || (original.clone(), original);
            let (_, source) = sources.entry(path).or_insert_with(unchanged);
            match planted(plant, source) {
                Ok(planted) => *source = planted,
                Err(_) => later.push(plant),
            }
        }
        ensure!(
            later.len() < count,
            "{} contains {:?} not exactly once",
            later[0].file,
            later[0].original
        );
        for (path, (_, source)) in &sources {
            fs::write(path, source)?;
        }
        let output = cargo(&copy).args(["check", "--workspace"]).output();
        for (path, (original, _)) in &sources {
            fs::write(path, original)?;
        }
        let output = output?;
        ensure!(
            output.status.success(),
            "the source does not compile with all defects:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        remaining = later;
    }
    Ok("the source compiles with every defect\n".to_owned())
}

/// Returns the selected defects with their numbers.
fn select(selection: &Selection) -> anyhow::Result<Vec<(usize, &'static Plant)>> {
    let words = selection.only.as_deref().unwrap_or_default();
    let first = selection.from.unwrap_or(1);
    let numbered = (1..).zip(PLANTS);
    let mut selected: Vec<_> = numbered
        .filter(|(number, plant)| *number >= first && plant.description.contains(words))
        .collect();
    if let Some(count) = selection.sample {
        selected = choose(&selected, count, &head(workspace())?);
    }
    ensure!(
        !selected.is_empty(),
        "no defect from number {first} has {words:?} in its description; \
         see docs/FABTESTS-REFERENCE.md"
    );
    Ok(selected)
}

/// Chooses at most `count` defects, all detected by one test target. The choice depends on the
/// commit.
fn choose(
    plants: &[(usize, &'static Plant)],
    count: usize,
    commit: &str,
) -> Vec<(usize, &'static Plant)> {
    let digits = commit.get(..8).unwrap_or_default();
    let number = usize::from_str_radix(digits, 16).unwrap_or_default();
    let first = number % plants.len().max(1);
    let (before, from) = plants.split_at(first);
    let rotated = from.iter().chain(before).copied();
    let target = |plant: &Plant| (plant.package, plant.target);
    let same_target = rotated.filter(|(_, plant)| target(plant) == target(plants[first].1));
    same_target.take(count).collect()
}

/// Checks out the last commit in `target/planted`. Returns its path.
fn copy() -> anyhow::Result<PathBuf> {
    let root = workspace();
    let copy = root.join("target/planted");
    if !copy.exists() {
        git(
            root,
            &["worktree", "add", "--detach", "--force", "target/planted"],
        )?;
    }
    git(&copy, &["checkout", "--force", "--detach", &head(root)?])?;
    Ok(copy)
}

fn head(root: &Path) -> anyhow::Result<String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["rev-parse", "HEAD"])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn git(dir: &Path, args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("git");
    let status = command
        .current_dir(dir)
        .args(args)
        .stderr(Stdio::null())
        .status();
    ensure!(status.context("git")?.success(), "git {args:?} failed");
    Ok(())
}

fn planted(plant: &Plant, source: &str) -> anyhow::Result<String> {
    let count = source.matches(plant.original).count();
    ensure!(
        count == 1,
        "{} contains {:?} {count} times",
        plant.file,
        plant.original
    );
    Ok(source.replacen(plant.original, plant.replacement, 1))
}

/// Returns whether a test fails. The test must compile and run.
fn fails(copy: &Path, plant: &Plant, test: &str) -> anyhow::Result<bool> {
    let mut command = cargo(copy);
    command.args(["test", "--quiet", "--package", plant.package]);
    command.args([plant.target, "--", test]);
    let output = command.output()?;
    let (output, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if output.contains("test result: FAILED") {
        return Ok(true);
    }
    if !output.contains("1 passed") {
        bail!("{}: {test} did not run: {output}{error}", plant.description);
    }
    Ok(false)
}

fn cargo(copy: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // A separate directory: otherwise cargo confuses the packages of both checkouts.
    command
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .current_dir(copy);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_defect_can_be_planted() -> anyhow::Result<()> {
        for plant in PLANTS {
            planted(plant, &fs::read_to_string(workspace().join(plant.file))?)?;
        }
        Ok(())
    }

    #[test]
    fn the_documented_list_of_planted_defects_matches_the_code() -> anyhow::Result<()> {
        let mut list = String::from("| file | defect | detected by |\n|---|---|---|\n");
        for Plant {
            file,
            description,
            tests,
            ..
        } in PLANTS
        {
            let tests: Vec<_> = tests.iter().map(|test| format!("`{test}`")).collect();
            list += &format!("| `{file}` | {description} | {} |\n", tests.join(", "));
        }
        let page = fs::read_to_string(workspace().join("docs/FABTESTS-REFERENCE.md"))?;
        assert!(
            page.contains(&list),
            "docs/FABTESTS-REFERENCE.md must contain:\n{list}"
        );
        Ok(())
    }

    #[test]
    fn a_sample_has_one_target_and_every_defect_is_in_some_sample() {
        let all: Vec<_> = (1..).zip(PLANTS).collect();
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..all.len() {
            let chosen = choose(&all, 3, &format!("{number:08x}"));
            assert!((1..=3).contains(&chosen.len()));
            let target = |plant: &Plant| (plant.package, plant.target);
            assert!(
                chosen
                    .iter()
                    .all(|(_, plant)| target(plant) == target(chosen[0].1))
            );
            seen.extend(chosen.iter().map(|(number, _)| *number));
        }
        assert_eq!(seen.len(), all.len());
    }

    #[test]
    fn a_run_can_begin_at_a_number() -> anyhow::Result<()> {
        let from = Some(PLANTS.len() - 1);
        let selection = Selection {
            from,
            ..Selection::default()
        };
        let numbers: Vec<_> = select(&selection)?
            .iter()
            .map(|(number, _)| *number)
            .collect();
        assert_eq!(numbers, [PLANTS.len() - 1, PLANTS.len()]);
        Ok(())
    }

    #[test]
    fn words_without_a_matching_defect_are_an_error() {
        let only = Some("a defect that does not exist".to_owned());
        let error = plant(&Selection {
            only,
            ..Selection::default()
        })
        .unwrap_err();
        assert!(error.to_string().contains("does not exist"), "{error}");
    }
}
