//! `cargo xtask plant`: defects planted in the source, one at a time, each with the tests that have
//! to fail for it. They are for what the mutation list of docs/FABTESTS.md cannot reach: parts that
//! are no provider's, and ways inside of one.
//!
//! The work is done in a copy of the last commit, `target/planted`, never here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::environment::workspace;

/// A defect.
struct Plant {
    what: &'static str,
    file: &'static str,
    /// A text that the file has once.
    was: &'static str,
    is: &'static str,
    /// Where the tests are that fail: a package, and what cargo is told besides.
    package: &'static str,
    target: &'static str,
    tests: &'static [&'static str],
}

macro_rules! plants {
    ($($file:literal: $package:literal $target:literal {
        $($what:literal: $was:literal => $is:literal fails $($test:literal),+;)+
    })+) => {
        &[$($(Plant {
            what: $what,
            file: $file,
            was: $was,
            is: $is,
            package: $package,
            target: $target,
            tests: &[$($test),+],
        },)+)+]
    };
}

const PLANTS: &[Plant] = plants! {
    "src/poll.rs": "selvedge-shm" "--test=messages" {
        "every member of a poll set is ready": "filter(|(member, _)| member.is_ready())" => "filter(|_| true)"
            fails "a_poll_set_names_what_is_ready_until_it_was_read";
        "a wait for a set succeeds when its time is over": "return Err(Errno::TimedOut);" => "return Ok(());"
            fails "a_wait_for_a_set_ends_with_any_of_its_members_or_the_time";
    }
    "providers/hook/src/call.rs": "selvedge-hook" "--test=layers" {
        "the innermost layer is the outermost": "hooks.split_first()" => "hooks.split_last()"
            fails "faults_follow_their_rules_and_outer_layers_see_them", "inner_layers_do_not_see_calls_that_outer_layers_fail";
        "a layer that there is not is left out": "let hooks = names.split(';').map(hook).collect::<Result<_, _>>()?;" => "let hooks = names.split(';').filter_map(|name| hook(name).ok()).collect();"
            fails "the_error_for_an_invalid_variable_quotes_the_value";
        "the file is made without a layer": "let names = params.text(\"FI_HOOK\")?;" => "let names = params.text(\"FI_HOOK\")?;\n        let _ = Output::open(&params.text(\"FI_HOOK_FILE\")?)?;"
            fails "without_fi_hook_there_is_no_layer";
        "nobody is told of the end of an object": "let _ = self.call::<(), Errno>((name, object)" => "let _ = || self.call::<(), Errno>((name, object)"
            fails "a_trace_has_a_line_for_each_call_from_the_first_to_the_last";
    }
    "providers/hook/src/perf.rs": "selvedge-hook" "--test=layers" {
        "errors are not counted": "u64::from(result.is_err())" => "u64::from(result.is_err()) * 0"
            fails "perf_counts_calls_errors_and_time";
    }
    "providers/hook/src/recorder.rs": "selvedge-hook" "--test=layers" {
        "a receive is timed as one of nothing": "(entry.len, entry.tag)," => "(0, entry.tag),"
            fails "perf_times_operations_by_kind_and_size_until_they_are_read";
        "times of endpoints that are closed are lost": "totals.add(latency.histograms());" => "totals.add(Vec::new());"
            fails "perf_times_operations_by_kind_and_size_until_they_are_read";
    }
    "providers/hook/src/shared.rs": "selvedge-hook" "--test=layers" {
        "posts of shared receives pass no layer": "post.pass(&self.at, self.recorder(), run)" => "{ let _ = post; run() }"
            fails "posts_of_shared_receives_pass_each_layer";
    }
    "providers/hook/src/endpoint.rs": "selvedge-hook" "--test=layers" {
        "what shared receives have open is forgotten with their handle": "_shared: shared," => "_shared: shared.filter(|_| false),"
            fails "perf_times_shared_receives_at_every_endpoint_that_completes_them";
    }
    "providers/hook/src/recorder.rs": "selvedge-hook" "--test=layers" {
        "shared receives that are not reported are waited for": "if bound.rx.is_selective() {" => "if bound.rx.is_selective() && false {"
            fails "an_unreported_shared_receive_is_not_matched_with_a_reported_one";
    }
    "util/top/src/processes.rs": "selvedge-top" "--test=processes" {
        "calls of what has no page are left out": "pages.iter().any(|seen| is_of(head, seen))" => "pages.iter().any(|seen| is_of(head, seen) || true)"
            fails "calls_of_shared_receives_are_told_of_beside_those_of_endpoints", "json_has_the_calls_of_shared_receives_beside_endpoints";
    }
    "providers/hook/src/open_ops.rs": "selvedge-hook" "--test=layers" {
        "a queue does not find shared receives": "local.or_else(|| self.take_shared(key, is_last))" => "local"
            fails "perf_times_shared_receives_at_every_endpoint_that_completes_them", "flight_records_posts_of_shared_receives_and_their_outcomes";
        "a send is taken for a receive": "tagged(TimedOp::TaggedSend, TimedOp::Send)" => "tagged(TimedOp::TaggedReceive, TimedOp::Receive)"
            fails "perf_times_operations_by_kind_and_size_until_they_are_read";
    }
    "providers/hook/src/endpoint.rs": "selvedge-top" "--test=processes" {
        "the hooks keep a handle of every endpoint": "if has_events {" => "if has_events || true {"
            fails "times_are_told_by_kind_and_size_while_the_program_runs";
    }
    "providers/kit/src/telemetry/latency.rs": "selvedge-kit" "--lib" {
        "a quantile is that of half as many": "self.count() as f64 * fraction).max(1.0)" => "self.count() as f64 * fraction / 2.0).max(1.0)"
            fails "quantiles_are_right_to_the_width_of_a_class";
        "times are classed by halves of a doubling": "& 3;" => "& 2;"
            fails "every_time_is_in_the_class_whose_bounds_are_around_it";
    }
    "providers/kit/src/telemetry/calls.rs": "selvedge-kit" "--lib" {
        "a call ends in a place that is another's": "if words[AT_NUMBER].load(Ordering::Relaxed) == number + 1 {" => "{"
            fails "the_outcome_of_a_call_whose_slot_was_reused_is_dropped";
        "every try is a call": "is(AT_OUTCOME, outcome_word(Err(Errno::Again)))" => "is(AT_OUTCOME, u64::MAX)"
            fails "retries_of_a_call_are_one_record";
    }
    "providers/hook/src/fault.rs": "selvedge-hook" "--lib" {
        "names of errors are taken as they are": "let name = name.strip_prefix(\"FI_E\").unwrap_or(&name);" => "let name = &*name;"
            fails "rules_are_parsed_into_call_action_and_condition";
        "chance does not ask for its seed": ".fetch_add(STEP, Ordering::Relaxed)\n            .wrapping_add(STEP);" => ".swap(STEP, Ordering::Relaxed)\n            .wrapping_mul(0).wrapping_add(STEP);"
            fails "random_faults_repeat_with_the_same_seed";
    }
    "providers/hook/src/objects.rs": "selvedge-hook" "--test=layers" {
        "a region takes counters with their hooks": "let cntr = HookLayers::counter(cntr);" => "let _ = HookLayers::counter; let cntr = Arc::clone(cntr);"
            fails "a_region_is_bound_to_the_counter_below_its_layers";
    }
    "providers/kit/src/layer/named.rs": "selvedge-hook" "--test=layers" {
        "errors name the endpoint below a layer": "error.ep = error.ep.map(|ep| ENDPOINTS.layered::<L>(ep));" => "let _ = &mut error.ep;"
            fails "an_event_names_the_applications_endpoint_when_its_fabric_is_open_twice";
    }
    "providers/kit/src/layer/calls.rs": "selvedge-kit" "--lib" {
        "a layer keeps a call for itself": "fn set_err(value: u64);" => "fn set_err(value: u64) = { let _ = value; };"
            fails "every_call_of_the_contract_reaches_the_object_below_a_layer_that_changes_nothing";
    }
    "providers/kit/src/layer/bound.rs": "selvedge-kit" "--lib" {
        "an endpoint is bound to shared receives with their layer": "bind.srx = bind.srx.as_ref().map(srx);" => "let _ = srx;"
            fails "every_call_of_the_contract_reaches_the_object_below_a_layer_that_changes_nothing";
    }
    "providers/kit/src/mr/counts.rs": "selvedge-shm" "--test=rma" {
        "each place is an event": "Some((_, sum)) => *sum += len," => "Some((_, sum)) if len > 1 << 40 => *sum += len,\n                Some(_) => regions.push((key, len)),"
            fails "an_operation_is_one_event_for_each_region_that_it_touches";
        "counters of regions drive nobody who is there": "endpoints.try_for_each(|ops| ops.add_driver(&cntr))?;" => "endpoints.try_for_each(|_| Ok::<(), Error>(()))?;"
            fails "each_region_counts_accesses_by_every_protocol", "a_thread_parked_at_a_region_counter_is_woken_by_writes_and_reads";
        "counters of regions drive nobody who comes later": "cntrs.try_for_each(|cntr| endpoint.add_driver(&cntr))" => "cntrs.try_for_each(|_| Ok(()))"
            fails "reading_a_region_counter_progresses_the_endpoints_that_serve_the_region";
        "a second counter takes the place of the first": "(0..EVENTS.len()).any(is_taken)" => "(0..0).any(is_taken)"
            fails "counters_that_cannot_be_bound_are_refused_by_name";
        "counters stay with the key": "self.0.remove(&key)" => "let _ = key; None"
            fails "a_reused_key_does_not_count_for_the_old_counter";
    }
    "providers/kit/src/mr/counts.rs": "selvedge-tcp" "--test=one_process" {
        "a counter of both counts an access twice": "read.is_none_or(|read| !Arc::ptr_eq(read, write))" => "read.is_none_or(|read| Arc::ptr_eq(read, write))"
            fails "a_counter_bound_to_reads_and_writes_counts_a_fetching_atomic_once";
    }
    "providers/shm/src/rma/direct.rs": "selvedge-shm" "--test=rma" {
        "special memory is used without the owner who counts": "|| row.is_counted()" => "|| row.is_counted() && row.len == 0"
            fails "each_region_counts_accesses_by_every_protocol", "direct_accesses_are_counted_once_the_region_has_a_counter";
    }
    "providers/shm/src/rma/read.rs": "selvedge-shm" "--test=rma" {
        "memory is copied from without the owner who counts": "if grant.row.is_counted() {" => "if grant.row.is_counted() && segment.len == 0 {"
            fails "each_region_counts_accesses_by_every_protocol";
        "reads inside of commands are not counted": "            shared.keys.count_read(&read.segments);" => ""
            fails "each_region_counts_accesses_by_every_protocol";
    }
    "providers/shm/src/peers/ops.rs": "selvedge-shm" "--test=rma" {
        "reads in segments are not counted": "self.domain.keys.count_read(&self.places);" => "let _ = (&self.domain, &self.places);"
            fails "each_region_counts_accesses_by_every_protocol";
    }
    "providers/shm/src/smr/memory/keys.rs": "selvedge-shm" "--test=rma" {
        "a changed key entry keeps its generation": "self.generations[index] += 2;" => "self.generations[index] += 0;"
            fails "direct_accesses_are_counted_once_the_region_has_a_counter";
    }
    "providers/shm/src/transfers/destination.rs": "selvedge-shm" "--test=rma" {
        "large writes are not counted": "memory.domain.keys.count_write(memory.segments.all());" => ""
            fails "each_region_counts_accesses_by_every_protocol";
    }
    "providers/tcp/src/connection/one_sided.rs": "selvedge-tcp" "--test=one_process" {
        "writes are not counted": "self.keys.count(segments, MrAccess::REMOTE_WRITE);" => "let _ = segments;"
            fails "each_region_counts_its_accesses";
        "reads are not counted": "self.keys.count(read.into_iter(), MrAccess::REMOTE_READ);" => "drop(read);"
            fails "each_region_counts_its_accesses";
        "atomics are not counted": "self.keys.count(targets, atomic.kernel.access());" => "drop(targets);"
            fails "each_region_counts_its_accesses";
        "to fetch is to write": "let is_read = atomic.kernel.has_result();" => "let is_read = atomic.kernel.op() == Op::AtomicRead;"
            fails "a_fetching_atomic_counts_as_a_read_at_the_target";
    }
    "providers/tcp/src/socket/tls/identity.rs": "selvedge-tcp" "--test=tls" {
        "clients show no certificate": ".with_client_cert_verifier(verifier)" => ".with_no_client_auth()"
            fails "clients_without_a_certificate_or_with_an_older_tls_version_are_rejected";
        "clients may have any name": "verify_server_name(&ParsedCertificate::try_from(end)?, &self.name)?;" => "let _ = verify_server_name(&ParsedCertificate::try_from(end)?, &self.name);"
            fails "certificates_on_both_sides_must_have_the_configured_name";
    }
    "providers/tcp/src/connection/mod.rs": "selvedge-tcp" "--test=tls" {
        "a parked thread forgets input that was read already": "|| self.is_draining || self.has_buffered_input()" => "|| self.is_draining"
            fails "a_thread_does_not_park_with_buffered_tls_input";
    }
    "providers/tcp/src/connection/tx.rs": "selvedge-tcp" "--test=tls" {
        "a header changes when a part of it is sealed": "if !socket.is_encrypted() {" => "if socket.is_encrypted() || negotiated.order == ByteOrder::Native {"
            fails "messages_delayed_by_backpressure_arrive_unchanged";
    }
    "providers/tcp/src/state/application.rs": "selvedge-tcp" "--test=one_process" {
        "an endpoint connects from anywhere": "Some(socket) => socket.connect(to, &self.config.socket_options)?," => "Some(_) => Socket::connect(from.unwrap_or(any), to, &self.config.socket_options)?,"
            fails "an_endpoint_connects_from_the_address_of_a_passive_endpoint";
    }
    "providers/tcp/src/endpoint/passive.rs": "selvedge-tcp" "--test=one_process" {
        "an endpoint that takes over an address binds another one": "PassiveState::Bound(socket, at) => return Ok((socket, at))," => "PassiveState::Bound(_, at) => return self.inner.bind_at(SocketAddr::new(at.ip(), 0)),"
            fails "an_endpoint_connects_from_the_address_of_a_passive_endpoint", "a_passive_endpoint_listens_at_its_address_or_takes_over_another_ones";
        "a second address takes the place of the first": "if !matches!(&*state, PassiveState::Unbound(_)) {" => "if matches!(&*state, PassiveState::Listening(_)) {"
            fails "an_endpoint_connects_from_the_address_of_a_passive_endpoint";
    }
    "util/capi/fabric/src/export/discover.rs": "selvedge-fabric-c" "--test=programs" {
        "the handle of hints is lost": "info::list(&all, handle)?" => "info::list(&all, ptr::null_mut::<Fid>().min(handle))?"
            fails "addresses_in_c_are_taken_before_anybody_listens_or_connects";
    }
    "util/top/src/units.rs": "selvedge-top" "--bin=fi_top" {
        "a number may have four digits": "value >= 999.5 &&" => "value >= 1000.5 &&"
            fails "numbers_have_three_digits_at_most";
    }
    "util/top/src/live.rs": "selvedge-top" "--bin=fi_top" {
        "the live picture does not say how it is left": "q quit  up/down choose" => "up/down choose"
            fails "the_picture_reads_well_at_80_columns_and_at_fewer";
    }
    "util/top/src/json.rs": "selvedge-top" "--test=processes" {
        "what was sent is told as received": "way.is_sent() == is_sent" => "way.is_sent() != is_sent"
            fails "messages_are_counted_by_the_way_they_took_and_seen_from_outside";
    }
    "util/top/src/dump.rs": "selvedge-top" "--test=processes" {
        "nobody is named with the process": "format!(\"{} (process {})\", peer.name, other.pid)" => "format!(\"{} {}\", peer.name, other.pid)"
            fails "each_side_of_a_hanging_job_says_what_it_waits_for";
        "one waits for another, and that is enough": "if waits_for(one, other) && waits_for(other, one)" => "if waits_for(one, other) && !waits_for(other, one)"
            fails "two_that_wait_for_each_other_are_named";
        "a stopped process is not known as one": "Some('T' | 't') =>" => "Some('t') =>"
            fails "a_peer_that_is_not_there_and_one_that_is_stopped_are_told_of";
    }
    "util/top/src/main.rs": "selvedge-top" "--test=processes" {
        "a process that is gone is told of in no sentence": "if !all.iter().any(|seen| seen.pid == *pid) {" => "if all.is_empty() && *pid == 0 {"
            fails "the_page_of_a_process_that_was_killed_is_gone_with_it";
    }
    "util/top/src/table.rs": "selvedge-top" "--test=processes" {
        "a long name is not cut": "cut(&command, 9)," => "cut(&command, 90),"
            fails "a_table_fits_80_columns";
    }
    "providers/kit/src/coll/endpoint.rs": "selvedge-top" "--test=processes" {
        "the layer of collectives is seen, too": "Ep::resolve_without_telemetry(bind, info, base.id())?" => "Ep::resolve(bind, info, base.id())?"
            fails "an_endpoint_with_a_layer_around_it_is_one";
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
    "providers/kit/src/coll/fast_path.rs": "selvedge-shm" "--test=collectives" {
        "a short round waits for the wrong member": "from: group.channel(receive.peer, receive.span.len)?" => "from: group.channel(send.peer, receive.span.len)?"
            fails "repeated_barriers_hold_every_member_until_the_last_arrives";
        "short collectives are not counted for others": ".set_next_sequence(group.stats_slot, group.next_sequence);" => ".set_next_sequence(group.stats_slot, 1);"
            fails "fast_path_collectives_are_counted_in_telemetry";
        "a short collective ends a round early": "fast_collective.rounds.get(fast_run.round) else" => "fast_collective.rounds.get(fast_run.round + usize::from(fast_run.round > 0)) else"
            fails "repeated_barriers_hold_every_member_until_the_last_arrives";
    }
    "providers/kit/src/coll/members.rs": "selvedge-kit" "--lib" {
        "one endpoint is two members": "if let Some(other) = ranks.insert(address, rank) {" => "if let Some(other) = ranks.insert(address, rank).filter(|_| false) {"
            fails "the_error_for_an_invalid_set_names_the_reason";
    }
    "providers/kit/src/coll/members.rs": "selvedge-shm" "--test=collectives" {
        "a set of any vector is joined": "Some(vector) if vector == own => Ok(())," => "Some(vector) if vector == own || vector != own => Ok(()),"
            fails "a_set_of_another_address_vector_is_refused";
    }
    "providers/kit/src/seal.rs": "selvedge-kit" "--lib" {
        "memory is not checked once it is sealed": "is_whole.then_some(()).ok_or(Errno::ESTALE)" => "is_whole.then_some(()).or(Some(())).ok_or(Errno::ESTALE)"
            fails "a_size_change_or_hole_made_before_sealing_is_detected";
    }
    "providers/shm/src/connect/connection.rs": "selvedge-shm" "--lib" {
        "a refused connection is read to its end": "(0..REFUSED_READS).any(" => "(0..REFUSED_READS << 20).any("
            fails "a_refused_connection_with_a_full_queue_is_read_a_limited_number_of_times";
    }
    "providers/shm/src/connect/discard.rs": "selvedge-shm" "--lib" {
        "every descriptor of a packet takes a thread": "None => drop_in_thread(fds)," => "None => fds.into_iter().for_each(drop_in_thread),"
            fails "descriptors_of_one_packet_take_one_thread_at_most";
    }
    "providers/shm/src/connect/disconnect.rs": "selvedge-shm" "--test=faults" {
        "a closing endpoint does not wait for key proofs": "while state.peers.iter().any(is_awaited) {" => "while state.peers.iter().any(is_awaited) && false {"
            fails "injects_before_a_proof_leave_when_their_endpoint_closes";
    }
    "providers/shm/src/transfers/sar.rs": "selvedge-shm" "--test=faults" {
        "segments are announced at once or never": "Ok(()) | Err(ConnectError::Busy(_)) => Ok(())," => "Ok(()) => Ok(()),"
            fails "segments_are_announced_to_a_peer_with_a_full_socket_once_it_has_room";
    }
    "providers/shm/src/provider/av.rs": "selvedge-shm" "--test=collectives" {
        "a member that is a context is the first one": "let name = self.name(addr).ok_or(Errno::Inval)?;" => "let name = self.name(self.table.table().split(addr).0).ok_or(Errno::Inval)?;"
            fails "groups_of_contexts_and_endpoints_agree_with_the_oracle";
    }
    "providers/kit/src/ip/av.rs": "selvedge-tcp" "--test=collectives" {
        "a member that is a context is found at the first one's port": "self.addr(addr).map(Address::Ip)" => "self.addr(self.table.table().split(addr).0).map(Address::Ip)"
            fails "groups_of_contexts_and_endpoints_agree_with_the_oracle";
    }
    "providers/kit/src/sep.rs": "selvedge-shm" "--test=collectives" {
        "a context that is refused is not named": "let message = format!(\"context {index} of {self:?}: {}\", error.message());" => "let message = error.message().to_owned();"
            fails "a_context_with_unsupported_collectives_is_refused_by_name";
    }
    "util/capi/fabric/src/ep/cm.rs": "selvedge-fabric-c" "--test=programs" {
        "a transmit context joins no group": "TX_CM: Table<OpsCm, Ep> = joins(names());" => "TX_CM: Table<OpsCm, Ep> = names();"
            fails "contexts_in_c_join_groups_and_take_part_in_collectives";
    }
    "providers/kit/src/coll/small_message.rs": "selvedge-shm" "--test=collectives" {
        "a letter that comes early is lost": ".insert((channel, message.tag), *message)\n            .is_none()" => ".contains_key(&(channel, message.tag))"
            fails "a_message_of_one_group_waits_while_another_group_reads_the_channel";
    }
    "util/cheetah/src/core.rs": "selvedge-cheetah" "--lib" {
        "what comes in a call that is no poll is slept on": "state.is_fresh |= engine.progress();" => "engine.progress();"
            fails "nobody_sleeps_on_what_came_in_a_call_that_was_no_poll";
    }
    "util/cheetah/src/core/finalize.rs": "selvedge-cheetah" "--lib" {
        "a stage of the end waits though it is reached": "Some(next) => state.stage = next," => "Some(next) => {\n                    state.stage = next;\n                    return Ok(false);\n                }"
            fails "a_context_that_waits_for_nobody_ends_at_once";
    }
    "providers/kit/src/coll/telemetry.rs": "selvedge-top" "--test=processes" {
        "nobody says that a collective waits": "self.telemetry.groups.write_pending(&pending);" => "self.telemetry.groups.write_pending(&pending[..0]);"
            fails "a_member_that_does_not_come_is_named_by_those_that_wait_for_it";
        "what has come is waited for as before": "self.telemetry.groups.write_pending(&[]);" => "self.telemetry.groups.has_pending = false;"
            fails "a_member_that_does_not_come_is_named_by_those_that_wait_for_it";
    }
    "util/top/src/groups.rs": "selvedge-top" "--test=processes" {
        "receives of the layer are told of as the program's": "seen.posted.retain(|wait| wait.tag & LAYER == 0);" => "let _ = LAYER;"
            fails "a_member_that_does_not_come_is_named_by_those_that_wait_for_it";
    }
    "providers/kit/src/telemetry/groups.rs": "selvedge-kit" "--lib" {
        "a group keeps its place when it is left": "if let Some(at) = slot {\n            self.page.set(at, 0);" => "if let Some(at) = slot.filter(|at| *at == 0) {\n            self.page.set(at, 0);"
            fails "a_group_shows_its_next_collective_until_it_is_left";
    }
    "providers/kit/src/telemetry/crash.rs": "selvedge-top" "--test=processes" {
        "a signal writes nothing": "    write_pages();\n    // SAFETY: as above.\n    unsafe { *errno = saved };" => "    // SAFETY: as above.\n    unsafe { *errno = saved };"
            fails "a_signal_of_the_users_choice_writes_the_last_events_out_and_harms_nobody";
        "a crash writes nothing": "    write_pages();\n    let Some(previous)" => "    let Some(previous)"
            fails "a_crash_writes_the_last_events_out_and_stays_a_crash";
    }
    "providers/kit/src/telemetry/settings.rs": "selvedge-top" "--test=processes" {
        "crashes are caught without being asked": "crash: params.flag(\"FI_SIGHT_CRASH\")?," => "crash: params.flag(\"FI_SIGHT_CRASH\").is_ok(),"
            fails "without_being_asked_nobody_catches_signals";
        "a signal that does not exist is left out": "signal.map(Some).ok_or_else(|| {" => "Some(signal).ok_or_else(|| {"
            fails "a_signal_that_does_not_exist_is_refused_by_name";
    }
};

/// Plants those whose words contain `only`, or all of them, or of these a `sample` of so many, and
/// says which tests noticed.
///
/// # Errors
/// When a defect cannot be planted, or is not noticed; when none is described with these words.
pub(crate) fn plant(only: Option<&str>, sample: Option<usize>) -> anyhow::Result<String> {
    let is_wanted = |plant: &&Plant| only.is_none_or(|only| plant.what.contains(only));
    let mut wanted: Vec<_> = PLANTS.iter().filter(is_wanted).collect();
    if let Some(count) = sample {
        wanted = chosen(&wanted, count, &head(workspace())?);
    }
    let words = only.unwrap_or_default();
    ensure!(
        !wanted.is_empty(),
        "no defect is described with {words:?}; docs/FABTESTS-REFERENCE.md lists them"
    );
    let copy = copy()?;
    let mut missed = 0;
    for plant in wanted {
        let path = copy.join(plant.file);
        let whole = fs::read_to_string(&path)?;
        fs::write(&path, planted(plant, &whole)?)?;
        let noticed = plant.tests.iter().map(|test| fails(&copy, plant, test));
        let noticed: anyhow::Result<Vec<_>> = noticed.collect();
        fs::write(&path, whole)?;
        for (test, fails) in plant.tests.iter().zip(noticed?) {
            let word = if fails { "noticed" } else { "MISSED " };
            missed += usize::from(!fails);
            println!("{word} {test}: {}", plant.what);
        }
    }
    ensure!(missed == 0, "{missed} defects were not noticed");
    Ok("every defect was noticed\n".to_owned())
}

/// At most `count` defects, which a commit chooses, so that the next commit chooses others. They have
/// one target of tests, which is built once.
fn chosen(plants: &[&'static Plant], count: usize, commit: &str) -> Vec<&'static Plant> {
    let digits = commit.get(..8).unwrap_or_default();
    let number = usize::from_str_radix(digits, 16).unwrap_or_default();
    let first = number % plants.len().max(1);
    let (before, from) = plants.split_at(first);
    let in_turn = from.iter().chain(before).copied();
    let target = |plant: &Plant| (plant.package, plant.target);
    let of_one_target = in_turn.filter(|plant| target(plant) == target(plants[first]));
    of_one_target.take(count).collect()
}

/// The last commit, beside the workspace.
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

fn git(folder: &Path, args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("git");
    let status = command
        .current_dir(folder)
        .args(args)
        .stderr(Stdio::null())
        .status();
    ensure!(status.context("git")?.success(), "git {args:?} fails");
    Ok(())
}

fn planted(plant: &Plant, whole: &str) -> anyhow::Result<String> {
    let count = whole.matches(plant.was).count();
    ensure!(
        count == 1,
        "{} has {:?} {count} times",
        plant.file,
        plant.was
    );
    Ok(whole.replacen(plant.was, plant.is, 1))
}

/// Whether a test fails now: it has to compile, and to be run.
fn fails(copy: &Path, plant: &Plant, test: &str) -> anyhow::Result<bool> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Not where ours is built: cargo would take one for the other.
    command
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .current_dir(copy)
        .args(["test", "--quiet", "--package", plant.package]);
    command.args([plant.target, "--", test]);
    let output = command.output()?;
    let (said, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if said.contains("test result: FAILED") {
        return Ok(true);
    }
    if !said.contains("1 passed") {
        bail!("{}: {test} is not run: {said}{error}", plant.what);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_defect_has_its_place() -> anyhow::Result<()> {
        for plant in PLANTS {
            planted(plant, &fs::read_to_string(workspace().join(plant.file))?)?;
        }
        Ok(())
    }

    /// The part of docs/FABTESTS-REFERENCE.md that says which defects were planted in the source.
    #[test]
    fn the_list_of_planted_defects_is_what_the_code_says() -> anyhow::Result<()> {
        let mut list = String::from("| planted in | what is wrong | noticed by |\n|---|---|---|\n");
        for Plant {
            file, what, tests, ..
        } in PLANTS
        {
            let tests: Vec<_> = tests.iter().map(|test| format!("`{test}`")).collect();
            list += &format!("| `{file}` | {what} | {} |\n", tests.join(", "));
        }
        let page = fs::read_to_string(workspace().join("docs/FABTESTS-REFERENCE.md"))?;
        assert!(
            page.contains(&list),
            "docs/FABTESTS-REFERENCE.md must contain:\n{list}"
        );
        Ok(())
    }

    #[test]
    fn a_commit_chooses_defects_of_one_target_and_every_defect_has_its_commit() {
        let all: Vec<_> = PLANTS.iter().collect();
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..all.len() {
            let chosen = chosen(&all, 3, &format!("{number:08x}"));
            assert!((1..=3).contains(&chosen.len()));
            let target = |plant: &Plant| (plant.package, plant.target);
            assert!(
                chosen
                    .iter()
                    .all(|plant| target(plant) == target(chosen[0]))
            );
            seen.extend(chosen.iter().map(|plant| plant.what));
        }
        assert_eq!(seen.len(), all.len());
    }

    #[test]
    fn words_that_describe_no_defect_are_said_to() {
        let error = plant(Some("a defect that nobody has thought of"), None).unwrap_err();
        assert!(
            error.to_string().contains("nobody has thought of"),
            "{error}"
        );
    }
}
