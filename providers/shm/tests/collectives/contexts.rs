//! Members that are contexts of scalable endpoints.

use std::sync::Arc;

use selvedge::atomic::Datatype;
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::{
    Address, AddressVector, Caps, CollectiveExt as _, Context, Errno, Error, FiAddr, Hints,
    OpFlags, ScalableEndpoint, av,
};
use selvedge_testkit::domain::{DomainContext, EndpointConfig};
use selvedge_testkit::local::{first_info, open_domain};

use crate::killed::{Process, next_outcome, print_line, role};
use crate::members::{Member, Members, WATCHDOG};
use crate::sweep::GroupRun;

const BITS: u32 = 4;
/// The contexts of each scalable endpoint.
const COUNT: usize = 2;
/// Turns that all members complete before the parent kills one.
const TURNS_BEFORE_KILL: u64 = 100;
const CAPS: Caps = Caps::MSG.union(Caps::TAGGED).union(Caps::COLLECTIVE);

/// An endpoint of a process, scalable or plain, and an address vector that can name contexts.
struct Host {
    domain: Arc<DomainContext>,
    av: Arc<dyn AddressVector>,
    sep: Option<Arc<dyn ScalableEndpoint>>,
    members: Vec<Member>,
}

impl Host {
    fn scalable() -> Self {
        let mut host = Self::without_contexts();
        host.members = (0..COUNT)
            .map(|index| host.context(index, |_| {}).unwrap())
            .collect();
        host
    }

    /// A scalable endpoint without a context.
    fn without_contexts() -> Self {
        let mut host = Self::from_hints(&Hints::new().caps(CAPS).edit(|info| {
            info.caps |= Caps::NAMED_RX_CTX;
            (info.ep_attr.tx_ctx_cnt, info.ep_attr.rx_ctx_cnt) = (COUNT, COUNT);
        }));
        let sep = host.domain.domain().scalable_endpoint(host.domain.info());
        host.sep = Some(sep.unwrap());
        host
    }

    fn single() -> Self {
        let mut host = Self::from_hints(&Hints::new().caps(CAPS));
        let member = Member::open_in(&host.domain, |config| {
            config.av = Some(Arc::clone(&host.av));
        });
        host.members = vec![member.unwrap()];
        host
    }

    fn from_hints(hints: &Hints) -> Self {
        let domain = open_domain(&first_info(&crate::registry(), hints)).unwrap();
        let mut attr = av::Attr::default();
        attr.rx_ctx_bits = BITS;
        Self {
            av: domain.domain().av(&attr).unwrap(),
            domain,
            sep: None,
            members: Vec::new(),
        }
    }

    /// A member that is a context.
    fn context(
        &self,
        index: usize,
        change: impl FnOnce(&mut EndpointConfig),
    ) -> Result<Member, Error> {
        Member::open_in(&self.domain, |config| {
            config.av = Some(Arc::clone(&self.av));
            config.context = self.sep.clone().map(|sep| (sep, index));
            change(config);
        })
    }

    fn address(&self) -> Address {
        match &self.sep {
            Some(sep) => sep.address().unwrap(),
            None => self.members[0].address(),
        }
    }

    /// Inserts the addresses of all hosts into the address vector, and gives each member the
    /// addresses of all contexts by rank.
    fn insert_addresses(&mut self, addresses: &[Address], order: &[(usize, usize)]) {
        let addrs = order.iter().map(|&(host, context)| {
            let peer = self.av.insert_one(&addresses[host]).unwrap();
            peer.rx_addr(context, BITS)
        });
        let addrs: Vec<_> = addrs.collect();
        for member in &mut self.members {
            member.addrs.clone_from(&addrs);
        }
    }
}

/// For each rank, the host of the member and the index of the member in that host.
const ORDER: [(usize, usize); 5] = [(0, 1), (1, 0), (2, 0), (1, 1), (0, 0)];

/// Opens two scalable endpoints with contexts, and a plain endpoint. The members are in [`ORDER`].
fn connected_members() -> Members {
    let mut hosts = [Host::scalable(), Host::scalable(), Host::single()];
    let addresses = [0, 1, 2].map(|host: usize| hosts[host].address());
    for (number, host) in hosts.iter_mut().enumerate() {
        // Each member has the others at other indices.
        for step in 0..3 {
            let address = &addresses[(number + step) % 3];
            host.av.insert_one(address).unwrap();
        }
        host.insert_addresses(&addresses, &ORDER);
    }
    let mut members = hosts.map(|host| host.members.into_iter().map(Some).collect::<Vec<_>>());
    let in_order = ORDER
        .iter()
        .map(|&(host, index)| members[host][index].take());
    Members {
        members: in_order.collect(),
    }
}

/// Posts a sum of one number of each member.
fn post_sum(
    member: &Member,
    group: FiAddr,
    (value, sum): (&u64, &mut u64),
    context: Context,
) -> selvedge::Result {
    let mut msg = CollectiveMsg::new(Op::Allreduce, group, Datatype::Uint64, context);
    msg.count = 1;
    msg.buf = (&raw const *value).cast();
    msg.result = (&raw mut *sum).cast();
    member.post(&msg)
}

#[test]
fn groups_of_contexts_and_endpoints_agree_with_the_oracle() {
    let mut job = GroupRun::among(connected_members());
    job.every_collective();
    job.every_large_collective();
}

#[test]
fn groups_of_different_contexts_are_independent_and_run_at_once() {
    let members = connected_members();
    // Both groups have the same number of members, the same key, and the same two scalable
    // endpoints.
    let (first, second) = ([4, 1], [0, 3]);
    let groups = [
        (first, members.join(&first)),
        (second, members.join(&second)),
    ];
    let values: Vec<u64> = (0..5).map(|rank| 10_u64.pow(rank)).collect();
    for turn in 0..50 {
        let mut sums = [0; 5];
        for (ranks, groups) in &groups {
            for (&rank, group) in ranks.iter().zip(groups) {
                let memory = (&values[rank], &mut sums[rank]);
                post_sum(members.member(rank), group.addr(), memory, Context(turn)).unwrap();
            }
        }
        members.expect_success(&[0, 1, 3, 4], Context(turn));
        assert_eq!(sums, [1001, 10010, 0, 1001, 10010]);
    }
}

#[test]
fn a_context_that_is_closed_ends_the_collectives_of_its_group_and_of_no_other() {
    let mut members = connected_members();
    let (lost, kept) = ([4, 1, 2], [0, 3]);
    let (lost_groups, kept_groups) = (members.join(&lost), members.join(&kept));
    for (&rank, group) in lost.iter().zip(&lost_groups).skip(1) {
        let coll = members.member(rank).coll();
        coll.barrier(group.addr(), OpFlags::DEFAULT, Context(1))
            .unwrap();
    }
    members.close(4);
    for outcome in members.outcomes(&lost[1..], Context(1)) {
        assert!(outcome.unwrap_err().detail.contains("Barrier"));
    }
    for (&rank, group) in kept.iter().zip(&kept_groups) {
        let coll = members.member(rank).coll();
        coll.barrier(group.addr(), OpFlags::DEFAULT, Context(2))
            .unwrap();
    }
    members.expect_success(&kept, Context(2));
}

#[test]
fn a_context_with_unsupported_collectives_is_refused_by_name() {
    // Another process may take the port of a context over tcp from one attempt to the next.
    while !check_refusals(&Host::without_contexts()) {}
}

/// Checks the refusals. Returns false if another process has taken the context's port.
fn check_refusals(host: &Host) -> bool {
    let srx = host.domain.domain().srx(&host.domain.info().rx_attr);
    let srx = srx.unwrap();
    let refused = |change: &dyn Fn(&mut EndpointConfig)| host.context(1, change).err().unwrap();
    let with_srx = refused(&|config| config.srx = Some(Arc::clone(&srx)));
    let without_av = refused(&|config| config.without_av = true);
    if without_av.errno() == Errno::AddrInUse {
        return false;
    }
    assert_eq!(
        (with_srx.errno(), without_av.errno()),
        (Errno::NoSys, Errno::NoAv)
    );
    let name = format!("context 1 of scalable endpoint {}", host.address());
    for (error, reason) in [
        (with_srx, "cannot use shared receives"),
        (without_av, "an address vector"),
    ] {
        let text = error.to_string();
        assert!(text.contains(&name) && text.contains(reason), "{text}");
    }
    // The refused context is not open.
    let context = match host.context(1, |_| {}) {
        Err(error) if error.errno() == Errno::AddrInUse => return false,
        opened => opened.unwrap(),
    };
    let host_addr = host.av.insert_one(&host.address()).unwrap();
    let join = |members: &[FiAddr]| {
        let mut set = av::Set::open(&*host.av, &av::SetAttr::default()).unwrap();
        members.iter().for_each(|&it| set.insert(it).unwrap());
        context.coll().join(&set, Context(1)).map(drop)
    };
    let first = host_addr.rx_addr(0, BITS);
    assert_eq!(
        join(&[first]),
        Err(Errno::Inval),
        "the address of another context"
    );
    let no_member = FiAddr(host_addr.0 + 7).rx_addr(1, BITS);
    assert_eq!(
        join(&[host_addr.rx_addr(1, BITS), no_member]),
        Err(Errno::Inval)
    );
    let own_name_addr = host.av.insert_one(&context.address()).unwrap();
    let twice = [host_addr.rx_addr(1, BITS), own_name_addr];
    assert_eq!(
        join(&twice),
        Err(Errno::Inval),
        "the set names one endpoint twice"
    );
    assert_eq!(
        join(&[own_name_addr]),
        Ok(()),
        "by the name of the context itself"
    );
    true
}

/// A process. Its role: number, kind of endpoint, and whether its members park.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn process() {
    let role = role();
    let (number, parks) = (role[0].parse::<usize>().unwrap(), role[2].parse().unwrap());
    let mut host = match role[1].as_str() {
        "scalable" => Host::scalable(),
        _ => Host::single(),
    };
    print_line(&format!("name {}", host.address()));
    let lines = std::io::stdin().lines().map(Result::unwrap);
    let addresses: Vec<Address> = lines.take(3).map(|it| it.parse().unwrap()).collect();
    host.insert_addresses(&addresses, &ORDER);
    std::thread::scope(|scope| {
        for (index, member) in host.members.iter().enumerate() {
            let rank = ORDER.iter().position(|&it| it == (number, index)).unwrap();
            scope.spawn(move || run_sums(member, rank, parks));
        }
    });
}

/// Runs a member: posts sums in the group of all members, and at the same time in the group of the
/// contexts with the same index, until a member fails.
fn run_sums(member: &Member, rank: usize, parks: bool) {
    let same_index: &[usize] = match rank {
        0 | 3 => &[0, 3],
        1 | 4 => &[4, 1],
        _ => &[],
    };
    let groups = [&[0, 1, 2, 3, 4], same_index];
    let joined = groups
        .iter()
        .filter(|ranks| !ranks.is_empty())
        .map(|ranks| {
            let set = member.open_set(ranks, &[]);
            (*ranks, member.coll().join(&set, Context(0)).unwrap())
        });
    let joined: Vec<_> = joined.collect();
    for _ in &joined {
        member.eq.wait(Some(WATCHDOG)).unwrap();
    }
    for turn in 1.. {
        let value = turn * 1000 + rank as u64;
        let mut sums = [0; 2];
        let posts = joined.iter().zip(&mut sums);
        let posts = posts.map(|((_, group), sum)| {
            post_sum(member, group.addr(), (&value, sum), Context(turn))
                .map_err(|it| it.to_string())
        });
        let posts: Vec<_> = posts.collect();
        // The collectives use the memory until all of them complete.
        let ends = posts.into_iter().map(|posted| {
            posted?;
            next_outcome(member, parks).map_err(|error| error.detail)
        });
        let ends: Vec<_> = ends.collect();
        if let Some(reason) = ends.into_iter().find_map(Result::err) {
            return print_line(&format!("lost: {reason}"));
        }
        for ((ranks, _), sum) in joined.iter().zip(sums) {
            let all: u64 = ranks.iter().map(|&rank| turn * 1000 + rank as u64).sum();
            assert_eq!(
                sum, all,
                "rank {rank} in the group of {ranks:?}, turn {turn}"
            );
        }
        if turn == TURNS_BEFORE_KILL {
            print_line("going");
        }
    }
}

fn kill_one_of_three(killed: usize, parks: bool) {
    let kinds = ["scalable", "scalable", "single"];
    let roles = kinds.iter().enumerate();
    let roles = roles.map(|(number, kind)| format!("{number} {kind} {parks}"));
    let mut processes = Process::start_all("contexts::process", roles);
    let members = |number: usize| ORDER.iter().filter(move |(host, _)| *host == number);
    for (number, process) in processes.iter_mut().enumerate() {
        members(number).for_each(|_| drop(process.read_line("going")));
    }
    processes[killed].child.kill().unwrap();
    for (number, process) in processes.iter_mut().enumerate() {
        if number != killed {
            members(number).for_each(|_| drop(process.read_line("lost")));
            assert!(process.child.wait().unwrap().success());
        }
    }
}

#[test]
fn a_killed_process_ends_the_collectives_of_polling_contexts() {
    kill_one_of_three(1, false);
}

#[test]
fn a_killed_process_ends_the_collectives_of_parked_contexts() {
    kill_one_of_three(0, true);
}
